// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The results of a round that the aggregator holds: each chunk until all its receivers have
// acknowledged it.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_HELD_RESULTS_H_
#define BASIN_AGGREGATOR_CORE_HELD_RESULTS_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace basin::aggregator {

class HeldResults {
 public:
  // Bytes of results that are being reduced or are held.
  uint64_t bytes() const { return bytes_; }
  uint64_t Room(uint64_t window) const { return window > bytes_ ? window - bytes_ : 0; }
  bool Holds(uint32_t flat) const { return unacked_[flat] > 0; }
  // The time since which a whole chunk waits for room; InfiniteFuture if none does.
  absl::Time full_since() const { return full_since_; }
  bool full() const { return full_since_ != absl::InfiniteFuture(); }

  // The layout now has this many chunks.
  void Grow(uint32_t chunks) { unacked_.resize(chunks); }
  // A reduction starts whose results have this many bytes.
  void Start(uint64_t bytes) { bytes_ += bytes; }
  void Hold(uint32_t flat, uint32_t receivers) { unacked_[flat] = receivers; }
  // The same for another receiver, if it is still held.
  bool HoldForOneMore(uint32_t flat) {
    if (!Holds(flat)) return false;
    ++unacked_[flat];
    return true;
  }
  // A receiver has the chunk. Returns whether it was the last receiver; then the caller releases
  // the chunk.
  bool Take(uint32_t flat) { return unacked_[flat] > 0 && --unacked_[flat] == 0; }
  void Release(uint64_t bytes) { bytes_ -= bytes; }
  // The chunk is gone. Returns whether it was held; then the caller releases its bytes.
  bool Lose(uint32_t flat) { return std::exchange(unacked_[flat], 0) > 0; }
  // Nothing is held any more.
  void Clear() {
    std::fill(unacked_.begin(), unacked_.end(), 0);
    bytes_ = 0;
    full_since_ = absl::InfiniteFuture();
  }
  void NoteFull(absl::Time now) { full_since_ = std::min(full_since_, now); }
  void NoteRoom() { full_since_ = absl::InfiniteFuture(); }

  auto Fields() const { return std::tie(unacked_, bytes_, full_since_); }

 private:
  std::vector<uint32_t> unacked_;  // By flat chunk: receivers that do not have it yet.
  uint64_t bytes_ = 0;
  absl::Time full_since_ = absl::InfiniteFuture();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_HELD_RESULTS_H_
