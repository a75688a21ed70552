// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the libraries that stand in for NCCL compute. Each addition rounds to the data type.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_ACCELERATOR_NODE_NCCL_ARITHMETIC_H_
#define BASIN_TESTS_ACCELERATOR_NODE_NCCL_ARITHMETIC_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "accelerator/node/nccl/abi.h"

namespace basin::accelerator::nccl {

inline size_t SizeOf(DataType type) {
  switch (type) {
    case kUint8:
      return 1;
    case kFloat16:
    case kBfloat16:
      return 2;
    case kInt32:
    case kFloat32:
      return 4;
    case kInt64:
    case kFloat64:
      return 8;
  }
  std::abort();
}

template <typename T>
T Combine(T a, T b, RedOp op) {
  if (op == kMin) return b < a ? b : a;
  if (op == kMax) return a < b ? b : a;
  return static_cast<T>(op == kSum ? a + b : a * b);
}

template <typename T>
void CombineEach(void* into, const void* from, size_t count, RedOp op) {
  auto* const a = static_cast<T*>(into);
  const auto* const b = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) a[i] = Combine(a[i], b[i], op);
}

inline void CombineAll(void* into, const void* from, size_t count, DataType type, RedOp op) {
  switch (type) {
    case kUint8:
      return CombineEach<uint8_t>(into, from, count, op);
    case kInt32:
      return CombineEach<uint32_t>(into, from, count, op);
    case kInt64:
      return CombineEach<uint64_t>(into, from, count, op);
    case kFloat32:
      return CombineEach<float>(into, from, count, op);
    case kFloat64:
      return CombineEach<double>(into, from, count, op);
    case kFloat16:
    case kBfloat16:
      std::abort();  // Nobody adds in 16 bits.
  }
}

}  // namespace basin::accelerator::nccl

#endif  // BASIN_TESTS_ACCELERATOR_NODE_NCCL_ARITHMETIC_H_
