// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The simulator itself: a seed determines a run, the checkers find planted bugs, and a failing run
// shrinks. seeds_main.cc runs the seeds.

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/run.h"

namespace basin::simulation {
namespace {

constexpr uint64_t kSeeds = 40;

TEST(SimulationTest, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options options;
    options.seed = seed;
    const Result first = Simulate(options, Detail::kNone);
    const Result second = Simulate(options, Detail::kNone);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << ReplayCommand(options);
    EXPECT_EQ(first.coverage.steps, second.coverage.steps);
  }
}

TEST(SimulationTest, WatchingDoesNotChangeTheRun) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options options;
    options.seed = seed;
    const Result silent = Simulate(options, Detail::kNone);
    const Result told = Simulate(options, Detail::kAll);
    EXPECT_EQ(silent.trace_hash, told.trace_hash) << ReplayCommand(options);
    EXPECT_TRUE(silent.lines.empty());
    EXPECT_FALSE(told.lines.empty());
  }
}

TEST(SimulationTest, TheSameSeedIsTheSameRunWithManyNames) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options options;
    options.seed = seed;
    options.names = true;
    const Result first = Simulate(options, Detail::kNone);
    const Result second = Simulate(options, Detail::kAll);
    EXPECT_FALSE(first.failed()) << first.violation.text << "\n" << ReplayCommand(options);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << ReplayCommand(options);
    coverage.Add(first.coverage);
  }
  const auto seen = [&](Sight sight) { return coverage.sights[static_cast<uint32_t>(sight)]; };
  EXPECT_GT(seen(Sight::kNameLetGo), kSeeds);
  EXPECT_GT(seen(Sight::kNameAgain), kSeeds);
}

TEST(SimulationTest, TheSameSeedIsTheSameRunWithShards) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 2 * kSeeds; ++seed) {
    Options options;
    options.seed = seed;
    options.shards = true;
    const Result first = Simulate(options, Detail::kNone);
    const Result second = Simulate(options, Detail::kAll);
    EXPECT_FALSE(first.failed()) << first.violation.text << "\n" << ReplayCommand(options);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << ReplayCommand(options);
    coverage.Add(first.coverage);
  }
  const auto seen = [&](Sight sight) { return coverage.sights[static_cast<uint32_t>(sight)]; };
  EXPECT_GT(seen(Sight::kPlaced), kSeeds);
  EXPECT_GT(seen(Sight::kParkedLost), 0u);
}

TEST(SimulationTest, SeedsDiffer) {
  Options options;
  options.seed = 1;
  const Result one = Simulate(options, Detail::kNone);
  options.seed = 2;
  EXPECT_NE(one.trace_hash, Simulate(options, Detail::kNone).trace_hash);
}

TEST(SimulationTest, FaultsCanBeLeftOut) {
  Options options;
  for (options.seed = 1; options.seed <= kSeeds; ++options.seed) {
    options.faults.reset();
    const size_t all = MakeScenario(options).faults.size();
    options.faults = std::vector<uint32_t>{};
    EXPECT_TRUE(MakeScenario(options).faults.empty());
    if (all < 2) continue;
    options.faults = std::vector<uint32_t>{1};
    ASSERT_EQ(MakeScenario(options).faults.size(), 1u);
    const Scenario drawn = DrawScenario(options.seed);
    EXPECT_EQ(MakeScenario(options).faults[0].salt, drawn.faults[1].salt);
  }
}

// The checkers must report a planted bug as one of these, with one of a range of seeds.
struct Planted {
  PlantedBug bug;
  std::vector<Invariant> seen_as;  // One of these.
  uint64_t seeds;                  // A seed up to this one must show it.
  bool shards = false;
};

class PlantedBugTest : public testing::TestWithParam<Planted> {};

// Tries seeds until one shows the bug, and checks how it shows.
TEST_P(PlantedBugTest, IsSeen) {
  const Planted& planted = GetParam();
  Options options;
  options.bug = planted.bug;
  options.shards = planted.shards;
  for (options.seed = 1; options.seed <= planted.seeds; ++options.seed) {
    const Result result = Simulate(options, Detail::kNone);
    if (!result.failed()) continue;
    Options clean = options;
    clean.bug = PlantedBug::kNone;
    if (Simulate(clean, Detail::kNone).failed()) continue;  // The planted bug did not cause it.
    EXPECT_THAT(planted.seen_as, testing::Contains(result.violation.invariant))
        << InvariantName(result.violation.invariant) << ": " << result.violation.text << "\n"
        << ReplayCommand(options);
    EXPECT_FALSE(result.violation.text.empty());
    return;
  }
  FAIL() << "no seed up to " << planted.seeds << " shows " << PlantedBugName(planted.bug);
}

