// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/room.h"

#include "gtest/gtest.h"

namespace basin {
namespace {

TEST(RoomTest, ThereIsRoomBelowBothLimits) {
  const ConnectionRoom room = RoomFor("a", {{"a"}, {"b"}}, 3, 2);
  EXPECT_TRUE(room.comes);
  EXPECT_FALSE(room.in_place);
}

TEST(RoomTest, AnAddressWithTooManyGivesUpItsOldest) {
  const ConnectionRoom room = RoomFor("a", {{"b"}, {"a"}, {"b"}, {"a"}, {"b"}}, 9, 2);
  EXPECT_TRUE(room.comes);
  EXPECT_EQ(room.in_place, 1u);
}

TEST(RoomTest, Fault_S6_TheAddressThatHasMostPaysAndNotAProbeFromElsewhere) {
  const ConnectionRoom room = RoomFor("b", {{"probe"}, {"a"}, {"a"}, {"a"}, {"b"}}, 5, 4);
  EXPECT_TRUE(room.comes);
  EXPECT_EQ(room.in_place, 1u);
}

TEST(RoomTest, WhatWaitsForItsAnswerStays) {
  EXPECT_EQ(RoomFor("a", {{"a", false}, {"a"}}, 2, 2).in_place, 1u);
  EXPECT_EQ(RoomFor("b", {{"a", false}, {"a", false}, {"c"}}, 3, 3).in_place, 2u);
  EXPECT_FALSE(RoomFor("a", {{"a", false}, {"a", false}, {"b"}}, 9, 2).comes);
  EXPECT_FALSE(RoomFor("b", {{"a", false}, {"a", false}}, 2, 2).comes);
}

}  // namespace
}  // namespace basin
