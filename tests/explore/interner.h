// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Keeps each value once and names it by a number, in order of first sight. Values with equal
// fingerprints count as the same.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_EXPLORE_INTERNER_H_
#define BASIN_TESTS_EXPLORE_INTERNER_H_

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "protocol/fingerprint.h"

namespace basin::explore {

template <typename T>
class Interner {
 public:
  uint32_t Add(T value) {
    const auto [it, added] =
        ids_.try_emplace(Fingerprint::Of(value), static_cast<uint32_t>(values_.size()));
    if (added) values_.push_back(std::move(value));
    return it->second;
  }
  // The reference stays valid.
  const T& operator[](uint32_t id) const { return values_[id]; }
  uint32_t size() const { return static_cast<uint32_t>(values_.size()); }

 private:
  absl::flat_hash_map<Fingerprint, uint32_t, FingerprintHash> ids_;
  std::deque<T> values_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_INTERNER_H_
