// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory for the results of one lane that workers on this machine map, so that a result is written
// once for all of them. Each chunk has a fixed place in either of two halves; the rounds of a lane
// take turns. A half is used again when nothing in this process holds its former content. Workers
// may still read it: they copy what they keep before they begin a round, and find the half's
// version changed if they did not.
//
// The results may also be left in memory of the device that reduces, in mirrors. A half gets one
// that no worker reads any more, and is without one if there is none; the arena has at most
// kMostMirrors, so that workers which are late do not take the device's memory.
//
// Ownership: a half keeps its memory, and a payload in it the half. Thread contract: the engine's
// loop, but for Create. Failure: without a free half, results are in memory of the process, and
// travel over the network.

#ifndef BASIN_AGGREGATOR_ENGINE_RESULT_ARENA_H_
#define BASIN_AGGREGATOR_ENGINE_RESULT_ARENA_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/engine/buffer_pool.h"
#include "protocol/tensor.h"
#include "runtime/shared_memory/mirror.h"
#include "runtime/shared_memory/segment.h"

namespace basin::aggregator {

// One for each half, and one for a worker that is late.
inline constexpr size_t kMostMirrors = 3;

// Where the tensors of a lane are.
struct ResultPlaces {
  std::vector<uint64_t> begins;  // By tensor.
  uint64_t end = 0;
};
ResultPlaces PlacesOf(const std::vector<TensorSpec>& tensors);

// A half, for the results of one attempt.
class ResultHalf : public Buffer {
 public:
  ResultHalf(std::shared_ptr<const ResultPlaces> places, std::shared_ptr<Segment> segment,
             uint64_t version, std::shared_ptr<Mirror> mirror)
      : places_(std::move(places)),
        segment_(std::move(segment)),
        version_(version),
        mirror_(std::move(mirror)),
        piece_(segment_->data(), segment_->size()) {}

  char* data() override { return segment_->writable(); }
  size_t size() const override { return segment_->size(); }
  absl::Span<const std::string_view> pieces() const override { return {&piece_, 1}; }

  bool Has(TensorIndex tensor) const { return tensor < places_->begins.size(); }
  // REQUIRES: Has(tensor).
  uint64_t PlaceOf(TensorIndex tensor, uint32_t chunk) const {
    return places_->begins[tensor] + uint64_t{chunk} * kChunkBytes;
  }
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  uint64_t version() const { return version_; }
  // Null: there is none.
  const std::shared_ptr<Mirror>& mirror() const { return mirror_; }

 private:
  const std::shared_ptr<const ResultPlaces> places_;
  const std::shared_ptr<Segment> segment_;
  const uint64_t version_;
  const std::shared_ptr<Mirror> mirror_;
  const std::string_view piece_;
};

class ResultArena {
 public:
  // Takes as long as the system needs to give its memory. From any thread.
  static absl::StatusOr<std::shared_ptr<ResultArena>> Create(ResultPlaces places);

  uint64_t bytes() const { return 2 * places_->end; }

  // A half for an attempt of this round; null if it would have to be one that is still held, or
  // that has the results of the round before.
  std::shared_ptr<ResultHalf> Take(uint64_t round);

  // The memory of a mirror. From any thread.
  uint64_t mirror_bytes() const { return places_->end; }
  // The memory of all of them.
  uint64_t mirrored_bytes() const { return mirrors_.size() * mirror_bytes(); }
  // Whether a mirror is to be made now, for the rounds that come: the last half got none. Then
  // AddMirror must follow.
  bool RequestMirror(absl::Time now);
  // Null: there was no memory for it, and none is asked for in the next minute. REQUIRES: it has
  // mirror_bytes().
  void AddMirror(std::shared_ptr<Mirror> mirror, absl::Time now);

 private:
  struct Half {
    std::shared_ptr<Segment> segment;
    uint64_t round = 0;  // For which it was taken last.
    std::weak_ptr<ResultHalf> taken;
    std::weak_ptr<Mirror> mirror;  // The one that it was taken with.
  };
  explicit ResultArena(ResultPlaces places)
      : places_(std::make_shared<const ResultPlaces>(std::move(places))) {}
  // Null: all are in use.
  std::shared_ptr<Mirror> TakeMirror();

  const std::shared_ptr<const ResultPlaces> places_;
  std::array<Half, 2> halves_;
  uint64_t version_ = 0;  // The last one, of either half.
  std::vector<std::shared_ptr<Mirror>> mirrors_;
  bool lacks_mirror_ = false;  // The last half got none.
  bool mirror_requested_ = false;
  absl::Time next_request_ = absl::InfinitePast();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_RESULT_ARENA_H_
