// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basin.v1.Admin on its own listener: the interface for operators.
//
// It decides nothing: it reads the engine from the engine's loop, and passes commands to it; the
// gatekeeper decides which caller may make which call. Without one, every peer that reaches the
// address is an operator, so it belongs on the loopback then.
//
// Thread contract: Start, Stop and the destructor from one thread. Stop the server while the engine
// still runs, or calls that wait for the engine time out. Failure: UNAVAILABLE when the address
// cannot be listened on.

#ifndef BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_
#define BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/events.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/listener.h"

namespace basin::aggregator {

class AdminService;
class UnknownCalls;

struct AdminOptions {
  std::string address;               // host:port; port 0: any that is free.
  ServerTls tls;                     // Checked (aggregator/tls/files.h).
  Gatekeeper* gatekeeper = nullptr;  // Outlives the server. Null: everything is allowed.
  // Receives refusals: the address without a port, and a sentence. From any thread.
  std::function<void(const std::string& address, const std::string& what)> report;
  std::string version;
  Term term = 0;
  std::string reduce_device;  // What adds gradients up, in words.
  // DrainService calls it; it acts like SIGTERM.
  std::function<void()> end;
};

class AdminServer {
 public:
  // REQUIRES: engine and events outlive the server.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(AdminOptions options, Engine& engine,
                                                            EventHistory& events);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  int port() const { return port_; }
  // How often there was no file descriptor for another connection. From any thread.
  uint64_t accept_failures() const { return accept_failures_; }
  // Ends the calls in progress. Idempotent.
  void Stop();

 private:
  AdminServer();

  int port_ = 0;
  std::atomic<uint64_t> accept_failures_{0};
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<AdminService> service_;
  std::unique_ptr<UnknownCalls> unknown_calls_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_
