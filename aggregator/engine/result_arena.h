// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory for the results of one lane that workers on this machine map, so that a result is written
// once for all of them. Each chunk has a fixed place in either of two halves; the rounds of a lane
// take turns. A half is used again when nothing in this process holds its former content. Workers
// may still read it: they copy what they keep before they begin a round, and find the half's
// version changed if they did not.
//
// Each half is a file descriptor of this process (kArenaDescriptors), because others get the memory
// by it.
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
#include "runtime/gauge.h"
#include "runtime/shared_memory/segment.h"

namespace basin::aggregator {

inline constexpr uint64_t kArenaDescriptors = 2;

// So many rounds of a lane that do not reduce a tensor, and its results have no place any more. The
// places of the others are made anew when they have half of the memory, or when one that has none
// is reduced again; that is looked at every so many rounds.
inline constexpr uint64_t kResultExpiry = 64;

// Where the tensors of a lane are.
struct ResultPlaces {
  static constexpr uint64_t kNone = ~uint64_t{0};
  std::vector<uint64_t> begins;  // By tensor; kNone: it has no place.
  uint64_t end = Segment::kVersionBytes;

  // The places of the next tensor.
  void Add(const TensorSpec& tensor);
  void AddNone() { begins.push_back(kNone); }
  bool Has(TensorIndex tensor) const { return tensor < begins.size() && begins[tensor] != kNone; }
};

// A half, for the results of one attempt.
class ResultHalf : public Buffer {
 public:
  ResultHalf(std::shared_ptr<const ResultPlaces> places, std::shared_ptr<Segment> segment,
             uint64_t version)
      : places_(std::move(places)),
        segment_(std::move(segment)),
        version_(version),
        piece_(segment_->data(), segment_->size()) {}

  char* data() override { return segment_->writable(); }
  size_t size() const override { return segment_->size(); }
  absl::Span<const std::string_view> pieces() const override { return {&piece_, 1}; }

  bool Has(TensorIndex tensor) const { return places_->Has(tensor); }
  // REQUIRES: Has(tensor).
  uint64_t PlaceOf(TensorIndex tensor, uint32_t chunk) const {
    return places_->begins[tensor] + uint64_t{chunk} * kChunkBytes;
  }
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  uint64_t version() const { return version_; }

 private:
  const std::shared_ptr<const ResultPlaces> places_;
  const std::shared_ptr<Segment> segment_;
  const uint64_t version_;
  const std::string_view piece_;
};

class ResultArena {
 public:
  // The memory of the two halves, counted from when it is asked for until nothing holds it.
  using Charges = std::array<std::shared_ptr<const GaugeCharge>, 2>;
  static Charges ChargesFor(const ResultPlaces& places, const Gauge& gauge) {
    return {std::make_shared<const GaugeCharge>(gauge, places.end),
            std::make_shared<const GaugeCharge>(gauge, places.end)};
  }

  // Takes as long as the system needs to give its memory. From any thread.
  static absl::StatusOr<std::shared_ptr<ResultArena>> Create(ResultPlaces places, Charges charges);

  uint64_t bytes() const { return 2 * places_->end; }
  bool Has(TensorIndex tensor) const { return places_->Has(tensor); }

  // A half for an attempt of this round; null if it would have to be one that is still held, or
  // that has the results of the round before.
  std::shared_ptr<ResultHalf> Take(uint64_t round);

 private:
  struct Half {
    std::shared_ptr<Segment> segment;
    uint64_t round = 0;  // For which it was taken last.
    std::weak_ptr<ResultHalf> taken;
  };
  explicit ResultArena(ResultPlaces places)
      : places_(std::make_shared<const ResultPlaces>(std::move(places))) {}

  const std::shared_ptr<const ResultPlaces> places_;
  std::array<Half, 2> halves_;
  uint64_t version_ = 0;  // The last one, of either half.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_RESULT_ARENA_H_