// Two bugs are missing here: no seed of 700,000 shows kRecoverWithFirst, and none of 200,000 shows
// kCountMemoryless. The explorer finds both; see RecoveryWithWhoeverComesFirstForks and
// CountingProcessesWithoutMemoryForks in tests/explore.
INSTANTIATE_TEST_SUITE_P(
    All, PlantedBugTest,
    testing::Values(Planted{PlantedBug::kLoseAck, {Invariant::kLiveness}, 200},
                    Planted{PlantedBug::kWrongResult, {Invariant::kSameBytes}, 20},
                    Planted{PlantedBug::kCountTwice, {Invariant::kCountedOnce}, 20},
                    Planted{PlantedBug::kLeaveOut, {Invariant::kCountedOnce}, 20},
                    Planted{PlantedBug::kStaleBytes, {Invariant::kSameBytes}, 20},
                    Planted{PlantedBug::kForgetToFree, {Invariant::kBoundedBytes}, 20},
                    Planted{PlantedBug::kSilentEviction, {Invariant::kNoted}, 500},
                    Planted{PlantedBug::kSendEarly,
                            {Invariant::kOneVerdict, Invariant::kSameBytes, Invariant::kLiveness,
                             Invariant::kContract},
                            3000},
                    Planted{PlantedBug::kAdoptWithoutPrepare,
                            {Invariant::kOneVerdict, Invariant::kSameBytes, Invariant::kLiveness,
                             Invariant::kContract},
                            20000},
                    Planted{PlantedBug::kStageWithoutState, {Invariant::kSameBytes}, 3000},
                    Planted{PlantedBug::kForgetFrame, {Invariant::kContract}, 1000},
                    Planted{PlantedBug::kSendElsewhere, {Invariant::kContract}, 1000},
                    Planted{PlantedBug::kAcknowledgeTwice, {Invariant::kContract}, 200},
                    Planted{PlantedBug::kLoseEarly, {Invariant::kContract}, 1000},
                    Planted{PlantedBug::kKeepSamples, {Invariant::kSamples}, 1000},
                    Planted{PlantedBug::kFreeCounted, {Invariant::kSamples}, 20000},
                    Planted{PlantedBug::kPartsOfSteps, {Invariant::kSamples}, 200},
                    Planted{PlantedBug::kLateUnstaged, {Invariant::kLiveness}, 500},
                    Planted{PlantedBug::kDifferentCalls, {Invariant::kCountedOnce}, 1000},
                    Planted{PlantedBug::kCountLate, {Invariant::kCountedOnce}, 200},
                    Planted{PlantedBug::kForgetDeferred, {Invariant::kCountedOnce}, 500},
                    Planted{PlantedBug::kDeferCounted, {Invariant::kCountedOnce}, 500},
                    Planted{PlantedBug::kDropDeferred, {Invariant::kCountedOnce}, 5000},
                    Planted{PlantedBug::kKeepLostChunks, {Invariant::kContract}, 200, true},
                    Planted{PlantedBug::kShardStaleBytes, {Invariant::kSameBytes}, 20, true}),
    [](const testing::TestParamInfo<Planted>& param) {
      std::string name;
      bool upper = true;
      for (const char c : std::string(PlantedBugName(param.param.bug))) {
        if (c != '-') name += upper ? static_cast<char>(c - 'a' + 'A') : c;
        upper = c == '-';
      }
      return name;
    });

TEST(ShrinkTest, FindsTheFewestFaults) {
  // The bug needs an eviction, so a failing run shrinks to one that has an eviction and little
  // else.
  Options options;
  options.bug = PlantedBug::kSilentEviction;
  uint32_t shrunk = 0;
  uint32_t fewer = 0;
  for (options.seed = 1; options.seed <= 2000 && shrunk < 5; ++options.seed) {
    const size_t faults = MakeScenario(options).faults.size();
    const Result result = Simulate(options, Detail::kNone);
    if (result.violation.invariant != Invariant::kNoted || faults < 3) continue;
    const Options small = Shrink(options, Invariant::kNoted, 100);
    ASSERT_TRUE(small.faults.has_value());
    EXPECT_LE(small.faults->size(), faults);
    fewer += small.faults->size() < faults;
    EXPECT_EQ(Simulate(small, Detail::kNone).violation.invariant, Invariant::kNoted);
    // No other fault can be left out.
    for (size_t i = 0; i < small.faults->size(); ++i) {
      Options smaller = small;
      smaller.rounds.reset();
      std::vector<uint32_t> rest = *small.faults;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      smaller.faults = rest;
      EXPECT_NE(Simulate(smaller, Detail::kNone).violation.invariant, Invariant::kNoted)
          << ReplayCommand(smaller);
    }
    ++shrunk;
  }
  EXPECT_EQ(shrunk, 5u);
  EXPECT_GE(fewer, 3u);  // A run may need every fault, but that is rare.
}

// A job that never ends runs to the end of the simulated time on every attempt.
TEST(ShrinkTest, EndsForAJobThatDoesNot) {
  Options options;
  options.bug = PlantedBug::kLoseAck;
  const auto is_stuck = [](const Options& tried) {
    return Simulate(tried, Detail::kNone).violation.invariant == Invariant::kLiveness;
  };
  for (options.seed = 1; options.seed <= 500; ++options.seed) {
    const size_t faults = MakeScenario(options).faults.size();
    if (faults < 3 || !is_stuck(options)) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Options small = Shrink(options, Invariant::kLiveness, 60);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
    EXPECT_TRUE(is_stuck(small)) << ReplayCommand(small);
    ASSERT_TRUE(small.faults.has_value());
    EXPECT_LT(small.faults->size(), faults) << ReplayCommand(options);
    return;
  }
  FAIL() << "no seed up to 500 with three faults is stuck";
}

TEST(ShrinkTest, TheCommandNamesWhatIsLeft) {
  Options options;
  options.seed = 7;
  EXPECT_EQ(ReplayCommand(options), "basin-simulate --seed 7 --verbose");
  options.faults = std::vector<uint32_t>{0, 2};
  options.rounds = 1;
  options.bug = PlantedBug::kLoseAck;
  EXPECT_EQ(ReplayCommand(options),
            "basin-simulate --seed 7 --faults 0,2 --rounds 1 --plant lose-ack --verbose");
  options.faults->clear();
  EXPECT_THAT(ReplayCommand(options), testing::HasSubstr("--faults none"));
  options.names = true;
  EXPECT_THAT(ReplayCommand(options), testing::HasSubstr("--names"));
}

}  // namespace
}  // namespace basin::simulation
