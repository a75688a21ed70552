// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The stream of one shard at its coordinator, and the shards that are connected. A shard gets its
// number with its hello.
//
// A shard is refused, with a typed error that names both sides, when it speaks another version than
// the coordinator, or when its name is that of a connected shard at another endpoint. One with the
// same name and endpoint is the next life of the same shard: it takes the place of the one before,
// whose connection may not have ended yet.
//
// Thread contract: ShardReactor as StreamReactor; ShardPeers is safe from any thread.
// Failure: a message that cannot be decoded ends the stream with INVALID_ARGUMENT and is counted.

#ifndef BASIN_AGGREGATOR_TRANSPORT_SHARD_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_SHARD_REACTOR_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/engine/engine.h"
#include "aggregator/engine/shard_messages.h"
#include "aggregator/transport/registry.h"
#include "aggregator/transport/stream_reactor.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class ShardReactor;

class ShardPeers {
 public:
  // `engine` outlives it.
  explicit ShardPeers(Engine& engine) : engine_(engine) {}

  // Gives the shard a number, or says why it is refused.
  absl::StatusOr<ShardId> Open(const std::shared_ptr<ShardReactor>& reactor,
                               const ShardHello& hello);
  // Its stream is over.
  void Close(ShardId shard, const absl::Status& why);
  // The engine closes it itself. Null: it is over.
  std::shared_ptr<ShardReactor> Take(ShardId shard);
  std::shared_ptr<ShardReactor> Find(ShardId shard) const;
  // Ends the streams of those that may no longer hold bytes.
  void EndRevoked(const Gatekeeper& gatekeeper);
  // Ends all streams.
  void EndAll(const absl::Status& why);

  Engine& engine() { return engine_; }

 private:
  struct Peer {
    ShardHello hello;
    std::shared_ptr<ShardReactor> reactor;
  };
  std::vector<std::shared_ptr<ShardReactor>> All() const;

  Engine& engine_;
  mutable Mutex mutex_;
  std::map<ShardId, Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

class ShardReactor : public StreamReactor {
 public:
  // REQUIRES: `newcomers`, `registry` and `peers` outlive it.
  ShardReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
               TransportCounters& counters, Newcomers& newcomers, Registry& registry,
               ShardPeers& peers)
      : StreamReactor(context, limits, counters, counters.inbox_bytes, newcomers),
        registry_(registry),
        peers_(peers) {}

  void Send(const ToShard& message);

 private:
  absl::Status OnHello(const ShardHello& hello);
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void Over(const absl::Status& ended) override;
  void Count(const absl::Status& why) override;

  Registry& registry_;
  ShardPeers& peers_;
  // For the receiving thread only; Over comes after it.
  std::optional<ShardId> shard_;  // Set by its hello.
  std::string who_;               // For errors.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_SHARD_REACTOR_H_
