// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/rows.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client {
namespace {

const char* NumPyName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
    default:
      return DTypeName(dtype);
  }
}

// "float32[" and the sizes from the one at `first` on, after `before`.
std::string Described(const TensorSpec& array, const std::string& before, size_t first) {
  std::string text = absl::StrCat(NumPyName(array.dtype), "[", before);
  for (size_t i = first; i < array.shape.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", array.shape[i]);
  }
  return absl::StrCat(text, "]");
}

}  // namespace

uint64_t RowsOf(const TensorSpec& array) { return array.shape.empty() ? 1 : array.shape.front(); }

std::optional<uint64_t> RowBytes(const TensorSpec& array) {
  TensorSpec row{array.name, array.dtype, array.shape};
  if (!row.shape.empty()) row.shape.erase(row.shape.begin());
  return TensorBytes(row);
}

std::string DescribeArray(const TensorSpec& array) { return Described(array, "", 0); }

std::string DescribeRows(const TensorSpec& array) { return Described(array, "*", 1); }

std::string DescribeMembers(const Membership& membership) {
  return absl::StrCat(membership.members.trainers(), " workers (generation ",
                      membership.generation.term, ".", membership.generation.counter, ")");
}

std::vector<CallPart> PartsOfBytes(const std::vector<uint64_t>& sizes) {
  std::vector<CallPart> parts;
  std::map<uint64_t, size_t> used;  // How often each length has come before.
  for (size_t array = 0; array < sizes.size(); ++array) {
    uint64_t offset = 0;
    for (uint64_t length = uint64_t{1} << 63; length > 0; length >>= 1) {
      if ((sizes[array] & length) == 0) continue;
      std::string name = absl::StrCat("u8/", length, "/", used[length]++);
      parts.push_back({array, offset, length, TensorSpec{std::move(name), DType::kU8, {length}}});
      offset += length;
    }
  }
  return parts;
}

bool AddUpTo(const std::vector<int64_t>& numbers, uint64_t sum) {
  for (const int64_t number : numbers) {
    if (number < 0 || static_cast<uint64_t>(number) > sum) return false;
    sum -= static_cast<uint64_t>(number);
  }
  return sum == 0;
}

RowRange RowsOfRank(uint64_t rows, uint32_t rank, uint32_t world_size) {
  const uint64_t least = rows / world_size;
  const uint64_t more = rows % world_size;
  return {rank * least + std::min<uint64_t>(rank, more), least + (rank < more ? 1 : 0)};
}

}  // namespace basin::client
