// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The items that travel on the connections of an explored world, and the sums that replace tensor
// bytes there.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_EXPLORE_ITEM_H_
#define BASIN_TESTS_EXPLORE_ITEM_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>

#include "aggregator/core/event.h"
#include "protocol/messages.h"
#include "tests/world/sums.h"

namespace basin::explore {

using basin::operator==;
using basin::operator!=;

inline constexpr uint32_t kMaxWorkers = 4;

using world::BlobFrame;
using world::Chunk;
using world::DigestOf;
using world::MaskOf;
using world::Sums;

// What one process (worker and life) contributes to a chunk of a round.
constexpr Chunk ContributionOf(uint32_t worker, uint32_t life, RoundNumber round, uint32_t chunk) {
  return {MaskOf(worker), ((round * 31 + life) * kMaxWorkers + worker + 1) * 0xd6e8feb86659fd93 +
                              chunk * 0xa0761d6478bd642f};
}

using PushFrame = world::PushFrame<Chunk>;
using ResultFrame = world::ResultFrame<Chunk>;

using Item = std::variant<ToAggregator, ToWorker, PushFrame, ResultFrame>;

// One short line for a trail.
std::string Describe(const Item& item);

// Names the workers in a mask, such as "w0+w2", with a count for each that occurs more than once.
std::string DescribeMask(uint64_t mask);

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_ITEM_H_
