// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/round_store.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace basin::aggregator {
namespace {

class Copy : public Payload {
 public:
  Copy(const PayloadPart& part, Gauge gauge)
      : bytes_(new char[part.size]),
        piece_(bytes_.get(), part.size),
        charge_(std::move(gauge), part.size) {
    CopyBytes(part, bytes_.get());
  }
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }

 private:
  const std::unique_ptr<char[]> bytes_;
  const std::string_view piece_;
  const GaugeCharge charge_;
};

PayloadPart CopyOf(const PayloadPart& part, const Gauge& gauge) {
  return {std::make_shared<Copy>(part, gauge), 0, part.size};
}

}  // namespace

void RoundStore::Keep(const Incarnation& contributor, const ChunkRanges& ranges,
                      const ContributionHeader& frame, const IncomingFrame& incoming) {
  const uint64_t chunk_bytes = WireChunkBytes(incoming.encoding.wire_dtype);
  auto& chunks = parked_[contributor];
  // A frame stays in memory as a whole while a part of it is kept. If only a part of a frame is
  // kept, that part is copied, and so are the small parts of a list: a small part that waits for
  // another worker would hold the large ones beside it, which the window does not count once they
  // are reduced.
  // Shared memory is read where it is: that part of a segment is the worker's anyway.
  const bool is_shared = !incoming.shared.empty();
  const bool whole = is_shared || ranges == RangesOf(frame.runs);
  const uint64_t small = frame.runs.size() > 1 && !is_shared ? chunk_bytes / 4 : 0;
  auto run = frame.runs.begin();
  uint64_t begin = 0;  // Where the run is in the payload.
  for (const ChunkRange& range : ranges) {
    while (run->range.tensor != range.tensor) begin += run++->bytes;
    const uint64_t end = frame.runs.size() == 1 ? incoming.payload_bytes : begin + run->bytes;
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint64_t offset = begin + uint64_t{range.first + i - run->range.first} * chunk_bytes;
      ChunkInput input;
      input.part = incoming.Part(offset, std::min(chunk_bytes, end - offset));
      if (!whole || input.part.size < small) {
        input.part = CopyOf(input.part, incoming.gauge);
      }
      input.wire_dtype = incoming.encoding.wire_dtype;
      input.wire_exponent = incoming.encoding.wire_exponent;
      parked_bytes_ += input.part.size;
      ChunkInput& parked = chunks[KeyOf(range.tensor, range.first + i)];
      parked_bytes_ -= parked.part.size;
      parked = std::move(input);
    }
  }
}

bool RoundStore::Discard(const Incarnation& contributor, const std::vector<ChunkRange>& ranges) {
  const auto found = parked_.find(contributor);
  if (found == parked_.end()) return ranges.empty();
  bool complete = true;
  for (const ChunkRange& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      const auto chunk = found->second.find(KeyOf(range.tensor, range.first + i));
      if (chunk == found->second.end()) {
        complete = false;
        continue;
      }
      parked_bytes_ -= chunk->second.part.size;
      found->second.erase(chunk);
    }
  }
  return complete;
}

void RoundStore::Start(const StartAttempt& start, ResultArena* arena) {
  if (terms_ == nullptr || terms_->ballot != start.ballot) {
    results_.clear();
    result_bytes_ = 0;
    half_.reset();
    if (arena != nullptr) half_ = arena->Take(start.round);
  }
  terms_ = std::make_shared<const AttemptTerms>(
      AttemptTerms{start.ballot, start.spec, start.contributors});
}

std::unique_ptr<Reduction> RoundStore::TakeInputs(const Reduce& reduce) {
  if (terms_ == nullptr || terms_->ballot != reduce.ballot) return nullptr;
  auto reduction = std::make_unique<Reduction>();
  reduction->action = reduce;
  reduction->terms = terms_;
  const auto has_place = [&](const ChunkRange& range) { return half_->Has(range.tensor); };
  if (half_ != nullptr && std::all_of(reduce.ranges.begin(), reduce.ranges.end(), has_place)) {
    reduction->half = half_;
  }
  reduction->inputs.resize(CountChunks(reduce.ranges));
  const std::vector<Contributor>& contributors = terms_->contributors;
  for (auto& inputs : reduction->inputs) inputs.resize(contributors.size());
  size_t skip = 0;
  for (uint32_t position = 0; position < contributors.size(); ++position) {
    if (skip < reduce.skipped.size() && reduce.skipped[skip] == position) {
      ++skip;
      continue;
    }
    const auto found = parked_.find(contributors[position].incarnation);
    if (found == parked_.end()) return nullptr;
    size_t index = 0;
    for (const ChunkRange& range : reduce.ranges) {
      for (uint32_t i = 0; i < range.count; ++i, ++index) {
        const auto chunk = found->second.find(KeyOf(range.tensor, range.first + i));
        if (chunk == found->second.end()) return nullptr;
        parked_bytes_ -= chunk->second.part.size;
        reduction->inputs[index][position] = std::move(chunk->second);
        found->second.erase(chunk);
      }
    }
  }
  return reduction;
}

void RoundStore::Hold(const Reduction& reduction) {
  if (terms_ == nullptr || terms_->ballot != reduction.action.ballot) return;
  size_t index = 0;
  for (const ChunkRange& range : reduction.action.ranges) {
    for (uint32_t i = 0; i < range.count; ++i, ++index) {
      Result& result = results_[KeyOf(range.tensor, range.first + i)];
      result.part = {reduction.result, reduction.chunks[index].offset,
                     reduction.chunks[index].bytes};
      result.digest = reduction.done.digests[index];
      result_bytes_ += result.part.size;
    }
  }
}

std::optional<OutgoingFrame> RoundStore::FrameOf(LaneIndex lane, RoundNumber round,
                                                 const ChunkRanges& ranges) const {
  if (terms_ == nullptr) return std::nullopt;
  OutgoingFrame frame;
  ResultHeader header{lane, round, terms_->ballot, {}};
  for (const ChunkRange& range : ranges) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < range.count; ++i) {
      const auto found = results_.find(KeyOf(range.tensor, range.first + i));
      if (found == results_.end()) return std::nullopt;
      frame.digests.push_back(found->second.digest);
      frame.payload.Append(found->second.part);
      bytes += found->second.part.size;
    }
    header.runs.push_back({range, ranges.size() == 1 ? 0 : static_cast<uint32_t>(bytes)});
  }
  const auto& parts = frame.payload.parts();
  const auto in_half = [&](const PayloadPart& part) { return part.owner == half_; };
  if (half_ != nullptr && std::all_of(parts.begin(), parts.end(), in_half)) {
    frame.segment = half_->segment();
    frame.version = half_->version();
  }
  frame.header = std::move(header);
  return frame;
}

bool RoundStore::Release(const Ballot& ballot, const ChunkRange& range) {
  if (terms_ == nullptr || terms_->ballot != ballot) return false;
  bool complete = true;
  for (uint32_t i = 0; i < range.count; ++i) {
    const auto found = results_.find(KeyOf(range.tensor, range.first + i));
    if (found == results_.end()) {
      complete = false;
      continue;
    }
    result_bytes_ -= found->second.part.size;
    results_.erase(found);
  }
  return complete;
}

}  // namespace basin::aggregator
