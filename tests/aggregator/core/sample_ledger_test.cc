// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ledger of a lane's samples, alone. The random test prints its seed; BASIN_LEDGER_SEED=N runs
// one.

#include "aggregator/core/sample_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "protocol/limits/limits.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr SampleEpoch kThisEpoch{1, 100, 7};
constexpr SampleEpoch kNextEpoch{2, 100, 7};
constexpr Incarnation kFirst{1, 1};
constexpr Incarnation kSecond{1, 2};

using Positions = std::vector<SampleRange>;

constexpr SampleLedger::Budget kPlenty{uint64_t{1} << 40, 0};

struct Ledger : SampleLedger {
  uint32_t members = 1;
  Budget budget = kPlenty;
  Answer Ask(const Incarnation& who, uint64_t count, const SampleEpoch& epoch = kThisEpoch,
             const Positions& resumed = {}, const IntervalSet& counted = {}) {
    return Lease(who, absl::StrCat("w", who.counter), {0, 1, epoch, count, resumed}, {members},
                 counted, budget);
  }
  // As the caller charges it, while the open round names so many ranges.
  void LimitToNow(uint64_t named = 0) { budget = {Need(named), named}; }
  void Commit(const Positions& ranges) { EndRound(Of(IntervalSet(ranges))); }
};

// Whatever is committed, and however many trainers there are: each position of a step is in the
// share of one of them, and no share has two more than another one.
TEST(LedgerOfSteps, SharesAreAPartition) {
  const SampleEpoch epoch{1, 50, 7, 12};
  const Positions committed = {{3, 5}, {8, 9}, {20, 31}};
  for (uint32_t trainers = 1; trainers <= 16; ++trainers) {
    Ledger ledger;
    for (uint64_t step = 0; step < 3; ++step) {
      IntervalSet all;
      uint64_t named = 0;
      uint64_t least = 50;
      uint64_t most = 0;
      for (uint32_t rank = 0; rank < trainers; ++rank) {
        const auto answer = ledger.Lease({1, rank}, "w", {0, 1, epoch, 1, committed, 0},
                                         {trainers, rank, 1, trainers}, {}, kPlenty);
        const IntervalSet share(answer.ranges);
        all.Add(answer.ranges);
        named += share.count();
        least = std::min(least, share.count());
        most = std::max(most, share.count());
      }
      EXPECT_EQ(named, 12u);
      EXPECT_LE(most - least, 1u);
      EXPECT_EQ(ledger.WhyNotCommit(all, named), "");
      EXPECT_NE(ledger.WhyNotCommit(all, named + 1), "");
      ledger.Commit(all.Runs());
    }
    EXPECT_TRUE(ledger.Ended()) << "36 were left";
  }
}

TEST(SampleLedger, LeasesTheLowestThatAreFree) {
  Ledger t;
  EXPECT_THAT(t.Ask(kFirst, 10).ranges, ElementsAre(SampleRange(0, 10)));
  EXPECT_THAT(t.Ask(kSecond, 10).ranges, ElementsAre(SampleRange(10, 20)));
  EXPECT_EQ(t.Return(kFirst, {0, 1, {{2, 4}}}, {}, kPlenty), "");
  EXPECT_THAT(t.Ask(kSecond, 10).ranges, ElementsAre(SampleRange(2, 4), SampleRange(20, 28)));
}

TEST(SampleLedger, SharesTheEnd) {
  Ledger t;
  t.members = 4;
  EXPECT_THAT(t.Ask(kFirst, 50).ranges, ElementsAre(SampleRange(0, 25)));
  EXPECT_THAT(t.Ask(kSecond, 10).ranges, ElementsAre(SampleRange(25, 35)));
  EXPECT_THAT(t.Ask(kSecond, 100).ranges, ElementsAre(SampleRange(35, 52)));
}

