// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The states that a search has seen, by 64 bits of their fingerprints, in about 12 bytes each. The
// search may thus take a new state for a known one and miss the states beyond it; ChanceOfAMiss
// says how likely it is that this happened at all. A violation is always real, because the search
// finds it by taking steps.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_EXPLORE_SEEN_H_
#define BASIN_TESTS_EXPLORE_SEEN_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocol/fingerprint.h"

namespace basin::explore {

class Seen {
 public:
  // Returns whether it was new.
  bool Insert(const Fingerprint& print) {
    const uint64_t key = print.low() == 0 ? 1 : print.low();
    Part& part = parts_[key % kParts];
    if (part.size * 8 >= part.keys.size() * 7) Grow(part);
    if (!Put(part.keys, key)) return false;
    ++part.size;
    ++size_;
    return true;
  }

  uint64_t size() const { return size_; }

  // The expected number of pairs with equal keys, which is at least the chance that there is one.
  double ChanceOfAMiss() const {
    const double n = static_cast<double>(size_);
    return n * n / 2 / 18446744073709551616.0;
  }

 private:
  // Each part grows on its own, so that at most one of them is copied at a time.
  static constexpr uint64_t kParts = 1021;
  struct Part {
    std::vector<uint64_t> keys;  // Open addressing; 0 means free.
    uint64_t size = 0;
  };

  static bool Put(std::vector<uint64_t>& keys, uint64_t key) {
    // The part's index has used some of the key's bits; the multiplication mixes in the others.
    uint64_t at = ((key * 0x9e3779b97f4a7c15) >> 32) * keys.size() >> 32;
    while (keys[at] != 0) {
      if (keys[at] == key) return false;
      if (++at == keys.size()) at = 0;
    }
    keys[at] = key;
    return true;
  }

  static void Grow(Part& part) {
    std::vector<uint64_t> larger(part.keys.empty() ? 8 : part.keys.size() * 3 / 2);
    for (const uint64_t key : part.keys) {
      if (key != 0) Put(larger, key);
    }
    part.keys = std::move(larger);
  }

  std::array<Part, kParts> parts_;
  uint64_t size_ = 0;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SEEN_H_
