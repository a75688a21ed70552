// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls on rows: what workers say that they call, as which tensors bytes travel, and whose the rows
// are. The texts and the names of tensors are those of workers in Python.

#include "client/core/rows.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowsTest, AreTheElementsOfTheFirstDimension) {
  const TensorSpec table{"a", DType::kF32, {3, 64}};
  EXPECT_EQ(RowsOf(table), 3u);
  EXPECT_EQ(RowBytes(table), 256u);
  const TensorSpec number{"a", DType::kF64, {}};
  EXPECT_EQ(RowsOf(number), 1u);
  EXPECT_EQ(RowBytes(number), 8u);
  const TensorSpec none{"a", DType::kI32, {0, 5}};
  EXPECT_EQ(RowsOf(none), 0u);
  EXPECT_EQ(RowBytes(none), 20u);
}

TEST(RowsTest, ARowThatCannotBeCountedHasNoSize) {
  EXPECT_EQ(RowBytes({"a", DType::kF32, {0, uint64_t{1} << 40, uint64_t{1} << 40}}), std::nullopt);
  EXPECT_EQ(RowBytes({"a", DType::kUnspecified, {2}}), std::nullopt);
}

TEST(RowsTest, CallsAreDescribedWithTheNamesOfNumPy) {
  EXPECT_EQ(DescribeArray({"a", DType::kF32, {3, 64}}), "float32[3, 64]");
  EXPECT_EQ(DescribeRows({"a", DType::kF32, {3, 64}}), "float32[*, 64]");
  EXPECT_EQ(DescribeArray({"a", DType::kI64, {}}), "int64[]");
  EXPECT_EQ(DescribeRows({"a", DType::kI64, {}}), "int64[*]");
  std::string all;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kU8, DType::kF8E5M2}) {
    all += DescribeRows({"a", dtype, {1}}) + " ";
  }
  EXPECT_EQ(all,
            "float64[*] float32[*] float16[*] bfloat16[*] int64[*] int32[*] uint8[*] f8_e5m2[*] ");
  EXPECT_EQ(DescribeMembers({{5, 2}, MemberList::WithRanks({"a", "b"}, {1, 2})}),
            "3 workers (generation 5.2)");
}

TEST(RowsTest, BytesTravelInPartsWhoseLengthsArePowersOfTwo) {
  std::vector<std::string> names;
  uint64_t bytes = 0;
  for (const CallPart& part : PartsOfBytes({5, 0, 4, 7})) {
    names.push_back(std::to_string(part.array) + "+" + std::to_string(part.offset) + " " +
                    part.spec.name);
    EXPECT_EQ(part.spec.dtype, DType::kU8);
    EXPECT_EQ(part.spec.shape, std::vector<uint64_t>{part.bytes});
    bytes += part.bytes;
  }
  EXPECT_THAT(names, ElementsAre("0+0 u8/4/0", "0+4 u8/1/0", "2+0 u8/4/1", "3+0 u8/4/2",
                                 "3+4 u8/2/0", "3+6 u8/1/1"));
  EXPECT_EQ(bytes, 16u);
}

TEST(RowsTest, NumbersAddUpOrNot) {
  EXPECT_TRUE(AddUpTo({}, 0));
  EXPECT_TRUE(AddUpTo({1, 0, 2}, 3));
  EXPECT_FALSE(AddUpTo({1, 2}, 4));
  EXPECT_FALSE(AddUpTo({2, 2}, 3));
  EXPECT_FALSE(AddUpTo({4, -1}, 3));
}

TEST(RowsTest, TheFirstRanksKeepOneRowMore) {
  for (uint32_t world_size = 1; world_size < 6; ++world_size) {
    for (uint64_t rows = 0; rows < 20; ++rows) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < world_size; ++rank) {
        const RowRange range = RowsOfRank(rows, rank, world_size);
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.count, rows / world_size + (rank < rows % world_size ? 1 : 0));
        next += range.count;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(RowsTest, ACallIsSaidShortlyAndHashed) {
  BeginRound begin;
  ASSERT_TRUE(SetCall(begin, "").ok());
  EXPECT_EQ(begin.spec.layout, 0u);
  ASSERT_TRUE(SetCall(begin, "allgather of float32[*]").ok());
  EXPECT_EQ(begin.call, "allgather of float32[*]");
  EXPECT_EQ(begin.spec.layout, HashOfCall("allgather of float32[*]"));
  begin.spec.layout = 7;
  ASSERT_TRUE(SetCall(begin, std::string(kMostCallBytes, 'x')).ok());
  EXPECT_EQ(begin.spec.layout, 7u);
  const absl::Status status = SetCall(begin, std::string(kMostCallBytes + 1, 'y'));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("401 bytes"));
}

}  // namespace
}  // namespace basin::client
