// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/placements.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const PlacedShard kOne{1, "one", "one:29600"};
const PlacedShard kTwo{2, "two", "two:29600"};

TEST(Placements, WithoutOtherShardsThereIsNone) {
  Placements placements;
  EXPECT_FALSE(placements.Choose({}, 0));
  EXPECT_EQ(placements.current().number, 0u);
  EXPECT_THAT(placements.all(), IsEmpty());
}

TEST(Placements, EachListHasANumberAndShardZeroFirst) {
  Placements placements;
  EXPECT_TRUE(placements.Choose({kOne}, 7));
  EXPECT_FALSE(placements.Choose({kOne}, 7)) << "it is the present one";
  EXPECT_TRUE(placements.Choose({kOne, kTwo}, 7));
  EXPECT_EQ(placements.current().number, 2u);
  EXPECT_EQ(placements.current().least_bytes, 7u);
  EXPECT_THAT(placements.current().shards, ElementsAre(PlacedShard{}, kOne, kTwo));
  EXPECT_TRUE(placements.Choose({}, 7));
  EXPECT_EQ(placements.current().number, 0u);
  EXPECT_TRUE(placements.Choose({kTwo}, 7));
  EXPECT_EQ(placements.current().number, 3u) << "a number is never used again";
}

TEST(Placements, ALossIsNotedInAllThatHadTheShardAndMakesTheNextOneShorter) {
  Placements placements;
  placements.Choose({kOne}, 0);
  placements.Choose({kOne, kTwo}, 0);
  EXPECT_THAT(placements.Lose(1), ElementsAre(1, 2));
  EXPECT_THAT(placements.Lose(1), IsEmpty());
  EXPECT_THAT(placements.Get(1).lost, ElementsAre(1));
  EXPECT_FALSE(placements.Get(2).Has(1));
  EXPECT_TRUE(placements.Choose({kTwo}, 0));
  EXPECT_EQ(placements.current().number, 3u);
  EXPECT_THAT(placements.current().lost, IsEmpty());
}

TEST(Placements, ALossFromOneAloneLeavesTheOthers) {
  Placements placements;
  placements.Choose({kOne}, 0);
  placements.Choose({kOne, kTwo}, 0);
  placements.Lose(1, 1);
  EXPECT_FALSE(placements.Get(1).Has(1));
  EXPECT_TRUE(placements.Get(2).Has(1));
}

TEST(Placements, ShardZeroHoldsNothingUntilItIsTheLastOne) {
  Placements placements;
  EXPECT_FALSE(placements.Choose({}, 0, false)) << "there is no other one";
  EXPECT_TRUE(placements.Choose({kOne, kTwo}, 0, false));
  EXPECT_FALSE(placements.Choose({kOne, kTwo}, 0, false)) << "it is the present one";
  EXPECT_THAT(placements.current().shards, ElementsAre(PlacedShard{}, kOne, kTwo));
  EXPECT_THAT(placements.current().lost, ElementsAre(0));
  EXPECT_THAT(placements.Lose(2), ElementsAre(1));
  EXPECT_THAT(placements.current().lost, ElementsAre(0, 2));
  EXPECT_THAT(placements.Lose(1), ElementsAre(1));
  EXPECT_THAT(placements.current().lost, ElementsAre(2, 1)) << "not all of them are lost";
  EXPECT_TRUE(placements.Choose({kTwo}, 0, false));
  EXPECT_THAT(placements.current().lost, ElementsAre(0));
}

TEST(Placements, ThoseThatNoLaneUsesAreForgottenButNotThePresentOne) {
  Placements placements;
  for (const auto& shards : {std::vector<PlacedShard>{kOne}, {kTwo}, {kOne, kTwo}}) {
    placements.Choose(shards, 0);
  }
  placements.KeepOnly({1});
  EXPECT_EQ(placements.all().size(), 2u);
  EXPECT_EQ(placements.Get(1).number, 1u);
  EXPECT_EQ(placements.Get(3).number, 3u);
}

}  // namespace
}  // namespace basin::aggregator
