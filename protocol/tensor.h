// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Tensors, the layout of a lane, and how a tensor is cut into chunks.
//
// A layout only grows, and an entry never changes, so an index that was once seen stays valid. The
// layout's version is its number of entries.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_PROTOCOL_TENSOR_H_
#define BASIN_PROTOCOL_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "protocol/dtype.h"
#include "protocol/fields.h"
#include "protocol/ids.h"

namespace basin {

// The unit of reduction and retry. Every tensor is cut into slices of this size; the last is short.
inline constexpr uint64_t kChunkBytes = 256 * 1024;

// A registered tensor: matched by name, never by position. Bytes are in logical C order.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kUnspecified;
  std::vector<uint64_t> shape;
  auto Fields() const { return std::tie(name, dtype, shape); }
};

// Chunks [first, first + count) of one tensor.
struct ChunkRange {
  TensorIndex tensor = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  auto Fields() const { return std::tie(tensor, first, count); }
};

// The chunks of a frame: ranges of different tensors, in the order of the layout. A frame of a
// large tensor has one.
using ChunkRanges = absl::InlinedVector<ChunkRange, 1>;

inline uint32_t CountChunks(const ChunkRanges& ranges) {
  uint32_t count = 0;
  for (const ChunkRange& range : ranges) count += range.count;
  return count;
}

// Bytes of the tensor, or nullopt when the product overflows 2^63 or the dtype has no size.
std::optional<uint64_t> TensorBytes(const TensorSpec& spec);

// "f32[3,4]": dtype and shape in error texts.
std::string DescribeSpec(const TensorSpec& spec);

// Chunks of a tensor of `bytes` bytes. An empty tensor has none.
constexpr uint32_t ChunkCount(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kChunkBytes - 1) / kChunkBytes);
}

// Bytes of chunk `chunk` of a tensor of `bytes` bytes. REQUIRES: chunk < ChunkCount(bytes).
constexpr uint64_t ChunkSize(uint64_t bytes, uint32_t chunk) {
  const uint64_t begin = uint64_t{chunk} * kChunkBytes;
  return bytes - begin < kChunkBytes ? bytes - begin : kChunkBytes;
}

// Bytes of the chunks of `range` that a tensor of `bytes` bytes has.
constexpr uint64_t RangeBytes(uint64_t bytes, const ChunkRange& range) {
  const uint64_t begin = uint64_t{range.first} * kChunkBytes;
  const uint64_t end = (uint64_t{range.first} + range.count) * kChunkBytes;
  return (end < bytes ? end : bytes) - (begin < bytes ? begin : bytes);
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_TENSOR_H_
