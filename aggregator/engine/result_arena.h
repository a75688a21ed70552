// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory for the results of one lane that workers on this machine map, so that a result is written
// once for all of them. Each chunk has a fixed place in either of two halves; the rounds of a lane
// take turns. A half is used again when nothing in this process holds its former content. Workers
// may still read it: they copy what they keep before they begin a round, and find the half's
// version changed if they did not.
//
// A half may have a mirror in memory of the device that reduces. It is written with the half, and
// lost to it if a worker still reads the former content then.
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
#include "aggregator/engine/buffer_pool.h"
#include "protocol/tensor.h"
#include "runtime/shared_memory/mirror.h"
#include "runtime/shared_memory/segment.h"

namespace basin::aggregator {

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

  // The memory of a mirror.
  uint64_t mirror_bytes() const { return places_->end; }
  bool LacksMirror() const { return LackingMirror() < halves_.size(); }
  // For a half that lacks one, from its next round on. REQUIRES: it has mirror_bytes().
  void AddMirror(std::shared_ptr<Mirror> mirror);

 private:
  struct Half {
    std::shared_ptr<Segment> segment;
    uint64_t round = 0;  // For which it was taken last.
    uint64_t version = 0;
    std::weak_ptr<ResultHalf> taken;
    std::shared_ptr<Mirror> mirror;
  };
  // The first half without a mirror; their number if there is none.
  size_t LackingMirror() const;
  explicit ResultArena(ResultPlaces places)
      : places_(std::make_shared<const ResultPlaces>(std::move(places))) {}

  const std::shared_ptr<const ResultPlaces> places_;
  std::array<Half, 2> halves_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_RESULT_ARENA_H_
