// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The transport of a worker's messages: gRPC in a trainer, queues in tests.
//
// A channel is one stream to the aggregator, opened by a Connector. A connector serves one worker,
// which has one session at a time. The listener of a channel gets received messages decoded and
// hashed, by the thread that received them. OnUp is the first call of a listener, unless it is
// OnDown, and OnDown the last.
//
// Back-pressure: a channel counts the bytes it has given to its listener, and stops reading while
// more of them than it is willing to hold were not reported as Consumed.
//
// Thread contract: channels and the connector are called from the worker's loop and never block;
// they do not call a listener before the call returns, but for OnUp in OpenSession. Listeners may
// be called from any thread, for one channel never from two at once, and never block. Ownership:
// the worker holds the channel and the channel holds its listener. A channel that is destroyed
// without Close is closed as by Close. Failure: a channel that cannot send ends with OnDown, like
// any lost one.

#ifndef BASIN_CLIENT_TRANSPORT_CHANNEL_H_
#define BASIN_CLIENT_TRANSPORT_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "runtime/frames/frame.h"
#include "runtime/shared_memory/segments.h"

namespace basin::client {

// What came in one message of a session: messages of it, and then frames of its data streams.
struct Batch {
  std::vector<ToWorker> messages;
  std::vector<IncomingFrame> frames;
};

class SessionListener {
 public:
  virtual ~SessionListener() = default;
  virtual void OnUp() = 0;
  // By wire::MessageReader. `bytes` are to be reported as consumed.
  virtual void OnMessage(ToWorker message, uint64_t bytes) = 0;
  virtual void OnBatch(Batch batch, uint64_t bytes) = 0;
  virtual void OnDown(const absl::Status& why) = 0;
};

class SessionChannel {
 public:
  virtual ~SessionChannel() = default;
  // One gRPC message, by wire::EncodePieces; in the order of the calls.
  virtual void Send(std::string message) = 0;
  virtual void Consumed(uint64_t bytes) = 0;
  // Ends the stream after all earlier messages, without waiting for it. The listener is not called
  // again, except by calls that are already in progress.
  virtual void Close() = 0;
};

class StreamListener {
 public:
  virtual ~StreamListener() = default;
  // The aggregator answered the token: frames may be sent.
  virtual void OnUp() = 0;
  virtual void OnFrame(IncomingFrame frame) = 0;
  virtual void OnDown(const absl::Status& why) = 0;
};

class StreamChannel {
 public:
  virtual ~StreamChannel() = default;
  // In the order of the calls. The worker itself limits the queue of this channel, which releases
  // lent memory with its last frame: soon after the frame was written, or soon after Close.
  // Failure: INVALID_ARGUMENT, and nothing is sent, when the aggregator would refuse the frame;
  // UNAVAILABLE when its payload is in memory of a device that has failed.
  virtual absl::Status Send(OutgoingFrame frame) = 0;
  // Bytes of messages that the channel still holds, with the overhead of each.
  virtual uint64_t queued_bytes() const = 0;
  virtual void Consumed(uint64_t bytes) = 0;
  // Ends the stream at once, drops waiting messages, and releases every payload, in any state of
  // its connection: a peer that does not read must not keep a trainer's buffer. As above, the
  // listener is not called again.
  virtual void Close() = 0;
};

class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::shared_ptr<SessionChannel> OpenSession(
      std::shared_ptr<SessionListener> listener) = 0;
  // Each on a connection of its own, to the aggregator of the session or to another shard, with the
  // same credentials. The channel presents token and number (Bind).
  virtual std::shared_ptr<StreamChannel> OpenStream(uint32_t number, SessionToken token,
                                                    const PlacedShard& shard,
                                                    std::shared_ptr<StreamListener> listener) = 0;
  // The features of the protocol that its channels add to those of the core.
  virtual uint64_t features() const { return 0; }
  // All that is to be sent at this moment was given to the channels: it may have waited until now,
  // to travel together.
  virtual void Flush() {}
  // The memory that this worker shares with an aggregator on the same machine in the present
  // session; null if it shares none, or not yet. From any thread.
  virtual std::shared_ptr<Segments> shared() { return nullptr; }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_CHANNEL_H_