TEST(SampleLedger, AnEpochEndsWithItsLastPosition) {
  Ledger t;
  t.Ask(kFirst, 60);
  t.Ask(kSecond, 60);
  t.Commit({{0, 60}});
  EXPECT_EQ(t.Ask(kFirst, 1).outcome, LeaseOutcome::kNoneNow);
  EXPECT_EQ(t.Ask(kFirst, 1, kNextEpoch).outcome, LeaseOutcome::kNoneNow)
      << "b is in the first one";
  const RoundSamples last = t.Of(IntervalSet({{60, 100}}));
  EXPECT_TRUE(last.ends_epoch());
  t.EndRound(last);
  EXPECT_EQ(t.Ask(kSecond, 1).outcome, LeaseOutcome::kEnded);
  const SampleLedger::Answer next = t.Ask(kFirst, 5, kNextEpoch);
  EXPECT_TRUE(next.moved);
  EXPECT_EQ(next.left, 0u);
  EXPECT_THAT(next.ranges, ElementsAre(SampleRange(0, 5)));
  EXPECT_EQ(t.Ask(kSecond, 1).outcome, LeaseOutcome::kEnded) << "of an earlier epoch";
  EXPECT_EQ(t.settled().epoch, kThisEpoch) << "no verdict has committed anything of the next one";
  t.Commit({{0, 5}});
  EXPECT_EQ(t.settled().epoch, kNextEpoch);
}

TEST(SampleLedger, AnAbortedRoundChangesNothing) {
  Ledger t;
  t.Ask(kFirst, 10);
  const SampleLedger before = t;
  t.EndRound(std::nullopt);
  EXPECT_TRUE(before.Fields() == t.Fields());
}

TEST(SampleLedger, ABeginNamesPositionsThatItsWorkerHolds) {
  Ledger t;
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 1, {{0, 1}}, 0), HasSubstr("no worker has leased samples"));
  t.Ask(kFirst, 10);
  EXPECT_EQ(t.WhyNotBegin({kFirst}, 1, {{2, 4}, {0, 1}}, 0), "");
  EXPECT_EQ(t.WhyNotBegin({kFirst}, 1, {}, 0), "");
  EXPECT_EQ(t.WhyNotBegin({kSecond, kFirst}, 1, {{2, 4}}, 0), "") << "they were reduced together";
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 1, {{5, 11}}, 0), HasSubstr("sample 10 of epoch 1"));
  EXPECT_THAT(t.WhyNotBegin({kSecond}, 1, {{5, 6}}, 0), HasSubstr("sample 5 of epoch 1"));
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 1, {{0, 2}, {1, 3}}, 0), HasSubstr("sample 1 twice"));
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 2, {{0, 1}}, 0), HasSubstr("the lane is at epoch 1"));
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 1, {{0, 1}}, kMaxLedgerRanges), HasSubstr("separate ranges"));
}

TEST(SampleLedger, WhatTheOpenRoundCountsWaitsForItsEnd) {
  for (const bool committed : {true, false}) {
    Ledger t;
    t.Ask(kFirst, 10);
    t.Leave(kFirst, IntervalSet({{3, 5}}));
    EXPECT_THAT(t.Ask(kSecond, 10).ranges, ElementsAre(SampleRange(0, 3), SampleRange(5, 12)));
    committed ? t.Commit({{3, 5}}) : t.EndRound(std::nullopt);
    EXPECT_THAT(t.Ask(kSecond, 1).ranges,
                ElementsAre(committed ? SampleRange(12, 13) : SampleRange(3, 4)));
  }
}

TEST(SampleLedger, MovesOnWhenAllAskForALaterEpoch) {
  Ledger t;
  t.Ask(kFirst, 10);
  t.Ask(kSecond, 10);
  const IntervalSet counted({{0, 2}});
  EXPECT_EQ(t.Ask(kFirst, 1, kNextEpoch, {}, counted).outcome, LeaseOutcome::kNoneNow);
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), ElementsAre(SampleRange(0, 2)))
      << "the open round counts them";
  EXPECT_EQ(t.Ask(kSecond, 1, kNextEpoch).outcome, LeaseOutcome::kNoneNow);
  t.EndRound(std::nullopt);
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), IsEmpty()) << "it had given them up";
  const SampleLedger::Answer next = t.Ask(kSecond, 1, kNextEpoch);
  EXPECT_THAT(next.ranges, ElementsAre(SampleRange(0, 1)));
  EXPECT_EQ(next.left, 100u);
}

