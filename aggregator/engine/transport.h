// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the engine needs of whatever carries its messages: gRPC in the service, queues in tests.
//
// A connection is a session stream or a data stream. The engine numbers them (Engine::OpenSession,
// Engine::OpenStream) and never uses a number twice. After the engine has closed a connection, or
// the transport has reported that it is closed, later calls of either about it have no effect.
//
// Thread contract: the engine calls from one thread at a time; the calls must not block and must
// not call back into the engine before they return. Failure: none is reported here. The transport
// closes a connection that cannot send, and reports it to the engine like any other loss.

#ifndef BASIN_AGGREGATOR_ENGINE_TRANSPORT_H_
#define BASIN_AGGREGATOR_ENGINE_TRANSPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "aggregator/core/event.h"
#include "aggregator/engine/shard_messages.h"
#include "protocol/messages.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

// Where a worker is.
struct Peer {
  std::string address;               // Without the port.
  bool shares_memory = false;        // It is on this machine, and maps memory of this process.
  uint64_t shared_device_bytes = 0;  // Memory of its device that this process reads.
};

class Transport {
 public:
  virtual ~Transport() = default;

  // To all of them the same message, in the order of the calls.
  virtual void Send(absl::Span<const SessionId> sessions, const ToWorker& message) = 0;

  // The same to one of them, but not before another message to that session.
  virtual void SendLater(SessionId session, const ToWorker& message) { Send({session}, message); }

  // All actions of this moment were passed: what was sent may have waited until now, to
  // travel together.
  virtual void Flush() {}

  // Closes the session stream after what was sent before.
  virtual void CloseSession(SessionId session) = 0;

  // The stream belongs to this session, which is of a worker of the job; the worker may send on it.
  virtual void AcceptStream(StreamId stream, SessionId session, const JobName& job) = 0;

  // The other end of a session; empty when it is over. From any thread.
  virtual Peer PeerOf(SessionId) const { return {}; }

  // Whether the stream's worker is on this machine and maps memory of this process.
  virtual bool Shares(StreamId) const { return false; }

  // Some memory for results is used no more: workers that map it may be informed.
  virtual void WithdrawUnused() {}

  // To all of them the same frame.
  virtual void Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) = 0;

  // Closes a data stream at once; frames that wait on it are dropped. OK: its session is over.
  virtual void CloseStream(StreamId stream, const absl::Status& why) = 0;

  // `bytes` of what arrived on the connection, session or stream, have been dealt with; they make
  // room for reading on.
  virtual void Consumed(uint64_t connection, uint64_t bytes) = 0;

  // ---- shards of this coordinator; a transport that brings none gets none of these

  // It was given this number, by the aggregator of this term. Comes before all others.
  virtual void WelcomeShard(ShardId, Term) {}
  // After what was sent to it before.
  virtual void SendToShard(ShardId, const std::vector<ShardStep>&) {}
  // The connection with it ends for this reason.
  virtual void CloseShard(ShardId, const absl::Status&) {}
  // As Consumed.
  virtual void ShardConsumed(ShardId, uint64_t) {}
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_TRANSPORT_H_
