// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/bitmap.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace basin {
namespace {

TEST(Bitmap, StartsEmpty) {
  const Bitmap none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_TRUE(none.all());
  EXPECT_TRUE(none.none());
  EXPECT_FALSE(none.Test(0));
  const Bitmap some(70);
  EXPECT_EQ(some.size(), 70u);
  EXPECT_FALSE(some.all());
}

TEST(Bitmap, SetAndClearSayWhetherTheyChangedAnything) {
  Bitmap bits(130);
  for (const size_t bit : {0u, 63u, 64u, 129u}) {
    EXPECT_TRUE(bits.Set(bit));
    EXPECT_FALSE(bits.Set(bit));
    EXPECT_TRUE(bits.Test(bit));
  }
  EXPECT_EQ(bits.count(), 4u);
  EXPECT_TRUE(bits.Clear(64));
  EXPECT_FALSE(bits.Clear(64));
  EXPECT_EQ(bits.count(), 3u);
  EXPECT_FALSE(bits.Test(130));
  EXPECT_FALSE(bits.Test(1000000));
}

TEST(Bitmap, GrowsWithClearBits) {
  Bitmap bits(3);
  for (size_t i = 0; i < 3; ++i) bits.Set(i);
  EXPECT_TRUE(bits.all());
  bits.Resize(200);
  EXPECT_FALSE(bits.all());
  EXPECT_EQ(bits.count(), 3u);
  EXPECT_FALSE(bits.Test(3));
  bits.ClearAll();
  EXPECT_TRUE(bits.none());
  EXPECT_EQ(bits.size(), 200u);
}

TEST(Bitmap, EqualsByBitsAndSize) {
  Bitmap a(10);
  Bitmap b(10);
  EXPECT_TRUE(a == b);
  a.Set(4);
  EXPECT_TRUE(a != b);
  b.Set(4);
  EXPECT_TRUE(a == b);
  EXPECT_TRUE(Bitmap(10) != Bitmap(11));
}

TEST(Bitmap, AgreesWithASet) {
  std::mt19937 random(1);
  Bitmap bits(300);
  std::set<size_t> reference;
  for (int i = 0; i < 5000; ++i) {
    const size_t bit = random() % 300;
    if (random() % 2 == 0) {
      EXPECT_EQ(bits.Set(bit), reference.insert(bit).second);
    } else {
      EXPECT_EQ(bits.Clear(bit), reference.erase(bit) == 1);
    }
    ASSERT_EQ(bits.count(), reference.size());
  }
  for (size_t bit = 0; bit < 300; ++bit) EXPECT_EQ(bits.Test(bit), reference.count(bit) == 1);
}

}  // namespace
}  // namespace basin
