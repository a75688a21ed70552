// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The shuffled order of an epoch.

#include "client/core/shuffle.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::client {
namespace {

using testing::Each;
using testing::Ne;

std::vector<uint64_t> Order(const SampleEpoch& epoch) {
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < epoch.samples; ++i) order.push_back(Shuffled(epoch, i));
  return order;
}

TEST(Shuffle, EachSampleComesOnce) {
  for (const uint64_t samples : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 1797, 65536, 65537}) {
    std::vector<int> times(samples, 0);
    for (const uint64_t index : Order({3, samples, 11})) ++times.at(index);
    EXPECT_THAT(times, Each(1)) << samples;
  }
}

TEST(Shuffle, SeedAndEpochGiveOtherOrders) {
  const std::vector<uint64_t> order = Order({3, 1000, 11});
  EXPECT_THAT(Order({4, 1000, 11}), Ne(order));
  EXPECT_THAT(Order({3, 1000, 12}), Ne(order));
}

// The first half of the order is a random half: 250 of the lower 500 indices are expected in it,
// with a standard deviation of 8.
TEST(Shuffle, NeighboursAreSpread) {
  for (uint64_t number = 0; number < 20; ++number) {
    int low = 0;
    for (uint64_t i = 0; i < 500; ++i) low += Shuffled({number, 1000, 11}, i) < 500 ? 1 : 0;
    EXPECT_NEAR(low, 250, 40) << number;
  }
}

TEST(Shuffle, TheLargestEpochIsPermutedAsWell) {
  const uint64_t most = uint64_t{1} << 48;
  EXPECT_LT(Shuffled({0, most, 1}, most - 1), most);
  EXPECT_LT(Shuffled({0, most - 1, 1}, 0), most - 1);
}

}  // namespace
}  // namespace basin::client
