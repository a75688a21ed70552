// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/core/settings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::accelerator::node {
namespace {

using ::testing::HasSubstr;

TEST(SettingsTest, Item3_AutoIsAGroupWhereTheNodeHasSeveralRanks) {
  const auto grouped = DecideLocalGroup({"auto", "2", "8"});
  ASSERT_TRUE(grouped.ok());
  EXPECT_TRUE(grouped->grouped);
  EXPECT_FALSE(grouped->required);
  EXPECT_EQ(grouped->mode, GroupMode::kDeterministic);
  EXPECT_EQ(grouped->rank, 2);
  EXPECT_EQ(grouped->size, 8);
  EXPECT_FALSE(DecideLocalGroup({"auto", "0", "1"})->grouped);
  EXPECT_FALSE(DecideLocalGroup({"auto", std::nullopt, "8"})->grouped);
  EXPECT_FALSE(DecideLocalGroup({"off", "0", "8"})->grouped);
  EXPECT_FALSE(DecideLocalGroup({std::nullopt, "0", "8"})->grouped);
}

TEST(SettingsTest, Item3_AGroupThatWasAskedForIsRequired) {
  const auto fast = DecideLocalGroup({"fast", "1", "2"});
  ASSERT_TRUE(fast.ok());
  EXPECT_TRUE(fast->grouped && fast->required);
  EXPECT_EQ(fast->mode, GroupMode::kFast);
  const absl::Status status = DecideLocalGroup({"deterministic", "1", std::nullopt}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("LOCAL_RANK and LOCAL_WORLD_SIZE are not both set"));
}

TEST(SettingsTest, Item3_ValuesThatAreNotAllowedNameTheVariable) {
  const auto message = [](const LocalEnvironment& environment) {
    return std::string(DecideLocalGroup(environment).status().message());
  };
  EXPECT_EQ(message({"on", "0", "2"}),
            "BASIN_LOCAL_GROUP is \"on\"; set it to off, auto, deterministic or fast");
  EXPECT_EQ(message({"auto", "2", "2"}), "LOCAL_RANK is \"2\"; set it to a number from 0 to 1");
  EXPECT_EQ(message({"auto", "-1", "2"}), "LOCAL_RANK is \"-1\"; set it to a number from 0 to 1");
  EXPECT_EQ(message({"auto", "0", "65"}),
            "LOCAL_WORLD_SIZE is \"65\"; set it to a number from 1 to 64");
  EXPECT_EQ(message({"auto", "0", "x"}),
            "LOCAL_WORLD_SIZE is \"x\"; set it to a number from 1 to 64");
}

}  // namespace
}  // namespace basin::accelerator::node
