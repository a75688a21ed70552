// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A gRPC server without knowledge of Basin: it accepts any call, which the test handles with raw
// messages.
//
// Every wait is for an event, and fails the test after a minute.
//
// Thread contract: the test's side belongs to one thread.

#ifndef BASIN_TESTS_CLIENT_TRANSPORT_GRPC_RAW_SERVER_H_
#define BASIN_TESTS_CLIENT_TRANSPORT_GRPC_RAW_SERVER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/mutex.h"

namespace basin::client {

// The server's end of a stream.
class RawCall {
 public:
  std::string method() const { return method_; }
  std::string peer() const { return peer_; }  // The client's address and port.

  // The next message of the client; empty when the client's side has ended.
  std::string AwaitMessage();
  // Whether the client closed its side without an error, after the received messages.
  bool AwaitHalfClose();
  void AwaitCancelled();
  // The initial metadata. REQUIRES: nothing was sent, and `greets_at_once` was not set.
  void Greet();
  void Send(const std::string& message);
  void End(const grpc::Status& status);

  uint64_t sent() const;      // Messages that gRPC has taken.
  uint64_t received() const;  // Messages that were not taken yet.

 private:
  friend class RawServer;
  class Reactor;
  struct State {
    mutable Mutex mutex;
    Condition changed;
    std::deque<std::string> received ABSL_GUARDED_BY(mutex);
    bool read_ended ABSL_GUARDED_BY(mutex) = false;
    bool cancelled ABSL_GUARDED_BY(mutex) = false;
    bool done ABSL_GUARDED_BY(mutex) = false;
    uint64_t sent ABSL_GUARDED_BY(mutex) = 0;
    Reactor* reactor ABSL_GUARDED_BY(mutex) = nullptr;  // Null once it is over.
  };

  std::string method_;
  std::string peer_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class RawServer : private grpc::CallbackGenericService {
 public:
  // Additional settings of the builder; `port` 0: any.
  explicit RawServer(int port = 0, void (*configure)(grpc::ServerBuilder&) = nullptr);
  // Ends every call.
  ~RawServer() override;

  int port() const { return port_; }
  std::string address() const;

  // New calls get the initial metadata.
  std::atomic<bool> greets_at_once{true};

  // The next call that was not taken.
  std::shared_ptr<RawCall> AwaitCall();

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  int port_ = 0;
  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<RawCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_TRANSPORT_GRPC_RAW_SERVER_H_
