// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/tensor.h"

#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "protocol/error.h"

namespace basin {
namespace {

TEST(TensorBytes, IsTheProductOfShapeAndElement) {
  EXPECT_EQ(TensorBytes({"t", DType::kF32, {3, 4}}), 48u);
  EXPECT_EQ(TensorBytes({"t", DType::kBF16, {3, 4}}), 24u);
  EXPECT_EQ(TensorBytes({"t", DType::kU8, {7}}), 7u);
  EXPECT_EQ(TensorBytes({"t", DType::kF64, {}}), 8u) << "a scalar";
}

TEST(TensorBytes, AZeroAnywhereMakesItEmpty) {
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(TensorBytes({"t", DType::kF32, {0}}), 0u);
  EXPECT_EQ(TensorBytes({"t", DType::kF32, {huge, huge, 0}}), 0u);
  EXPECT_EQ(TensorBytes({"t", DType::kF32, {0, huge}}), 0u);
}

TEST(TensorBytes, DoesNotOverflow) {
  const uint64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(TensorBytes({"t", DType::kU8, {most}}), most);
  EXPECT_EQ(TensorBytes({"t", DType::kU8, {most + 1}}), std::nullopt);
  EXPECT_EQ(TensorBytes({"t", DType::kF32, {most / 2}}), std::nullopt);
  EXPECT_EQ(TensorBytes({"t", DType::kU8, {uint64_t{1} << 32, uint64_t{1} << 31}}), std::nullopt);
  EXPECT_EQ(TensorBytes({"t", DType::kU8, {uint64_t{1} << 32, uint64_t{1} << 30}}),
            uint64_t{1} << 62);
}

TEST(TensorBytes, ADTypeWithoutSizeHasNone) {
  EXPECT_EQ(TensorBytes({"t", DType::kUnspecified, {1}}), std::nullopt);
  EXPECT_EQ(TensorBytes({"t", DType::kUnspecified, {0}}), std::nullopt);
}

TEST(Chunks, TheLastIsShort) {
  EXPECT_EQ(ChunkCount(0), 0u);
  EXPECT_EQ(ChunkCount(1), 1u);
  EXPECT_EQ(ChunkCount(kChunkBytes), 1u);
  EXPECT_EQ(ChunkCount(kChunkBytes + 1), 2u);
  EXPECT_EQ(ChunkSize(kChunkBytes + 1, 0), kChunkBytes);
  EXPECT_EQ(ChunkSize(kChunkBytes + 1, 1), 1u);
  EXPECT_EQ(ChunkSize(2 * kChunkBytes, 1), kChunkBytes);
  EXPECT_EQ(ChunkSize(5, 0), 5u);
}

TEST(DescribeSpec, IsWhatErrorsSay) {
  EXPECT_EQ(DescribeSpec({"t", DType::kF32, {3, 4}}), "f32[3,4]");
  EXPECT_EQ(DescribeSpec({"t", DType::kF8E4M3FN, {}}), "f8_e4m3fn[]");
}

TEST(DTypes, HaveSizesAndDistinctNames) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(DTypeName(dtype)).second) << i;
    EXPECT_EQ(ElementSize(dtype) == 0, dtype == DType::kUnspecified);
  }
  EXPECT_EQ(ElementSize(DType::kI64), 8u);
  EXPECT_EQ(ElementSize(DType::kI32), 4u);
  EXPECT_EQ(ElementSize(DType::kF16), 2u);
  EXPECT_EQ(ElementSize(DType::kF8E5M2), 1u);
  EXPECT_TRUE(IsFloatingPoint(DType::kBF16));
  EXPECT_FALSE(IsFloatingPoint(DType::kU8));
}

TEST(Ops, HaveDistinctNames) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(ReduceOp::kProduct); ++i) {
    EXPECT_TRUE(names.insert(ReduceOpName(static_cast<ReduceOp>(i))).second) << i;
  }
}

TEST(Errors, HaveDistinctNamesAndTwoAreFatal) {
  std::set<std::string> names;
  int fatal = 0;
  for (int i = 0; i <= static_cast<int>(ErrorCode::kNotFound); ++i) {
    EXPECT_TRUE(names.insert(ErrorCodeName(static_cast<ErrorCode>(i))).second) << i;
    fatal += IsFatal(static_cast<ErrorCode>(i));
  }
  EXPECT_EQ(names.count("UNKNOWN"), 0u);
  EXPECT_EQ(fatal, 2);
  EXPECT_STREQ(ErrorCodeName(static_cast<ErrorCode>(200)), "UNKNOWN");
}

}  // namespace
}  // namespace basin
