// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The workers of a job: who counts for min_workers, when a worker counts as lost, and how workers
// are numbered. The test of their transition table is in tables_test.cc.

#include "aggregator/core/workers.h"

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

const absl::Time kLastMessage = absl::FromUnixSeconds(1000);

Slot AddMember(Workers& workers, const WorkerId& id) {
  const Slot slot = workers.Add(id);
  workers.Apply(slot, WorkerInput::kRecover);
  return slot;
}

TEST(Workers, OneThatFinishedCountsOnAfterItWasLost) {
  Workers workers;
  const Slot a = AddMember(workers, "a");
  AddMember(workers, "b");
  EXPECT_EQ(workers.Present(), 2u);
  workers.Apply(a, WorkerInput::kFinish);
  EXPECT_EQ(workers.Present(), 2u);
  EXPECT_EQ(workers.Finished(), 1u);
  workers.Apply(a, WorkerInput::kLose);
  EXPECT_EQ(workers.Present(), 1u);
  workers.SetStillCounts(a, true);
  workers.SetStillCounts(a, true);
  EXPECT_EQ(workers.Present(), 2u) << "once";
  EXPECT_EQ(workers.Finished(), 1u);
  workers.Clear();
  EXPECT_EQ(workers.Present(), 0u);
}

TEST(Workers, NoMoreStillCountThanMinWorkersLacks) {
  Workers workers;
  AddMember(workers, "a");
  for (const char* id : {"b", "c", "d"}) {
    const Slot slot = AddMember(workers, id);
    workers.Apply(slot, WorkerInput::kLose);
    workers.SetStillCounts(slot, true);
  }
  workers.LimitStillCounting(3);
  EXPECT_EQ(workers.Present(), 3u);
  AddMember(workers, "e");
  workers.LimitStillCounting(3);
  EXPECT_EQ(workers.Present(), 3u) << "e has replaced one of them";
  workers.LimitStillCounting(1);
  EXPECT_EQ(workers.Present(), 2u);
}

TEST(Workers, ALeaseEndsAfterTheLastWordOrWhenTheSessionThatEndedSaysSo) {
  const absl::Duration lease = absl::Seconds(10);
  Workers workers;
  EXPECT_EQ(workers.LeaseDue(lease), absl::InfiniteFuture());
  const Slot a = AddMember(workers, "a");
  workers[a].last_message = kLastMessage;
  workers[a].lost_at = kLastMessage + absl::Seconds(1);
  EXPECT_EQ(workers.LeaseDue(lease), kLastMessage + absl::Seconds(1)) << "it has no session";
  workers[a].session = 7;
  EXPECT_EQ(workers.LeaseDue(lease), kLastMessage + lease);
  workers.Apply(a, WorkerInput::kLose);
  EXPECT_EQ(workers.LeaseDue(lease), absl::InfiniteFuture());
}

TEST(Workers, ANumberIsNeverGivenTwice) {
  Workers workers;
  const Incarnation first = workers.NextIncarnation(7);
  const uint64_t order = workers.NextReadyOrder();
  workers.Clear();
  EXPECT_NE(workers.NextIncarnation(7), first);
  EXPECT_GT(workers.NextReadyOrder(), order);
}

}  // namespace
}  // namespace basin::aggregator
