// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/layout.h"

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

constexpr uint32_t kLimit = 10;

TEST(LayoutTest, ExtendsAndRepeats) {
  Layout layout;
  ASSERT_TRUE(Extend(layout, 0, Model(), kLimit));
  EXPECT_EQ(layout.version(), 3u);
  EXPECT_EQ(layout.chunks(), 4u);
  EXPECT_EQ(layout.Find("b"), TensorIndex{1});
  EXPECT_EQ(layout.Find("z"), std::nullopt);

  const Layout before = layout;
  EXPECT_TRUE(Extend(layout, 0, Model(), kLimit));
  EXPECT_TRUE(Extend(layout, 1, {Model()[1]}, kLimit));
  EXPECT_EQ(layout, before);
  EXPECT_TRUE(Extend(layout, 2, {Model()[2], F32("d", 1)}, kLimit));
  EXPECT_EQ(layout.version(), 4u);
}

TEST(LayoutTest, RefusesWhatDoesNotFitAndStaysAsItWas) {
  Layout layout;
  ASSERT_TRUE(Extend(layout, 0, Model(), kLimit));
  const Layout before = layout;
  const struct {
    const char* what;
    uint32_t first;
    std::vector<TensorSpec> tensors;
  } cases[] = {
      {"a gap", 4, {F32("d", 1)}},
      {"another tensor at an index", 1, {F32("bb", 100)}},
      {"another shape at an index", 1, {F32("b", 101)}},
      {"a name twice", 3, {F32("d", 1), F32("a", 1)}},
      {"no size", 3, {F32("d", 1), {"e", DType::kUnspecified, {1}}}},
      {"a size beyond the limit", 3, {F32("d", kMaxTensorBytes)}},
      {"too many", 3, std::vector<TensorSpec>(kLimit, F32("d", 1))},
      {"too many at once", 0, std::vector<TensorSpec>(kLimit + 1, F32("d", 1))},
  };
  for (const auto& test : cases) {
    EXPECT_FALSE(Extend(layout, test.first, test.tensors, kLimit)) << test.what;
    EXPECT_EQ(layout, before) << test.what;
    EXPECT_EQ(layout.chunks(), 4u) << test.what;
    EXPECT_EQ(layout.Find("d"), std::nullopt) << test.what;
  }
}

TEST(LayoutTest, KnowsWhichRangesExist) {
  Layout layout;
  ASSERT_TRUE(Extend(layout, 0, Model(), kLimit));
  for (const ChunkRange& range : {ChunkRange{0, 0, 3}, {0, 2, 1}, {1, 0, 1}}) {
    EXPECT_TRUE(layout.Contains(range));
  }
  for (const ChunkRange& range : {ChunkRange{0, 0, 0},
                                  {0, 0, 4},
                                  {0, 3, 1},
                                  {1, 0, 2},
                                  {2, 0, 1},
                                  {3, 0, 1},
                                  {0, 1, UINT32_MAX},
                                  {0, UINT32_MAX, 2}}) {
    EXPECT_FALSE(layout.Contains(range)) << range.tensor << " " << range.first;
  }
}

TEST(LayoutTest, CutsIntervalsAtTensorsAndFrames) {
  Layout layout;  // The chunks are a 0 1 2, b 3, none of c, d 4 5.
  ASSERT_TRUE(Extend(layout, 0, Model(), kLimit));
  ASSERT_TRUE(Extend(layout, 3, {F32("d", kChunkBytes / 2)}, kLimit));
  EXPECT_EQ(layout.Ranges({0, 6}), (std::vector<ChunkRange>{{0, 0, 3}, {1, 0, 1}, {3, 0, 2}}));
  EXPECT_EQ(layout.Ranges({1, 5}, 1),
            (std::vector<ChunkRange>{{0, 1, 1}, {0, 2, 1}, {1, 0, 1}, {3, 0, 1}}));
  EXPECT_EQ(layout.Ranges({4, 5}), (std::vector<ChunkRange>{{3, 0, 1}}));
  EXPECT_TRUE(layout.Ranges({2, 2}).empty());
}

}  // namespace
}  // namespace basin::client
