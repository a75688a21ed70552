// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a coordinator and a shard say to each other (basin/v1/shard.proto), as plain values: the
// core's events and actions that are about bytes, and what is needed to carry them over a stream.
//
// A data stream and a frame have the numbers that the shard gives them, here and nowhere else. All
// is about that shard, so Action::shard is not used.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_ENGINE_SHARD_MESSAGES_H_
#define BASIN_AGGREGATOR_ENGINE_SHARD_MESSAGES_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "aggregator/core/action.h"
#include "aggregator/core/event.h"
#include "protocol/fields.h"
#include "protocol/ids.h"
#include "protocol/placement.h"
#include "protocol/version.h"

namespace basin::aggregator {

// A frame as a shard numbers it: 1, 2, 3, ... in a connection with the coordinator; 0 is none.
using ShardFrame = uint64_t;

// ---- shard -> coordinator

struct ShardHello {
  uint32_t protocol_version = kProtocolVersion;
  uint32_t contract_version = kContractVersion;
  std::string name;
  std::string endpoint;  // Where workers reach it.
  std::string software;
  uint64_t memory = 0;  // Its memory.budget; 0: it does not say.
};

// A frame arrived; the session of `what` is the coordinator's to find.
struct ShardFrameReceived {
  ShardFrame frame = 0;
  StreamId stream = 0;
  FrameReceived what;
};

// A frame arrived that names a tensor which the shard does not know yet.
struct ShardFrameUnknown {
  ShardFrame frame = 0;
  StreamId stream = 0;
};

// What it has done since it was connected, and holds now: for operators. It is sent when it has
// changed, at most once a second.
struct ShardUse {
  uint64_t contribution_bytes = 0;  // Received; only counts up, as do the next two.
  uint64_t result_bytes = 0;        // Sent, once for each receiver.
  uint64_t reductions = 0;
  uint64_t parked_bytes = 0;       // Contributions that wait to be reduced.
  uint64_t held_result_bytes = 0;  // Results that a worker may still need.
  auto Fields() const {
    return std::tie(contribution_bytes, result_bytes, reductions, parked_bytes, held_result_bytes);
  }
};

using ShardEvent = std::variant<StreamOpened, StreamLost, ShardFrameReceived, ShardFrameUnknown,
                                ReduceDone, ShardDraining, ShardUse>;

using FromShard = std::variant<ShardHello, std::vector<ShardEvent>>;

// ---- coordinator -> shard

struct ShardWelcome {
  ShardId shard = 0;
  Term term = 0;
};

struct ShardAcceptStream {
  AcceptStream accept;
  JobName job_name;  // The one whose grants count.
};

// Those of Publish and RelayResult are routed, and so have no sessions.
using ShardAction = std::variant<NameTensors, IdleLane, EndJob, KeepChunks, DiscardChunks,
                                 StartAttempt, Reduce, Publish, ReleaseResult, RelayResult,
                                 EndRound, ShardAcceptStream, CloseStream, SendFrame, ForgetFrames>;

// What the coordinator decided at one moment.
struct ShardStep {
  ShardFrame frame = 0;  // That led to it; it is let go of after the step. 0: none did.
  std::vector<ShardAction> actions;
  bool continues = false;  // The next step is a part of this one.
};

using ToShard = std::variant<ShardWelcome, std::vector<ShardStep>>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_SHARD_MESSAGES_H_
