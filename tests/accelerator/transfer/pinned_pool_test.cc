// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Pinned memory: used again, and never more than was allowed.

#include "accelerator/transfer/pinned_pool.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::accelerator {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class PinnedPoolTest : public testing::Test {
 protected:
  std::shared_ptr<PinnedPool> PoolOf(uint64_t bytes) {
    return std::make_shared<PinnedPool>(device_, std::make_shared<PinnedBudget>(bytes));
  }

  const std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  const std::shared_ptr<Device> device_ = MakeEmulatedDevice(faults_);
};

TEST_F(PinnedPoolTest, ABlockIsUsedAgain) {
  const auto pool = PoolOf(8 * kMiB);
  char* first = nullptr;
  {
    const auto block = pool->Take(kMiB);
    first = block.get();
    ASSERT_NE(first, nullptr);
    first[kMiB - 1] = 1;
  }
  // Also for a size that differs a little.
  EXPECT_EQ(pool->Take(kMiB - 1000).get(), first);
  EXPECT_EQ(faults_->calls, 1) << "one allocation";
}

TEST_F(PinnedPoolTest, HandsOutNoMoreThanTheBudgetOfAllPools) {
  const auto budget = std::make_shared<PinnedBudget>(3 * kMiB);
  const auto pool = std::make_shared<PinnedPool>(device_, budget);
  const auto other = std::make_shared<PinnedPool>(device_, budget);
  std::vector<std::shared_ptr<char>> blocks = {pool->Take(kMiB), other->Take(kMiB),
                                               pool->Take(kMiB)};
  for (const auto& block : blocks) EXPECT_NE(block, nullptr);
  EXPECT_EQ(pool->Take(1), nullptr);
  blocks.pop_back();
  EXPECT_EQ(other->Take(1), nullptr) << "an idle block belongs to its pool";
  EXPECT_NE(pool->Take(kMiB), nullptr);
}

TEST_F(PinnedPoolTest, SmallIdleBlocksMakeRoomForALargeOne) {
  const auto pool = PoolOf(4 * kMiB);
  {
    std::vector<std::shared_ptr<char>> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool->Take(kMiB));
  }
  EXPECT_NE(pool->Take(4 * kMiB), nullptr);
}

TEST_F(PinnedPoolTest, ALargeBlockServesASmallRequestWhenNothingElseIsLeft) {
  const auto pool = PoolOf(4 * kMiB);
  pool->Take(4 * kMiB);
  EXPECT_NE(pool->Take(1), nullptr);
}

TEST_F(PinnedPoolTest, ABlockMayOutliveItsPool) {
  auto pool = PoolOf(kMiB);
  auto block = pool->Take(kMiB);
  pool.reset();
  block.get()[0] = 1;
  block.reset();
  EXPECT_TRUE(faults_->allocated.empty());
}

TEST_F(PinnedPoolTest, ASystemWithoutMemoryGivesNoBlock) {
  faults_->pinned_bytes = 0;
  const auto pool = PoolOf(kMiB);
  EXPECT_EQ(pool->Take(1), nullptr);
  faults_->pinned_bytes = 2 * kMiB;
  EXPECT_NE(pool->Take(1), nullptr) << "the budget was given back";
}

}  // namespace
}  // namespace basin::accelerator
