// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/plan.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "aggregator/core/memory.h"
#include "aggregator/ctl/plan_shards.h"

namespace basin::aggregator {
namespace {

PlannedJob Job(uint32_t workers, uint64_t bytes, double nic_bits, absl::Duration round_trip) {
  PlannedJob job;
  job.workers = workers;
  job.model_bytes = bytes;
  job.nic_bits = nic_bits;
  job.round_trip = round_trip;
  return job;
}

// The example of the README: 8 workers with 1 GB each take at least 6.4 s over 10 Gbit/s.
TEST(Plan, ARoundTakesTheTimeOfAllContributionsThroughOneNetwork) {
  const Plan plan = PlanOf(Job(8, 1'000'000'000, 10e9, absl::ZeroDuration()));
  EXPECT_NEAR(absl::ToDoubleSeconds(plan.round), 6.4, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(plan.ring), 2 * 7 / 8.0 * 0.8, 1e-9);
}

TEST(Plan, WithTheNetworkOfTheBreakEvenARoundTakesAsLongAsTheRing) {
  PlannedJob job = Job(8, 100 << 20, 10e9, absl::Milliseconds(1));
  const Plan plan = PlanOf(job);
  ASSERT_TRUE(plan.even_nic_bits.has_value());
  job.nic_bits = *plan.even_nic_bits;
  EXPECT_NEAR(absl::ToDoubleSeconds(PlanOf(job).round), absl::ToDoubleSeconds(plan.ring), 1e-6);
}

TEST(Plan, AModelOfTheBreakEvenTakesAsLongInBoth) {
  PlannedJob job = Job(8, 100 << 20, 10e9, absl::Milliseconds(1));
  const uint64_t even = PlanOf(job).even_model_bytes;
  ASSERT_GT(even, 0U);
  job.model_bytes = even;
  EXPECT_NEAR(absl::ToDoubleSeconds(PlanOf(job).round), absl::ToDoubleSeconds(PlanOf(job).ring),
              1e-6);
  job.model_bytes = even / 2;
  EXPECT_LT(PlanOf(job).round, PlanOf(job).ring);
  job.model_bytes = even * 2;
  EXPECT_GT(PlanOf(job).round, PlanOf(job).ring);
}

TEST(Plan, TwoWorkersHaveNoBreakEven) {
  const Plan plan = PlanOf(Job(2, 1024, 10e9, absl::Milliseconds(1)));
  EXPECT_FALSE(plan.even_nic_bits.has_value());
  EXPECT_EQ(plan.even_model_bytes, 0U);
}

TEST(Plan, TheMemoryIsWhatTheAggregatorChargesALane) {
  const Plan plan = PlanOf(Job(4, 256 << 20, 10e9, absl::Milliseconds(1)));
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t tracking = TrackingBytes(4, 1024);
  EXPECT_EQ(plan.full_memory, (4 * 16 + 8 * 1 + 8) * kMiB + tracking);
  EXPECT_EQ(plan.least_memory, (4 * 1 + 8 * 1 + 1) * kMiB + tracking);
}

TEST(Plan, AModelSmallerThanAWindowNeedsNoMoreThanItself) {
  const Plan plan = PlanOf(Job(4, 4096, 10e9, absl::Milliseconds(1)));
  EXPECT_EQ(plan.full_memory, (4 + 8 + 1) * 4096 + TrackingBytes(4, 1));
}

// ---- shards

// 8 workers with 800 MB at 10 Gbit/s: a worker sends its own in 0.64 s.
PlannedJob EightWorkers() { return Job(8, 800'000'000, 10e9, absl::ZeroDuration()); }
constexpr uint64_t kNoMemory = 0;

TEST(PlanShards, TheBytesAreDividedUntilTheWorkersOwnNetworkIsTheLimit) {
  const auto seconds = [](uint32_t shards) {
    return absl::ToDoubleSeconds(RoundWith(EightWorkers(), shards, kNoMemory).round);
  };
  EXPECT_NEAR(seconds(0), 5.12, 1e-9);
  EXPECT_NEAR(seconds(1), 2.56, 1e-9);
  EXPECT_NEAR(seconds(3), 1.28, 1e-9);
  EXPECT_NEAR(seconds(7), 0.64, 1e-9);
  EXPECT_NEAR(seconds(15), 0.64, 1e-9);
  EXPECT_EQ(MostUsefulShards(EightWorkers()), 7U);
}

TEST(PlanShards, AFasterNetworkOfTheShardsNeedsFewerOfThem) {
  PlannedJob job = EightWorkers();
  job.shard_nic_bits = 25e9;
  EXPECT_NEAR(absl::ToDoubleSeconds(PlanOf(job).round), 8 * 0.8 * 8 / 25, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(RoundWith(job, 1, kNoMemory).round), 1.024, 1e-9);
  EXPECT_EQ(MostUsefulShards(job), 3U) << "8 x 10 / 25 are 3.2 processes";
  job.shard_nic_bits = 40e9;
  EXPECT_EQ(MostUsefulShards(job), 1U) << "exactly two";
  job.shard_nic_bits = 100e9;
  EXPECT_EQ(MostUsefulShards(job), 0U);
  EXPECT_EQ(PlanOf(job).even_model_bytes, kAnyModel);
}

TEST(PlanShards, OrdersAndReportsOfShardsTakeTwoMoreRoundTrips) {
  const PlannedJob job = Job(8, 800'000'000, 10e9, absl::Milliseconds(1));
  EXPECT_NEAR(absl::ToDoubleSeconds(RoundWith(job, 0, kNoMemory).round), 5.122, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(RoundWith(job, 7, kNoMemory).round), 0.644, 1e-9);
  EXPECT_EQ(PlanOf(job).round, RoundWith(job, 0, kNoMemory).round);
}

TEST(PlanShards, WhatIsTooSmallToBeSpreadStaysOnTheAggregator) {
  const PlannedJob job = Job(8, 3 << 20, 10e9, absl::Milliseconds(1));
  EXPECT_EQ(MostUsefulShards(job), 2U) << "parts of 1 MiB";
  EXPECT_EQ(RoundWith(job, 7, kNoMemory).round, RoundWith(job, 0, kNoMemory).round);
  EXPECT_EQ(MostUsefulShards(Job(8, 4096, 10e9, absl::Milliseconds(1))), 0U);
}

TEST(PlanShards, WhatTheyCost) {
  const RoundWithShards with = RoundWith(EightWorkers(), 3, 100);
  EXPECT_EQ(with.bytes_each, 1'600'000'000U);
  EXPECT_EQ(with.memory_in_all, 400U);
  // 3.2 GB in and out at 0.41 s a GB, in 1.28 s.
  EXPECT_NEAR(with.cores_each, 3.2 * 0.41 / 1.28, 1e-9);
}

TEST(PlanShards, TheFewestThatAreFastEnough) {
  const auto needed = [](absl::Duration within) {
    return PlanShards(EightWorkers(), kNoMemory, {0, within}).needed;
  };
  EXPECT_EQ(needed(absl::Seconds(6)), 0U);
  EXPECT_EQ(needed(absl::Milliseconds(2560)), 1U);
  EXPECT_EQ(needed(absl::Milliseconds(2559)), 2U);
  EXPECT_EQ(needed(absl::Milliseconds(640)), 7U);
  EXPECT_EQ(needed(absl::Milliseconds(639)), std::nullopt);
}

TEST(PlanShards, TheTableHasPowersOfTwoTheMostUsefulAndWhatIsAsked) {
  const auto numbers = [](const WantedShards& wanted) {
    std::vector<uint32_t> shown;
    for (const auto& round : PlanShards(EightWorkers(), kNoMemory, wanted).rounds) {
      shown.push_back(round.shards);
    }
    return shown;
  };
  EXPECT_EQ(numbers({}), (std::vector<uint32_t>{0, 1, 3, 7}));
  EXPECT_EQ(numbers({5, {}}), (std::vector<uint32_t>{0, 1, 3, 5, 7}));
  EXPECT_EQ(numbers({0, absl::Milliseconds(2559)}), (std::vector<uint32_t>{0, 1, 2, 3, 7}));
}

TEST(Plan, OneWorkerIsNoDivisionByZero) {
  const Plan plan = PlanOf(Job(1, 1, 1e6, absl::ZeroDuration()));
  EXPECT_EQ(plan.ring, absl::ZeroDuration());
  EXPECT_EQ(plan.even_model_bytes, 0U);
  EXPECT_FALSE(plan.even_nic_bits.has_value());
}

}  // namespace
}  // namespace basin::aggregator