TEST(SampleLedger, AWorkerThatIsLostNeedNotAsk) {
  Ledger t;
  t.Ask(kFirst, 10);
  t.Ask(kSecond, 10);
  t.Leave(kFirst, {});
  EXPECT_EQ(t.Ask(kSecond, 1, kNextEpoch).outcome, LeaseOutcome::kLeased);
}

TEST(SampleLedger, AnEpochIsTheSameForAll) {
  Ledger t;
  t.Ask(kFirst, 10);
  const SampleLedger::Answer other = t.Ask(kSecond, 1, {1, 99, 7});
  EXPECT_EQ(other.outcome, LeaseOutcome::kRefused);
  EXPECT_EQ(other.refusal.code, ErrorCode::kMismatch);
  EXPECT_THAT(other.refusal.text, HasSubstr("99 samples in order 7, but worker w1 gave 100"));
  EXPECT_EQ(t.Ask(kSecond, 1, {1, 100, 8}).outcome, LeaseOutcome::kRefused);
}

TEST(SampleLedger, ResumesACheckpoint) {
  Ledger t;
  const Positions done{{0, 30}, {40, 50}};
  EXPECT_THAT(t.Ask(kFirst, 15, kThisEpoch, done).ranges,
              ElementsAre(SampleRange(30, 40), SampleRange(50, 55)));
  EXPECT_EQ(t.resumed(), done);
  EXPECT_EQ(t.Ask(kSecond, 1, kThisEpoch, done).outcome, LeaseOutcome::kLeased);
  EXPECT_EQ(t.Ask(kSecond, 1).outcome, LeaseOutcome::kLeased) << "it need not have one";
  const SampleLedger::Answer other = t.Ask(kSecond, 1, kThisEpoch, {{0, 29}});
  EXPECT_EQ(other.refusal.code, ErrorCode::kMismatch);
  EXPECT_THAT(other.refusal.text, HasSubstr("worker w1 began it with 40"));
  const RoundSamples round = t.Of(IntervalSet({{30, 32}}));
  EXPECT_EQ(round.resumed, done);
  EXPECT_EQ(round.committed, 42u);
  EXPECT_EQ(After({}, round).ranges, (Positions{{0, 32}, {40, 50}}));
  t.EndRound(round);
  EXPECT_EQ(t.settled(), After({}, round));
  EXPECT_EQ(t.Ask(kSecond, 1, kThisEpoch, done).outcome, LeaseOutcome::kLeased) << "it is older";
  EXPECT_EQ(t.Ask(kSecond, 1, kThisEpoch, {{90, 91}}).outcome, LeaseOutcome::kRefused);
}

TEST(SampleLedger, BoundsWhatAWorkerHolds) {
  Ledger t;
  const SampleEpoch large{1, 4 * kMaxLeasedSamples, 7};
  EXPECT_THAT(t.Ask(kFirst, ~uint64_t{0}, large).ranges,
              ElementsAre(SampleRange(0, kMaxLeasedSamples)));
  EXPECT_EQ(t.Ask(kFirst, 1, large).refusal.code, ErrorCode::kResourceExhausted);
  Positions every_other;
  for (uint64_t i = 0; i <= kMaxSampleRanges; ++i) every_other.push_back({2 * i, 2 * i + 1});
  EXPECT_THAT(t.Return(kFirst, {0, 1, every_other}, {}, kPlenty), HasSubstr("the limit is 4096"));
  EXPECT_THAT(t.WhyNotBegin({kFirst}, 1, every_other, 0), HasSubstr("separate ranges"));
}

