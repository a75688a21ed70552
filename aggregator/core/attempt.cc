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

ChunkRange Attempt::Next(const Layout& layout, uint32_t most) const {
  const TensorIndex tensor = layout.TensorOf(ready_.front());
  ChunkRange range{tensor, ready_.front() - layout.FirstChunk(tensor), 1};
  while (range.count < most && range.count < ready_.size() &&
         ready_[range.count] == ready_.front() + range.count &&
         range.first + range.count < layout.TensorChunks(tensor)) {
    ++range.count;
  }
  return range;
}

void Attempt::Start(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    states_[ready_.front()] = State::kReducing;
    ready_.pop_front();
  }
  reducing_ += count;
}

bool Attempt::Finish(const Layout& layout, const ReduceDone& done) {
  const uint32_t base = layout.FirstChunk(done.range.tensor) + done.range.first;
  for (uint32_t i = 0; i < done.range.count; ++i) {
    const uint32_t flat = base + i;
    if (states_[flat] != State::kReducing) return false;
    states_[flat] = State::kReduced;
    digests_[flat] = done.digests[i];
    // By chunk, so that the norm does not depend on which chunks were reduced together.
    norms_[flat] = i < done.facts.squared_norms.size() ? done.facts.squared_norms[i] : ChunkNorm{};
    --reducing_;
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
  std::fill(norms_.begin(), norms_.end(), ChunkNorm{});  // It may be skipped by all this time.
  Stop();
  overflow_ = false;
  nonfinite_.reset();
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
    sum += norms_[flat].second;  // +0 where there is none, which changes no sum of squares.
  }
  return sum;
}

RoundFacts Attempt::Facts(const Layout& layout) const {
  RoundFacts facts;
  facts.overflow = overflow_;
  facts.nonfinite = nonfinite_;
  // The sum has one order: tensors by name, blocks of 64 Ki elements in order. Anything else would
  // make the norm depend on who registered first, or on how a dtype is cut into chunks.
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
