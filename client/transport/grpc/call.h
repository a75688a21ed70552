// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One bidirectional stream to the aggregator on its own TCP connection, in gRPC's callback API, and
// the only place that knows its rules:
//
//   - at most one read and one write are in flight;
//   - operations that are started from outside gRPC's callbacks need a hold, which is given back
//     once, when no more operations will be started;
//   - gRPC may call from any of its threads, also while the worker's loop calls from its own;
//   - OnDone is the last callback, when every operation has ended and the hold is removed.
//
// How operations are started: each is chosen under the lock and started outside of it, by one
// thread at a time. If another thread is already starting operations, it also starts those of this
// thread.
//
// Reading needs room: while messages that are not yet Consumed fill the window, no read is started,
// HTTP/2's own window fills up, and the peer stops. The end of the stream is then noticed when
// there is room again.
//
// Ownership: a call owns itself from Start() until gRPC has called OnDone; other users hold a
// shared pointer. Written messages are released when gRPC has released them, whatever happens to
// the call meanwhile. Thread contract: safe from any thread.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/grpc/sockets.h"
#include "grpcpp/alarm.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/settings.h"
#include "runtime/mutex.h"

namespace basin::client {

// The limit of read messages that are not yet handled, in bytes and in number. The message that
// exceeds it is still read.
struct CallWindow {
  uint64_t bytes = uint64_t{8} << 20;
  uint32_t messages = 1024;
};

class Call;

// The calls of one connector, so that it can end them; and the channels of ended calls.
class Calls {
 public:
  // False when CutAll has been called.
  bool Add(const std::shared_ptr<Call>& call);
  // The call has been destroyed. Its channel is kept until Sweep, because gRPC crashes if a channel
  // whose connection has just failed is destroyed in a callback.
  void Remove(Call* call, std::shared_ptr<grpc::Channel> channel);
  // Destroys the channels. REQUIRES: not called from a callback of gRPC.
  void Sweep();
  // Ends every call, and waits until gRPC is done with them, for `limit` at most.
  void CutAll(absl::Duration limit);

 private:
  Mutex mutex_;
  Condition changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mutex_);  // Each removes itself when it goes.
  std::vector<std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

struct CallOptions {
  std::string address;
  ClientTls tls;           // Its files are read for each call,
  std::string token_file;  // as is this one. Empty: without a token.
  GrpcSettings settings;
  CallWindow window;
  std::shared_ptr<Calls> calls;
};

// For a stream whose writer itself limits the queue.
inline constexpr uint64_t kBoundedByWriter = ~uint64_t{0};

class Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
             public std::enable_shared_from_this<Call> {
 public:
  // What is sent before the aggregator has sent its initial metadata.
  enum class Early : uint8_t { kFirstMessage, kAll };

  // More than `max_queued_bytes` that wait to be sent end the stream: its reader is too slow.
  Call(const CallOptions& options, const std::string& method, uint64_t max_queued_bytes,
       Early early);
  ~Call() override;

  // Opens the connection. Earlier messages are sent first. REQUIRES: called once.
  void Start();

  // Sends after all earlier messages. Dropped if the stream has ended.
  void Write(grpc::ByteBuffer message);

  // One message of so many bytes has been dealt with: room for reading on.
  void Consumed(uint64_t bytes);

  // Ends the stream after all earlier messages; the connection is closed if the peer does not
  // receive them or does not answer in time.
  void Finish();

  // Ends the stream and its connection now, and drops waiting messages.
  void Cut();

  uint64_t queued_bytes() const;

  // ---- gRPC's
  void OnReadInitialMetadataDone(bool ok) final;
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnWritesDoneDone(bool ok) final;
  void OnDone(const grpc::Status& status) final;

 protected:
  // Handles a message; in order, never two at once, and none after Finish or Cut. Its bytes are
  // held until they are Consumed. An error ends the stream.
  virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;

  // gRPC's, with the initial metadata of the aggregator. REQUIRES: in OnMessage.
  const grpc::ClientContext& context() const { return *context_; }

  // The stream is over, unless Finish or Cut has been called. The last thing that is called.
  virtual void Over(const absl::Status& why) = 0;

 private:
  enum class Operation : uint8_t { kNone, kRead, kWrite, kHalfClose, kCut, kRelease };

  // Starts all operations that can be started.
  void Drive();
  Operation Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(Operation operation);
  void Fail(const absl::Status& why);
  // Removes the waiting messages, to be released outside the lock.
  std::deque<grpc::ByteBuffer> Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant until destruction.
  const std::string address_;
  const bool tls_;
  const CallWindow window_;
  const uint64_t max_queued_bytes_;
  const Early early_;
  const std::shared_ptr<Calls> calls_;
  const std::shared_ptr<Sockets> sockets_ = std::make_shared<Sockets>();
  absl::Status unusable_;  // Why there are no credentials; it fails at once then.
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();

  // Each belongs to the operation in flight, so to one thread at a time.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  grpc::Alarm linger_;

  mutable Mutex mutex_;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is starting operations.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // In flight, or being taken.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool wrote_ ABSL_GUARDED_BY(mutex_) = false;    // The first message,
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // and the initial metadata have come.
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t held_messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // The one in flight included.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;         // The owner is not called any more.
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;      // Half-close after the last write,
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;    // which has been started.
  bool cut_wanted_ ABSL_GUARDED_BY(mutex_) = false;     // The call is to be cancelled,
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;            // and has been.
  bool unwritable_ ABSL_GUARDED_BY(mutex_) = false;     // A write has failed.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;          // Nothing more will come,
  bool released_ ABSL_GUARDED_BY(mutex_) = false;       // and the hold is removed.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);        // Why this end has ended it, if it has.
  std::shared_ptr<Call> self_ ABSL_GUARDED_BY(mutex_);  // From Start to OnDone.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_