TEST(SampleLedger, ANewSessionHoldsWhatItsHelloNames) {
  Ledger t;
  t.Ask(kFirst, 10);
  t.Resume(kFirst, {kThisEpoch, {{0, 4}, {50, 60}}}, IntervalSet({{8, 9}}), kPlenty);
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), ElementsAre(SampleRange(0, 4), SampleRange(8, 9)));
  t.Resume(kFirst, {kNextEpoch, {{0, 4}}}, {}, kPlenty);
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), IsEmpty());
}

TEST(SampleLedger, RecoversFromHellos) {
  Ledger t;
  t.Recover({kThisEpoch, {{0, 20}}});
  LaneHistory a;
  a.leased = {kThisEpoch, {{18, 25}}};
  t.Restore(kFirst, "a", a);
  LaneHistory b;
  b.leased = {kThisEpoch, {{24, 30}}};
  t.Restore(kSecond, "b", b);
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), ElementsAre(SampleRange(20, 25)));
  EXPECT_THAT(t.HeldBy(kSecond).Runs(), ElementsAre(SampleRange(25, 30)));
  // The value that is adopted counts a worker that is not here.
  const RoundSamples adopted{kThisEpoch, {{20, 22}, {30, 32}}, {}, 24};
  t.Adopt(adopted);
  EXPECT_THAT(t.Ask(kSecond, 2).ranges, ElementsAre(SampleRange(32, 34)));
  Ledger aborted = t;
  t.EndRound(adopted);
  EXPECT_EQ(t.settled(), After({kThisEpoch, {{0, 20}}}, adopted));
  aborted.EndRound(std::nullopt);
  EXPECT_THAT(aborted.Ask(kSecond, 1).ranges, ElementsAre(SampleRange(30, 31)));
}

TEST(SampleLedger, RecoversAnEpochWithoutAVerdict) {
  Ledger t;
  t.Recover({kThisEpoch, {{0, 90}}});
  LaneHistory behind;
  behind.leased = {kThisEpoch, {{90, 100}}};
  t.Restore(kSecond, "b", behind);
  LaneHistory ahead;
  ahead.leased = {kNextEpoch, {{10, 20}}};
  ahead.resumed = {{0, 10}};
  t.Restore(kFirst, "a", ahead);
  EXPECT_EQ(t.epoch(), kNextEpoch);
  EXPECT_EQ(t.settled(), (SampleProgress{kThisEpoch, {{0, 90}}}));
  EXPECT_EQ(t.resumed(), (Positions{{0, 10}}));
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), ElementsAre(SampleRange(10, 20)));
  EXPECT_THAT(t.HeldBy(kSecond).Runs(), IsEmpty());
}

// ---- memory

