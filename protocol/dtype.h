// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Element types and reduction operations: the words that the protocol, the cores and the kernels
// share. Values are those of basin/v1 on the wire and never change meaning.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_PROTOCOL_DTYPE_H_
#define BASIN_PROTOCOL_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace basin {

// The element type of a tensor. Names follow the field: E4M3FN and E5M2 are the OCP fp8 formats.
// The fp8 types are reserved: they have a size and a name, but no reduction accepts them yet.
enum class DType : uint8_t {
  kUnspecified = 0,
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI64 = 5,
  kI32 = 6,
  kU8 = 7,
  kF8E4M3FN = 8,
  kF8E5M2 = 9,
};

// How the contributions to one round are combined.
enum class ReduceOp : uint8_t {
  kUnspecified = 0,
  kSum = 1,
  kAverage = 2,
  kWeightedAverage = 3,
  kMin = 4,
  kMax = 5,
  kProduct = 6,
};

// Bytes of one element; 0 for kUnspecified.
constexpr size_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return 1;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

constexpr bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16 || dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2;
}

constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
    case DType::kF8E4M3FN:
      return "f8_e4m3fn";
    case DType::kF8E5M2:
      return "f8_e5m2";
    case DType::kUnspecified:
      break;
  }
  return "unspecified";
}

constexpr const char* ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAverage:
      return "AVERAGE";
    case ReduceOp::kWeightedAverage:
      return "WEIGHTED_AVERAGE";
    case ReduceOp::kMin:
      return "MIN";
    case ReduceOp::kMax:
      return "MAX";
    case ReduceOp::kProduct:
      return "PRODUCT";
    case ReduceOp::kUnspecified:
      break;
  }
  return "UNSPECIFIED";
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_DTYPE_H_
