// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One stream to the aggregator on its own TCP connection: what the client's side adds to a
// StreamMachine.
//
// Operations that are started from outside gRPC's callbacks need a hold, which is given back once,
// when no more operations will be started. OnDone is the last callback, when every operation has
// ended and the hold is removed.
//
// Ownership and thread contract: as for StreamMachine. Written messages are released when gRPC has
// released them, whatever happens to the call meanwhile.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/grpc/sockets.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/settings.h"
#include "runtime/grpc/stream_machine.h"
#include "runtime/mutex.h"

namespace basin::client {

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
  std::string shard;       // Its name, where the other end is one beside the aggregator.
  ClientTls tls;           // Its files are read for each call,
  std::string token_file;  // as is this one. Empty: without a token.
  GrpcSettings settings;
  StreamWindow window;
  std::shared_ptr<Calls> calls;
  absl::Duration connect_time;  // For the connection to come about.
};

// For a stream whose writer itself limits the queue.
inline constexpr uint64_t kBoundedByWriter = ~uint64_t{0};

class Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
             public StreamMachine {
 public:
  // What is sent before the aggregator has sent its initial metadata.
  enum class Early : uint8_t { kFirstMessage, kAll };

  // More than `max_queued_bytes` that wait to be sent end the stream: its reader is too slow.
  Call(const CallOptions& options, const std::string& method, uint64_t max_queued_bytes,
       Early early);
  ~Call() override;

  // Opens the connection. Earlier messages are sent first. REQUIRES: called once.
  void Start();

  using StreamMachine::Write;

  // Ends the stream after all earlier messages; the connection is closed if the peer does not
  // receive them or does not answer in time.
  void Finish();

  // Ends the stream and its connection now, and drops waiting messages.
  void Cut();

  // ---- gRPC's
  void OnReadInitialMetadataDone(bool ok) final;
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnWritesDoneDone(bool ok) final;
  void OnDone(const grpc::Status& status) final;

 protected:
  // Handles a message, as OnMessage. Its bytes are held until they are Consumed. An error ends the
  // stream.
  virtual absl::Status Take(const grpc::ByteBuffer& message) = 0;

  // gRPC's, with the initial metadata of the aggregator. REQUIRES: in Take.
  const grpc::ClientContext& context() const { return *context_; }

  // The stream is over, unless Finish or Cut has been called. The last thing that is called.
  virtual void Over(const absl::Status& why) = 0;

 private:
  void StartOperation(Operation operation) final;
  Operation NextOfSide() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MaySend() const final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OnMessage(const grpc::ByteBuffer& message) final;
  void AfterMessage(const absl::Status& taken) final;
  void OnSlowReader(uint64_t waiting_bytes) final;
  void Fail(const absl::Status& why);

  // Constant until destruction.
  const std::string address_;
  const std::string shard_;
  const bool tls_;
  const uint64_t max_queued_bytes_;
  const Early early_;
  const std::shared_ptr<Calls> calls_;
  const std::shared_ptr<Sockets> sockets_ = std::make_shared<Sockets>();
  absl::Status unusable_;  // Why there are no credentials; it fails at once then.
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();

  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;      // The initial metadata have come.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;       // The owner is not called any more.
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;    // Half-close after the last write,
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;  // which has been started.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);      // Why this end has ended it, if it has.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_CALL_H_
