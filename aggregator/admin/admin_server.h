// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basin.v1.Admin on its own listener: the interface for operators.
//
// It decides nothing: it reads the engine from the engine's loop, and passes commands to it; the
// gatekeeper decides which caller may make which call. Without one, every peer that reaches the
// address is an operator, so it belongs on the loopback then.
//
// Connections are checked and limited like those of workers until their first valid call
// (aggregator/transport/preface.h, newcomers.h).
//
// Thread contract: Start, Stop and the destructor from one thread. Stop the server while the engine
// still runs, or calls that wait for the engine time out. Failure: UNAVAILABLE when the address
// cannot be listened on.

#ifndef BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_
#define BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/memory_use.h"
#include "aggregator/transport/counters.h"
#include "aggregator/transport/held_back.h"
#include "aggregator/transport/newcomers.h"
#include "aggregator/transport/preface.h"
#include "aggregator/transport/registry.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/listener.h"

namespace basin::aggregator {

class AdminService;
class UnknownCalls;

// Whether this one of several aggregators leads, and what an operator should know about that.
struct LeaderInWords {
  bool leads = false;
  std::string words;
};

struct AdminOptions {
  std::string address;               // host:port; port 0: any that is free.
  PemSource tls;                     // Null: without TLS. Outlives the server.
  Gatekeeper* gatekeeper = nullptr;  // Outlives the server. Null: everything is allowed.
  // Receives refusals. From any thread.
  Registry::Report report;
  // Receives what an operator has changed, and of which job (empty: of no single one). From any
  // thread.
  std::function<void(const std::string& job, const std::string& what)> on_change;
  // The file descriptors that are left to others while connections wait.
  uint32_t kept_descriptors = 0;
  absl::Duration handshake_timeout = absl::Seconds(10);
  // A peer that answers no ping for so long is gone, and its calls end: a watcher of events whose
  // machine has failed would otherwise keep its place for as long as the kernel tries, a quarter of
  // an hour.
  absl::Duration keepalive = absl::Seconds(20);
  std::string version;
  std::string reduce_device;  // What adds gradients up, in words.
  // What the memory of the process is in use for, with what the loop knows of it. Null: it is not
  // shown.
  std::function<std::vector<MemoryUse>(const LoopMemory& loop)> memory_use;
  // DrainService calls it; it acts like SIGTERM.
  std::function<void()> end;
  // StepDown calls it; it returns when another aggregator may lead. Null: there is no other one.
  std::function<absl::Status()> step_down;
  std::function<LeaderInWords()> leader;  // Null likewise.
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
  // Violations by peers, and how often there was no file descriptor. From any thread.
  const TransportCounters& counters() const { return counters_; }
  // Ends the calls in progress. Idempotent.
  void Stop();

 private:
  AdminServer();

  int port_ = 0;
  TransportCounters counters_;
  // Before `server_`, whose calls use it.
  HeldBack held_back_;
  std::unique_ptr<Newcomers> newcomers_;
  std::unique_ptr<PrefaceCheck> preface_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<AdminService> service_;
  std::unique_ptr<UnknownCalls> unknown_calls_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_ADMIN_SERVER_H_
