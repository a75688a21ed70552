// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The shards of a coordinator, as its runner sees them: actions on bytes that a shard holds are
// gathered here, step by step, and sent to it; what a shard reports is given the numbers of this
// process. A shard numbers its data streams by itself, so two shards have the same ones.
//
// Thread contract: one thread. Failure: a report about a stream that was never opened, or a frame
// out of order, is INVALID_ARGUMENT; the connection with the shard must end then. Actions on a
// shard that is gone have no effect.

#ifndef BASIN_AGGREGATOR_ENGINE_REMOTE_SHARDS_H_
#define BASIN_AGGREGATOR_ENGINE_REMOTE_SHARDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/event.h"
#include "aggregator/engine/reduce_times.h"
#include "aggregator/engine/shard_messages.h"
#include "protocol/placement.h"

namespace basin::aggregator {

// How a shard does, for operators.
struct ShardStanding {
  absl::Time up;          // When it connected.
  absl::Time last_event;  // When it reported something.
  ShardUse use;           // As it was reported last.
  ReduceTimes reduce_times;
};

class RemoteShards {
 public:
  // Sends steps to a shard. Must not block.
  using Send = std::function<void(ShardId shard, std::vector<ShardStep> steps)>;

  // `new_stream`: a number for a data stream that no other one of this process has.
  // `name_of`: the name of a job; empty when it is over.
  RemoteShards(std::function<StreamId()> new_stream, std::function<JobName(JobId)> name_of,
               Send send)
      : new_stream_(std::move(new_stream)), name_of_(std::move(name_of)), send_(std::move(send)) {}

  bool empty() const { return shards_.empty(); }
  size_t size() const { return shards_.size(); }

  // ---- shards come and go
  void Add(ShardId shard, absl::Time now);
  bool Has(ShardId shard) const { return shards_.count(shard) > 0; }
  void Remove(ShardId shard);

  // ---- what a shard reports. REQUIRES: Has(shard).
  // The number here of a stream that opens there.
  absl::StatusOr<StreamId> Open(ShardId shard, StreamId there);
  // That of an open one; 0: it was closed here, and the shard did not know yet.
  absl::StatusOr<StreamId> Find(ShardId shard, StreamId there) const;
  // The session of an accepted one.
  std::optional<SessionId> SessionOf(StreamId stream) const;
  // The stream has ended.
  void Close(StreamId stream);
  // A reduction has ended there. INVALID_ARGUMENT if it was not asked for.
  absl::Status Reduced(ShardId shard, const ReduceDone& done);
  void Used(ShardId shard, const ShardUse& use) { shards_.at(shard).standing.use = use; }
  // It has sent something.
  void Heard(ShardId shard, absl::Time now) { shards_.at(shard).standing.last_event = now; }
  // Null: it is not connected.
  const ShardStanding* StandingOf(ShardId shard) const;
  // A frame has arrived there. REQUIRES: what follows until EndStep comes of it.
  absl::Status BeginStep(ShardId shard, ShardFrame frame);

  // ---- actions, in order
  // What follows happens at this time. REQUIRES: it does not go back.
  void SetTime(absl::Time now) { now_ = now; }
  // With Action::shard; streams have the numbers of this process.
  template <typename Action>
  void Do(Action action) {
    const ShardId shard = action.shard;
    action.shard = kCoordinatorShard;  // Which, over there, is itself.
    Put(shard, std::move(action));
  }
  // For all shards.
  template <typename Action>
  void DoAll(const Action& action) {
    for (auto& [shard, link] : shards_) StepOf(link).actions.emplace_back(action);
  }
  template <typename Action>
  void DoAt(ShardId shard, Action action) {
    const auto found = shards_.find(shard);
    if (found != shards_.end()) StepOf(found->second).actions.emplace_back(std::move(action));
  }
  // The actions of one moment are complete.
  void EndStep();
  // Sends what was gathered.
  void Flush();

 private:
  struct Link {
    ShardId shard = 0;
    std::map<StreamId, StreamId> here;  // By its number there.
    StreamId last_stream = 0;           // The highest of those there.
    ShardFrame last_frame = 0;
    // What it has been asked to reduce, and when.
    std::map<std::tuple<JobId, LaneIndex, RoundNumber, Ballot>,
             std::vector<std::pair<ChunkRanges, absl::Time>>>
        reducing;
    ShardStanding standing;
    std::vector<ShardStep> steps;
    bool in_step = false;  // The last of them is not complete.
  };
  struct Stream {
    ShardId shard = 0;
    StreamId there = 0;
    std::optional<SessionId> session;  // Once it was accepted.
  };

  ShardStep& StepOf(Link& link);
  void Put(ShardId shard, ShardAction action);
  void Put(ShardId shard, AcceptStream accept);
  void Put(ShardId shard, CloseStream close);
  void Put(ShardId shard, SendFrame send);
  void Put(ShardId shard, Reduce reduce);
  void Put(ShardId shard, Publish publish);
  void Put(ShardId shard, RelayResult relay);
  // The numbers there of those that are still open.
  void Translate(std::vector<StreamId>& streams) const;
  StreamId There(StreamId stream) const;

  const std::function<StreamId()> new_stream_;
  const std::function<JobName(JobId)> name_of_;
  const Send send_;
  absl::Time now_ = absl::InfinitePast();
  std::map<ShardId, Link> shards_;
  // Those with a step that is not complete, and those with steps to be sent: there may be many
  // shards, and most steps are for one. One may be among the former twice.
  std::vector<Link*> in_step_;
  std::vector<Link*> unsent_;
  absl::flat_hash_map<StreamId, Stream> streams_;  // By the number here.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_REMOTE_SHARDS_H_
