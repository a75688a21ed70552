// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// For which shards an action of the aggregator's core is (aggregator/core/action.h).
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_WORLD_RECEIVERS_H_
#define BASIN_TESTS_WORLD_RECEIVERS_H_

#include <type_traits>
#include <variant>

#include "aggregator/core/action.h"

namespace basin::world {

struct Receivers {
  bool every = false;  // All shards, the coordinator's own among them.
  ShardId only = kCoordinatorShard;
  bool Has(ShardId shard) const { return every || only == shard; }
};

inline Receivers ReceiversOf(const aggregator::Action& action) {
  return std::visit(
      [](const auto& what) -> Receivers {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, aggregator::NameTensors>) {
          return {what.shard == aggregator::kEveryShard, what.shard};
        } else if constexpr (std::is_same_v<What, aggregator::StartAttempt> ||
                             std::is_same_v<What, aggregator::EndRound> ||
                             std::is_same_v<What, aggregator::EndJob> ||
                             std::is_same_v<What, aggregator::IdleLane>) {
          return {true, kCoordinatorShard};
        } else if constexpr (std::is_same_v<What, aggregator::KeepChunks> ||
                             std::is_same_v<What, aggregator::DiscardChunks> ||
                             std::is_same_v<What, aggregator::Reduce> ||
                             std::is_same_v<What, aggregator::Publish> ||
                             std::is_same_v<What, aggregator::ReleaseResult> ||
                             std::is_same_v<What, aggregator::RelayResult> ||
                             std::is_same_v<What, aggregator::AcceptStream> ||
                             std::is_same_v<What, aggregator::CloseStream> ||
                             std::is_same_v<What, aggregator::ReleaseShard> ||
                             std::is_same_v<What, aggregator::SendFrame> ||
                             std::is_same_v<What, aggregator::ForgetFrames>) {
          return {false, what.shard};
        } else {
          return {};
        }
      },
      action);
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_RECEIVERS_H_
