// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A growable set of small integers, one bit each. Bits beyond size() are clear.
//
// Thread contract: plain value.

#ifndef BASIN_PROTOCOL_BITMAP_H_
#define BASIN_PROTOCOL_BITMAP_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "protocol/fields.h"

namespace basin {

class Bitmap {
 public:
  Bitmap() = default;
  explicit Bitmap(size_t size) { Resize(size); }

  size_t size() const { return size_; }
  size_t count() const { return count_; }
  bool all() const { return count_ == size_; }
  bool none() const { return count_ == 0; }

  bool Test(size_t bit) const { return bit < size_ && ((words_[bit >> 6] >> (bit & 63)) & 1) != 0; }

  // Sets or clears one bit. Returns whether that changed it. REQUIRES: bit < size().
  bool Set(size_t bit) {
    uint64_t& word = words_[bit >> 6];
    const uint64_t mask = uint64_t{1} << (bit & 63);
    if ((word & mask) != 0) return false;
    word |= mask;
    ++count_;
    return true;
  }
  bool Clear(size_t bit) {
    uint64_t& word = words_[bit >> 6];
    const uint64_t mask = uint64_t{1} << (bit & 63);
    if ((word & mask) == 0) return false;
    word &= ~mask;
    --count_;
    return true;
  }

  // Grows; new bits are clear. REQUIRES: size >= size().
  void Resize(size_t size) {
    words_.resize((size + 63) / 64);
    size_ = size;
  }

  void ClearAll() {
    words_.assign(words_.size(), 0);
    count_ = 0;
  }

  auto Fields() const { return std::tie(size_, words_); }

 private:
  size_t size_ = 0;
  size_t count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_BITMAP_H_
