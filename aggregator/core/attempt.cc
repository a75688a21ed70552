// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/attempt.h"

#include <algorithm>
#include <map>
#include <string>

namespace basin::aggregator {

void Attempt::Grow(const Layout& layout) {
  states_.resize(layout.chunks());
  arrived_.resize(layout.chunks());
  digests_.resize(layout.chunks());
  norms_.resize(layout.chunks());
  skips_.resize(layout.version());
}

void Attempt::ClearArrived() { std::fill(arrived_.begin(), arrived_.end(), 0); }

ChunkRanges Attempt::Next(const Layout& layout, const Shares& shares, uint64_t bytes,
                          uint32_t tensors,
                          absl::FunctionRef<bool(TensorIndex, TensorIndex)> alike) const {
  ChunkRanges ranges;
  uint64_t taken = 0;
  const auto has = [&ranges](TensorIndex tensor) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [tensor](const ChunkRange& range) { return range.tensor == tensor; });
  };
  const ShardId shard = shares.Of(layout, ready_.front());
  for (const uint32_t flat : ready_) {
    if (!shares.single() && shares.Of(layout, flat) != shard) break;
    taken += layout.SizeOf(flat);
    if (!ranges.empty() && taken > bytes) break;
    const TensorIndex tensor = layout.TensorOf(flat);
    const uint32_t chunk = flat - layout.FirstChunk(tensor);
    if (!ranges.empty() && ranges.back().tensor == tensor) {
      if (ranges.back().first + ranges.back().count != chunk) break;
      ++ranges.back().count;
      continue;
    }
    if (!ranges.empty()) {
      if (ranges.size() == tensors || !alike(ranges.front().tensor, tensor)) break;
      if (layout.TensorChunks(tensor) > 1 && has(tensor)) break;  // There is a gap.
    }
    ranges.push_back({tensor, chunk, 1});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ChunkRange& a, const ChunkRange& b) { return a.tensor < b.tensor; });
  return ranges;
}

void Attempt::Start(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    states_[ready_.front()] = State::kReducing;
    ready_.pop_front();
  }
  reducing_ += count;
}

bool Attempt::Finish(const Layout& layout, const ReduceDone& done) {
  size_t index = 0;
  for (const ChunkRange& range : done.ranges) {
    const uint32_t base = layout.FirstChunk(range.tensor) + range.first;
    for (uint32_t flat = base; flat < base + range.count; ++flat, ++index) {
      if (states_[flat] != State::kReducing) return false;
      states_[flat] = State::kReduced;
      digests_[flat] = done.digests[index];
      // By chunk, so that the norm does not depend on which chunks were reduced together.
      norms_[flat] =
          index < done.facts.squared_norms.size() ? done.facts.squared_norms[index] : ChunkNorm{};
      --reducing_;
    }
  }
  overflow_ |= done.facts.overflow;
  if (!done.facts.nonfinite.has_value()) return true;
  const auto order = [](const NonFinite& found) {
    return std::tie(found.tensor, found.worker, found.element);
  };
  if (!nonfinite_.has_value() || order(*done.facts.nonfinite) < order(*nonfinite_)) {
    nonfinite_ = done.facts.nonfinite;
  }
  return true;
}

std::vector<uint32_t> Attempt::Started() const {
  std::vector<uint32_t> started;
  for (uint32_t flat = 0; flat < chunks(); ++flat) {
    if (!IsOpen(flat)) started.push_back(flat);
  }
  return started;
}

void Attempt::StartAgain() {
  std::fill(states_.begin(), states_.end(), State::kOpen);
  std::fill(norms_.begin(), norms_.end(), ChunkNorm{});  // All may skip a tensor this time.
  Stop();
  overflow_ = false;
  nonfinite_.reset();
  redone_.clear();
}

void Attempt::Reopen(uint32_t flat) {
  if (states_[flat] == State::kReducing) --reducing_;
  if (states_[flat] == State::kReduced) redone_.insert(flat);
  states_[flat] = State::kOpen;
}

void Attempt::Stop() {
  ready_.clear();
  reducing_ = 0;
}

double Attempt::SquaredNorm(const Layout& layout, TensorIndex tensor) const {
  const bool halves = ElementSize(layout.tensors()[tensor].dtype) == 8;  // Two chunks are a block.
  const uint32_t end = layout.FirstChunk(tensor + 1);
  double sum = 0;
  for (uint32_t flat = layout.FirstChunk(tensor); flat < end; ++flat) {
    double block = norms_[flat].first;
    if (halves && flat + 1 < end) block += norms_[++flat].first;
    sum += block;
    sum += norms_[flat].second;  // +0 if the chunk is one block; this changes no sum of squares.
  }
  return sum;
}

RoundFacts Attempt::Facts(const Layout& layout) const {
  RoundFacts facts;
  facts.overflow = overflow_;
  facts.nonfinite = nonfinite_;
  // The sum has one order: tensors by name, blocks of 64 Ki elements in order. Otherwise the norm
  // would depend on the order of registration, or on how a dtype is cut into chunks.
  std::map<std::string, TensorIndex> by_name;
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    by_name.emplace(layout.tensors()[tensor].name, tensor);
  }
  facts.tensor_squared_norms.resize(by_name.size());
  for (const auto& [name, tensor] : by_name) {
    facts.tensor_squared_norms[tensor] = SquaredNorm(layout, tensor);
    facts.squared_norm += facts.tensor_squared_norms[tensor];
  }
  return facts;
}

}  // namespace basin::aggregator
