// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Random lives of a node: ranks that die at any moment and come again, communicators that fail,
// trainers that give up, messages in any order between different ranks. When the faults end, the
// ranks that are left must be one group, which reduces every round.
//
// A failing seed is run alone with BASIN_GROUP_SEED=N; BASIN_GROUP_SEEDS=N runs as many as that.

#include <cstdlib>
#include <iostream>
#include <random>

#include "gtest/gtest.h"
#include "tests/accelerator/node/core/node.h"

namespace basin::accelerator::node {
namespace {

void Live(uint64_t seed) {
  SCOPED_TRACE(
      absl::StrCat("replay with BASIN_GROUP_SEED=", seed, " --gtest_filter=SimulatedTest.*"));
  std::mt19937_64 random(seed);
  const auto pick = [&random](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const int size = 2 + static_cast<int>(pick(4));
  Node node(size);
  const auto any_rank = [&] { return static_cast<LocalRank>(pick(static_cast<uint32_t>(size))); };
  // In some lives communicators fail as well, so that a group may give up.
  const bool failures = pick(3) == 0;
  const uint32_t calm = 4 + pick(pick(2) == 0 ? 8 : 60);
  for (int step = 0; step < 400; ++step) {
    const LocalRank rank = any_rank();
    const uint32_t fault = pick(calm);
    if (!node.Alive(rank)) {
      if (pick(5) == 0) node.Start(rank);
    } else if (fault == 0 && pick(3) == 0) {
      node.Kill(rank);
    } else if (fault == 0 && pick(3) == 0) {
      node.dies_after = pick(6);
    } else if (fault == 1 && pick(2) == 0) {
      node.GiveUp(rank);
    } else if (fault == 1 && failures) {
      ++(pick(2) == 0 ? node.failing_forms : node.failing_ids);
    } else if (fault == 2 && failures) {
      node.FailCommunicator(rank);
    } else if (fault == 3 && pick(10) == 0) {
      node.Give(rank, LeaveGroup{});
    } else if (pick(4) == 0) {
      node.BeginRound(rank);
    }
    if (pick(30) == 0) {
      // Messages that take longer than any deadline are failures too.
      if (!failures) node.Quiesce(pick, pick(2) == 0);
      node.NextDeadline();
    }
    for (uint32_t i = pick(12); i > 0; --i) node.Something(pick, true);
    if (testing::Test::HasFailure()) return;
  }
  // Faults end.
  node.failing_forms = node.failing_ids = 0;
  node.dies_after.reset();
  bool group = false;
  for (LocalRank rank = 0; rank < size; ++rank) {
    if (node.Alive(rank) && node.Over(rank)) node.Kill(rank);
    group = group || (node.Alive(rank) && !node.At(rank).core->fresh());
  }
  // A group goes on without the others; a new one needs all ranks.
  for (LocalRank rank = 0; rank < size; ++rank) {
    if (!node.Alive(rank) && !group) node.Start(rank);
  }
  node.Quiesce(pick, true);
  for (int i = 0; i < 10; ++i) {
    for (LocalRank rank = 0; rank < size; ++rank) {
      if (node.Alive(rank)) node.BeginRound(rank);
    }
    node.Quiesce(pick, true);
    if (i < 5) node.NextDeadline();
    node.Quiesce(pick, true);
  }
  std::string states;
  for (LocalRank rank = 0; rank < size; ++rank) {
    if (node.Alive(rank)) absl::StrAppend(&states, "\nrank ", rank, ": ", node.Describe(rank));
  }
  SCOPED_TRACE(states);
  std::optional<LocalRank> leader;
  int alive = 0;
  // One that came too late was refused. With failures some may have given up as well, which is a
  // typed error.
  const auto is_out = [&](LocalRank rank) {
    if (!node.Alive(rank)) return true;
    const std::optional<absl::Status>& failed = node.At(rank).failed;
    return failed && (failures || absl::IsFailedPrecondition(*failed));
  };
  for (LocalRank rank = 0; rank < size; ++rank) {
    if (is_out(rank)) continue;
    if (!leader) leader = rank;
    ++alive;
  }
  for (LocalRank rank = 0; rank < size; ++rank) {
    if (is_out(rank)) continue;
    const Node::Process& process = node.At(rank);
    ASSERT_EQ(process.core->phase(), GroupPhase::kReady)
        << "rank " << rank << (process.failed ? process.failed->ToString() : "");
    EXPECT_EQ(process.core->epoch(), node.At(*leader).core->epoch());
    EXPECT_EQ(process.ready->leader, *leader);
    EXPECT_EQ(static_cast<int>(process.ready->members.size()), alive) << "rank " << rank;
    EXPECT_EQ(process.core->ended(), node.At(*leader).core->ended());
    EXPECT_FALSE(process.core->open());
    EXPECT_TRUE(process.over.rbegin()->second) << "the last round was not reduced";
  }
}

TEST(SimulatedTest, Item3_Fault_A13_RanksThatAreLeftAreOneGroupAndNoGradientCountsTwice) {
  if (const char* const seed = std::getenv("BASIN_GROUP_SEED")) {
    Live(std::strtoull(seed, nullptr, 10));
    return;
  }
  const char* const wanted = std::getenv("BASIN_GROUP_SEEDS");
  const uint64_t seeds = wanted == nullptr ? 1000 : std::strtoull(wanted, nullptr, 10);
  for (uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) Live(seed);
  const char* const from = std::getenv("FRESH_SEEDS_FROM");
  const uint64_t first =
      from == nullptr ? std::random_device()() : std::strtoull(from, nullptr, 10);
  std::cout << "fresh seeds from " << first << "\n";
  for (uint64_t i = 0; i < seeds && !testing::Test::HasFailure(); ++i) Live(first + i);
}

}  // namespace
}  // namespace basin::accelerator::node
