// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What is wrong with the lives of a name, and what is not.

#include "tests/simulation/lives.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::simulation {
namespace {

using testing::HasSubstr;

constexpr uint64_t kKey = 7;

TEST(Lives, ANameHasAnotherLifeWhenItWasLetGo) {
  Lives lives(2);
  EXPECT_EQ(lives.Registered(1, false), 1u);
  EXPECT_EQ(lives.Registered(1, false), 1u) << "nobody has let it go";
  EXPECT_FALSE(lives.IsLater(1));
  lives.LetGo(1);
  EXPECT_EQ(lives.Registered(1, false), 2u);
  EXPECT_EQ(lives.ModelOf(2), 1u);
  EXPECT_TRUE(lives.IsLater(2));
  // A recovery of workers that have not heard of it.
  lives.Recovered(1);
  EXPECT_EQ(lives.Registered(1, false), 1u);
  EXPECT_EQ(lives.Registered(1, true), 3u) << "this aggregator has let it go itself";
  EXPECT_EQ(lives.Latest(0), 0u);
}

TEST(Lives, AWorkerLearnsThemInEachSession) {
  Lives lives(2);
  lives.LaidOut(5, 9, 1);
  EXPECT_EQ(lives.At(5, 9), 1u);
  EXPECT_EQ(lives.At(6, 9), std::nullopt);
}

TEST(Lives, AContributionIsCountedInOne) {
  Lives lives(1);
  EXPECT_EQ(lives.Counted(kKey, {0, 2, {0, 0}}, false), "");
  EXPECT_EQ(lives.Counted(kKey, {0, 2, {1, 0}}, false), "") << "the same, told once more";
  EXPECT_THAT(lives.Counted(kKey, {1, 3, {1, 0}}, false), HasSubstr("round 2 of one life"));
  EXPECT_EQ(lives.Counted(kKey, {1, 3, {1, 0}}, true), "") << "two histories";
  EXPECT_NE(lives.Counted(kKey, {1, 3, {0, 0}}, true), "") << "one aggregator has one history";
}

TEST(Lives, ACallHasOneOutcomeOfTheLifeThatCountsIt) {
  Lives lives(1);
  EXPECT_EQ(lives.Settled(kKey, 0, 1, false), "");
  EXPECT_THAT(lives.Settled(kKey, 0, 1, true), HasSubstr("second outcome"));
  EXPECT_EQ(lives.Counted(kKey + 1, {0, 2, {0, 0}}, false), "");
  EXPECT_THAT(lives.Settled(kKey + 1, 1, 1, false), HasSubstr("its trainer got the outcome"));
}

}  // namespace
}  // namespace basin::simulation
