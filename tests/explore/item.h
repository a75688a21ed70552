// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on the connections of an explored world, and what stands for tensor bytes in it.
//
// A chunk is two words. `mask` is the sum of 16^k over the contributions of worker k that are in
// it, so that hexadecimal digit k says how often worker k was counted. `content` is a sum of keys
// that name process and round, so that bytes of another life or round cannot pass for the right
// ones.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_EXPLORE_ITEM_H_
#define BASIN_TESTS_EXPLORE_ITEM_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>

#include "aggregator/core/event.h"
#include "proto/vocabulary/messages.h"

namespace basin::explore {

using basin::operator==;
using basin::operator!=;

inline constexpr uint32_t kMaxWorkers = 4;

struct Chunk {
  uint64_t mask = 0;
  uint64_t content = 0;
  auto Fields() const { return std::tie(mask, content); }
};

constexpr uint64_t MaskOf(uint32_t worker) { return uint64_t{1} << (4 * worker); }

constexpr Digest DigestOf(const Chunk& chunk) {
  return (chunk.mask * 0x9e3779b97f4a7c15) ^ (chunk.content * 0xc2b2ae3d27d4eb4f);
}

// The contribution of one process (worker and life) to a round.
constexpr Chunk ContributionOf(uint32_t worker, uint32_t life, RoundNumber round) {
  return {MaskOf(worker), ((round * 31 + life) * kMaxWorkers + worker + 1) * 0xd6e8feb86659fd93};
}

// Worker to aggregator, on the data stream.
struct PushFrame {
  aggregator::FrameKind kind = aggregator::FrameKind::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // kSupply: the value's.
  ChunkRange range;
  Chunk chunk;
  auto Fields() const { return std::tie(kind, lane, round, ballot, range, chunk); }
};

// Aggregator to worker, on the data stream.
struct ResultFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  Chunk chunk;
  auto Fields() const { return std::tie(lane, round, ballot, range, chunk); }
};

using Item = std::variant<ToAggregator, ToWorker, PushFrame, ResultFrame>;

// One short line for a trail.
std::string Describe(const Item& item);

// "w0+w2": who is in a mask, and how often if not once.
std::string DescribeMask(uint64_t mask);

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_ITEM_H_