constexpr SampleEpoch kLargeEpoch{1, 100'000, 7};

Positions EveryOther(uint64_t first, uint64_t count) {
  Positions ranges;
  for (uint64_t i = 0; i < count; ++i) ranges.push_back({first + 2 * i, first + 2 * i + 1});
  return ranges;
}

TEST(LedgerMemory, IsThatOfItsHoldersAndRanges) {
  Ledger t;
  EXPECT_EQ(t.Need(0), 0u);
  t.Ask(kFirst, 10'000, kLargeEpoch);
  const uint64_t few = t.held_bytes();
  EXPECT_GT(few, 0u);
  EXPECT_LT(few, 500u);
  EXPECT_LT(t.Need(0), 1000u) << "with some ranges to come";
  t.Commit(EveryOther(0, 1000));
  EXPECT_GE(t.held_bytes(), few + 2000 * (2 * sizeof(uint64_t) + 4 * sizeof(void*)) - 100)
      << "1000 committed ranges, and as many that are held between them";
}

TEST(LedgerMemory, WithoutItALeaseIsRefusedAndNothingChanges) {
  Ledger t;
  t.budget = {100, 0};
  const SampleLedger::Answer first = t.Ask(kFirst, 10);
  EXPECT_EQ(first.outcome, LeaseOutcome::kRefused);
  EXPECT_EQ(first.refusal.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(first.refusal.text, HasSubstr("may take 100 bytes of memory.budget"));
  EXPECT_TRUE(first.lacks_memory);
  EXPECT_EQ(t.held_bytes(), 0u);

  t.budget = kPlenty;
  t.Ask(kFirst, 10'000, kLargeEpoch);
  t.Commit(EveryOther(0, 1000));
  t.LimitToNow();
  const SampleLedger before = t;
  const SampleLedger::Answer another = t.Ask(kSecond, 10, kLargeEpoch);
  EXPECT_TRUE(another.lacks_memory);
  EXPECT_TRUE(before.Fields() == t.Fields());
  EXPECT_TRUE(t.Ask(kFirst, 10, kLargeEpoch).lacks_memory) << "it would cut what is free";
  EXPECT_EQ(t.committed(), 1000u);
}

TEST(LedgerMemory, WithoutItAnEpochDoesNotBegin) {
  Ledger t;
  t.Ask(kFirst, 100);
  t.Commit({{0, 100}});
  t.LimitToNow();
  EXPECT_EQ(t.Ask(kFirst, 1).outcome, LeaseOutcome::kEnded) << "that needs none";
  Positions checkpoint;
  for (uint64_t i = 0; i < 50; ++i) checkpoint.push_back({2 * i, 2 * i + 1});
  EXPECT_TRUE(t.Ask(kFirst, 1, kNextEpoch, checkpoint).lacks_memory);
  EXPECT_EQ(t.epoch(), kThisEpoch);
  EXPECT_EQ(t.Ask(kFirst, 1, kNextEpoch).outcome, LeaseOutcome::kLeased);
}

TEST(LedgerMemory, WithoutItScatteredReturnsAreIgnored) {
  Ledger t;
  t.Ask(kFirst, 10'000, kLargeEpoch);
  t.LimitToNow();
  EXPECT_THAT(t.Return(kFirst, {0, 1, EveryOther(1, 1000)}, {}, t.budget),
              HasSubstr("memory.budget"));
  EXPECT_EQ(t.HeldBy(kFirst).count(), 10'000u);
  EXPECT_EQ(t.Return(kFirst, {0, 1, {{0, 9'000}}}, {}, t.budget), "");
}

// The other workers lease what a hello names, because the worker is told that it holds nothing.
TEST(LedgerMemory, WithoutItAScatteredHelloHoldsNothing) {
  Ledger t;
  t.Ask(kFirst, 10'000, kLargeEpoch);
  t.LimitToNow();
  const IntervalSet counted({{5, 6}});
  EXPECT_THAT(t.Resume(kFirst, {kLargeEpoch, EveryOther(0, 1000)}, counted, t.budget),
              HasSubstr("memory.budget"));
  EXPECT_THAT(t.HeldBy(kFirst).Runs(), ElementsAre(SampleRange(5, 6))) << "the round counts it";
  EXPECT_LE(t.held_bytes(), t.budget.bytes);
}

// Workers that train on what they lease in order, some of which are lost or leave a round out, in a
// job that has no byte more than its workers needed when they had leased once.
TEST(LedgerMemory, SufficesForWorkersThatTrainInOrder) {
  constexpr uint64_t kWorkers = 32;
  std::mt19937_64 random(1);
  Ledger t;
  t.members = kWorkers;
  t.budget = {SampleLedger::NeedOf(kWorkers, 0), 0};
  SampleEpoch epoch{1, 20'000, 7};
  std::vector<Incarnation> workers;
  for (uint64_t i = 1; i <= kWorkers; ++i) workers.push_back({1, i});
  uint64_t last = kWorkers;
  for (int round = 0; round < 2000; ++round) {
    IntervalSet named;
    IntervalSet counted;
    uint64_t ranges = 0;
    for (Incarnation& worker : workers) {
      while (t.HeldBy(worker).count() < 8) {
        const SampleLedger::Answer answer = t.Ask(worker, 32, epoch);
        ASSERT_NE(answer.outcome, LeaseOutcome::kRefused) << answer.refusal.text;
        if (answer.outcome != LeaseOutcome::kLeased) break;
      }
      Positions begin;
      uint64_t batch = 8;
      for (SampleRange run : t.HeldBy(worker).Runs()) {
        run.end = run.begin + std::min(run.size(), batch);
        batch -= run.size();
        if (!run.empty()) begin.push_back(run);
      }
      ASSERT_LE(t.Need(ranges + begin.size()), t.budget.bytes) << "round " << round;
      ranges += begin.size();
      counted.Add(begin);
      if (random() % 20 != 0) named.Add(begin);
    }
    const bool lost = random() % 5 == 0;
    if (lost) t.Leave(workers[round % kWorkers], counted);
    named.empty() ? t.EndRound(std::nullopt) : t.EndRound(t.Of(named));
    if (lost) workers[round % kWorkers] = {1, ++last};
    ASSERT_LE(t.held_bytes(), t.budget.bytes);
    if (t.Ended()) ++epoch.number;
  }
  EXPECT_GT(epoch.number, 10u);
}

// Whatever workers do, and however little memory is left: what was charged is enough, and each
// position is committed, held or free.
TEST(LedgerMemory, IsNeverMoreThanWhatWasCharged) {
  uint64_t refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t bound) { return random() % bound; };
    constexpr uint64_t kSamples = 2000;
    Ledger t;
    SampleEpoch epoch{1, kSamples, 7};
    uint64_t charged = 0;
    std::map<Incarnation, Positions> begun;
    std::vector<Incarnation> workers{{1, 1}, {1, 2}, {1, 3}};
    std::set<Incarnation> gone;
    uint64_t last = 3;
    const auto named = [&] {
      uint64_t count = 0;
      for (const auto& [worker, ranges] : begun) count += ranges.size();
      return count;
    };
    const auto counted = [&] {
      IntervalSet all;
      for (const auto& [worker, ranges] : begun) all.Add(ranges);
      return all;
    };
    const auto scattered = [&](const IntervalSet& held) {
      Positions ranges;
      for (const SampleRange& run : held.Runs()) {
        for (uint64_t at = run.begin; at < run.end;) {
          const uint64_t end = std::min(run.end, at + 1 + below(4));
          if (below(2) == 0) ranges.push_back({at, end});
          at = end + below(3);
        }
      }
      return ranges;
    };
    for (int step = 0; step < 200; ++step) {
      constexpr uint64_t kFree[] = {0, 200, 2000, uint64_t{1} << 20};
      t.budget = {charged + kFree[below(4)], named()};
      Incarnation& worker = workers[below(workers.size())];
      switch (below(8)) {
        case 0:
        case 1: {
          if (t.Ended()) ++epoch.number;
          const Positions resumed = below(4) == 0 ? EveryOther(0, below(100)) : Positions{};
          refused += t.Ask(worker, 1 + below(200), epoch, resumed, counted()).lacks_memory;
          break;
        }
        case 2:
          refused +=
              !t.Return(worker, {0, epoch.number, scattered(t.HeldBy(worker))}, counted(), t.budget)
                   .empty();
          break;
        case 3:
        case 4: {
          if (begun.count(worker) > 0) break;
          const Positions ranges = scattered(t.HeldBy(worker));
          if (!t.WhyNotBegin({worker}, t.epoch().number, ranges, 0).empty()) break;
          if (t.Need(t.budget.named + ranges.size()) > t.budget.bytes) {
            ++refused;
          } else {
            begun[worker] = ranges;
          }
          break;
        }
        case 5: {
          IntervalSet positions;
          for (const auto& [contributor, ranges] : begun) {
            if (below(4) != 0) positions.Add(ranges);
          }
          positions.empty() ? t.EndRound(std::nullopt) : t.EndRound(t.Of(positions));
          begun.clear();
          gone.clear();
          break;
        }
        case 6:
          if (below(2) == 0) begun.erase(worker);  // Otherwise it is effective.
          t.Leave(worker, counted());
          gone.insert(worker);
          worker = {1, ++last};
          break;
        case 7:
          refused +=
              !t.Resume(worker, {epoch, scattered(t.HeldBy(worker))}, counted(), t.budget).empty();
          break;
      }
      charged = std::min(t.Need(named()), t.budget.bytes);
      ASSERT_LE(t.held_bytes(), charged) << "step " << step;
      uint64_t known = t.committed() + t.free();
      for (const Incarnation& each : workers) known += t.HeldBy(each).count();
      for (const Incarnation& each : gone) known += t.HeldBy(each).count();
      ASSERT_EQ(known, t.epoch().samples) << "step " << step;
    }
  }
  EXPECT_GT(refused, 1000u);
}

// ---- against a model that has a word for each position

class WordModel {
 public:
  explicit WordModel(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int step = 0; step < 300; ++step) {
      Step();
      Check();
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  static constexpr uint64_t kSamples = 40;
  enum : int { kFree = 0, kCommitted = -1 };

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  Incarnation Who(int worker) const { return {1, static_cast<uint64_t>(worker)}; }
  IntervalSet CountedFor(int worker) const {
    IntervalSet counted;
    const auto begun = begun_.find(worker);
    if (begun == begun_.end()) return counted;
    for (const uint64_t position : begun->second) counted.Add({position, position + 1});
    return counted;
  }
  IntervalSet HeldBy(int worker) const {
    IntervalSet held;
    for (uint64_t i = 0; i < kSamples; ++i) {
      if (owner_[i] == worker) held.Add({i, i + 1});
    }
    return held;
  }
  void FreeAllBut(int worker, const std::set<uint64_t>& kept) {
    for (uint64_t i = 0; i < kSamples; ++i) {
      if (owner_[i] == worker && kept.count(i) == 0) owner_[i] = kFree;
    }
  }

  void Step() {
    const int worker = alive_[Below(alive_.size())];
    switch (Below(8)) {
      case 0:
      case 1:
        return Lease(worker);
      case 2: {
        const uint64_t begin = Below(kSamples);
        const SampleRange range{begin, begin + 1 + Below(kSamples - begin)};
        ledger_.Return(Who(worker), {0, epoch_, {range}}, CountedFor(worker), kPlenty);
        for (uint64_t i = range.begin; i < range.end; ++i) {
          if (owner_[i] == worker && begun_[worker].count(i) == 0) owner_[i] = kFree;
        }
        return;
      }
      case 3:
      case 4: {
        if (!begun_[worker].empty()) return;
        Positions ranges;
        for (uint64_t i = 0; i < kSamples; ++i) {
          if (owner_[i] != worker || Below(3) == 0) continue;
          begun_[worker].insert(i);
          ranges.push_back({i, i + 1});
        }
        EXPECT_EQ(ledger_.WhyNotBegin({Who(worker)}, epoch_, ranges, 0), "");
        const uint64_t other = Below(kSamples);
        if (owner_[other] != worker) {
          EXPECT_NE(ledger_.WhyNotBegin({Who(worker)}, epoch_, {{other, other + 1}}, 0), "");
        }
        return;
      }
      case 5:
        return EndRound(Below(2) == 0);
      case 6: {
        if (Below(3) != 0) return;
        ledger_.Leave(Who(worker), CountedFor(worker));
        FreeAllBut(worker, begun_[worker]);
        gone_.insert(worker);
        for (int& alive : alive_) {
          if (alive == worker) alive = ++last_;
        }
        return;
      }
      case 7: {
        // Its hello has forgotten one position.
        IntervalSet held = HeldBy(worker);
        const uint64_t lost = Below(kSamples);
        held.Remove(Interval{lost, lost + 1});
        ledger_.Resume(Who(worker), {Epoch(), held.Runs()}, CountedFor(worker), kPlenty);
        if (owner_[lost] == worker && begun_[worker].count(lost) == 0) owner_[lost] = kFree;
        return;
      }
    }
  }

  SampleEpoch Epoch() const { return {epoch_, kSamples, 5}; }

  void Lease(int worker) {
    const bool ended = Count(kCommitted) == kSamples;
    if (ended) {
      ++epoch_;
      owner_.assign(kSamples, kFree);
      begun_.clear();
    }
    const uint64_t count = 1 + Below(8);
    const auto members = static_cast<uint32_t>(alive_.size());
    const SampleLedger::Answer answer = ledger_.Lease(Who(worker), "w", {0, 1, Epoch(), count, {}},
                                                      {members}, CountedFor(worker), kPlenty);
    EXPECT_EQ(answer.moved, ended || !begun_ever_);
    begun_ever_ = true;
    uint64_t most = count;
    const uint64_t free = Count(kFree);
    if (free < members * count) most = std::max<uint64_t>(1, (free + members - 1) / members);
    most = std::min(most, count);
    IntervalSet expected;
    for (uint64_t i = 0; i < kSamples && expected.count() < most; ++i) {
      if (owner_[i] != kFree) continue;
      owner_[i] = worker;
      expected.Add({i, i + 1});
    }
    EXPECT_EQ(answer.outcome, free == 0 ? LeaseOutcome::kNoneNow : LeaseOutcome::kLeased);
    EXPECT_EQ(answer.ranges, expected.Runs());
  }

  void EndRound(bool commits) {
    IntervalSet positions;
    for (const auto& [worker, begun] : begun_) {
      if (!commits || Below(4) == 0) continue;  // It was withdrawn.
      for (const uint64_t i : begun) positions.Add({i, i + 1});
    }
    if (positions.empty()) {
      ledger_.EndRound(std::nullopt);
    } else {
      const RoundSamples samples = ledger_.Of(positions);
      EXPECT_EQ(samples.committed, Count(kCommitted) + positions.count());
      ledger_.EndRound(samples);
      for (uint64_t i = 0; i < kSamples; ++i) {
        if (!positions.Inside({i, i + 1}).empty()) owner_[i] = kCommitted;
      }
    }
    for (const int worker : gone_) FreeAllBut(worker, {});
    gone_.clear();
    begun_.clear();
  }

  uint64_t Count(int owner) const {
    return static_cast<uint64_t>(std::count(owner_.begin(), owner_.end(), owner));
  }

  void Check() {
    EXPECT_EQ(ledger_.free(), begun_ever_ ? Count(kFree) : 0);
    EXPECT_EQ(ledger_.committed(), Count(kCommitted));
    for (int worker = 1; worker <= last_; ++worker) {
      EXPECT_EQ(ledger_.HeldBy(Who(worker)).Runs(), HeldBy(worker).Runs()) << worker;
    }
  }

  std::mt19937_64 random_;
  SampleLedger ledger_;
  uint64_t epoch_ = 1;
  bool begun_ever_ = false;
  std::vector<int> owner_ = std::vector<int>(kSamples, kFree);
  std::map<int, std::set<uint64_t>> begun_;  // In the open round.
  std::set<int> gone_;
  std::vector<int> alive_{1, 2, 3};
  int last_ = 3;
};

TEST(SampleLedger, DoesAsAWordForEachPositionDoes) {
  uint64_t first = std::random_device()();
  int seeds = 300;
  if (const char* const seed = std::getenv("BASIN_LEDGER_SEED")) {
    first = std::strtoull(seed, nullptr, 10);
    seeds = 1;
  }
  RecordProperty("seed", absl::StrCat(first));
  for (int i = 0; i < seeds; ++i) {
    SCOPED_TRACE(absl::StrCat("replay with BASIN_LEDGER_SEED=", first + i));
    WordModel(first + static_cast<uint64_t>(i)).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace basin::aggregator
