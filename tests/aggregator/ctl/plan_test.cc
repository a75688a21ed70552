// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/plan.h"

#include <gtest/gtest.h>

#include "aggregator/core/memory.h"

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

TEST(Plan, OneWorkerIsNoDivisionByZero) {
  const Plan plan = PlanOf(Job(1, 1, 1e6, absl::ZeroDuration()));
  EXPECT_EQ(plan.ring, absl::ZeroDuration());
  EXPECT_EQ(plan.even_model_bytes, 0U);
  EXPECT_FALSE(plan.even_nic_bits.has_value());
}

}  // namespace
}  // namespace basin::aggregator
