// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the aggregator's delivery owes its sessions, derived from its events and actions alone: each
// result frame is on a stream of each receiver until that receiver has acknowledged it, and is kept
// until then. Simulator, explorer and scenarios compare every step with it, because a frame that is
// forgotten only delays a run: the client requests it again.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_WORLD_DELIVERY_MODEL_H_
#define BASIN_TESTS_WORLD_DELIVERY_MODEL_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"

namespace basin::world {

class DeliveryModel {
 public:
  // An event that the core is about to take.
  void Take(const aggregator::Event& event, absl::Time now, const aggregator::Coordinator& core);
  // The actions of that step, before they are carried out. Returns what is wrong; "" for nothing.
  std::string Check(const std::vector<aggregator::Action>& actions, absl::Time now,
                    const aggregator::Coordinator& core);

 private:
  struct Result {
    aggregator::JobId job = 0;
    LaneIndex lane = 0;
    RoundNumber round = 0;
    Ballot ballot;
    ChunkRanges ranges;
    ShardId shard = kCoordinatorShard;
  };
  struct Session {
    std::set<aggregator::FrameId> results;                                  // Not acknowledged.
    std::set<aggregator::FrameId> blobs;                                    // Not sent.
    std::map<aggregator::StreamId, std::set<aggregator::FrameId>> streams;  // Results on them.
    std::optional<absl::Time> closed_at;
    bool known = false;  // When it was closed, its hello had been taken.
  };

  void Assign(const aggregator::Route& route, const std::vector<aggregator::SessionId>& receivers,
              const std::optional<Result>& result);
  // Takes the results that `useless` names from what the session is owed.
  template <typename Useless>
  void Drop(Session& session, Useless&& useless);
  bool HasStreamTo(const Session& session, ShardId shard) const;
  // The session that a stream belongs to; the end when there is none.
  std::map<aggregator::SessionId, Session>::iterator OwnerOf(aggregator::StreamId stream);
  std::string CheckSession(aggregator::SessionId id, const Session& session, absl::Time now,
                           const aggregator::Coordinator& core) const;

  std::map<aggregator::SessionId, Session> sessions_;
  std::map<aggregator::FrameId, Result> results_;
  std::map<aggregator::StreamId, ShardId> ends_at_;  // For the streams that are accepted.
  uint32_t closed_ = 0;                              // Sessions that linger.
  bool stream_lost_ = false;                         // Since the last check.
};

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_DELIVERY_MODEL_H_
