// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The socket at which workers on this machine share memory with the aggregator. A worker presents
// the token of its session, as on a data stream; then both pass segments (runtime/shared_memory).
//
// Thread contract: safe from any thread; has one thread of its own, which never waits for a peer.
// Failure: a peer that presents no valid token in time, or breaks the rules, loses its connection
// and is counted and reported; its session goes on, over the network.

#ifndef BASIN_AGGREGATOR_TRANSPORT_LOCAL_H_
#define BASIN_AGGREGATOR_TRANSPORT_LOCAL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "aggregator/transport/counters.h"
#include "aggregator/transport/past_tokens.h"
#include "protocol/ids.h"
#include "runtime/mutex.h"
#include "runtime/shared_memory/private_directory.h"
#include "runtime/shared_memory/segments.h"
#include "runtime/shared_memory/socket.h"

namespace basin::aggregator {

class LocalServer {
 public:
  // The violation of a peer, as a sentence.
  using Report = std::function<void(const std::string& what)>;

  // `name`: as runtime/shared_memory/socket.h has it; empty for one in a directory that only this
  // user can enter; those of killed processes are removed then. `most_bytes`: what one session may
  // share. `devices`: what opens memory of a worker's device; null: none is taken, and what it
  // refuses is passed to `refused`, as a sentence. REQUIRES: `counters` and `devices` outlive it.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(
      const std::string& name, uint64_t most_bytes, TransportCounters& counters, Report report,
      const DeviceOpener* devices = nullptr, Report refused = nullptr);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  const std::string& name() const { return name_; }

  // From now on a worker may present this token.
  void Admit(SessionToken token);
  // The token is refused from now on. Payloads keep what they refer to.
  void Forget(SessionToken token);

  // The memory that the session shares; null if none.
  std::shared_ptr<Segments> Find(SessionToken token) const;

  // Withdraws what is offered to workers and used here no more. Otherwise they would keep it until
  // the next offer.
  void WithdrawUnused() const;

  // Over all sessions.
  uint64_t SumOf(uint64_t (Segments::*bytes)() const) const;

 private:
  struct Connection {
    std::shared_ptr<Segments> segments;
    std::chrono::steady_clock::time_point until;  // For its token.
    std::optional<SessionToken> token;
  };

  LocalServer(std::string name, std::unique_ptr<PrivateDirectory> directory, uint64_t most_bytes,
              int listener, int wake, TransportCounters& counters, Report report,
              const DeviceOpener* devices, Report refused);
  void Run();
  void Accept();
  // False: the connection is over.
  bool OnReadable(Connection& connection);
  bool Open(Connection& connection, const SegmentMessage& message);
  void Refuse(const std::string& what);

  const std::unique_ptr<PrivateDirectory> directory_;  // Null: the socket has a given name.
  const std::string name_;
  const std::optional<SocketFile> file_;
  const uint64_t most_bytes_;
  const int listener_;
  const int wake_;  // Readable when it ends.
  TransportCounters& counters_;
  const Report report_;
  const DeviceOpener* const devices_;
  const Report refused_;
  std::list<Connection> connections_;                   // The thread's,
  std::chrono::steady_clock::time_point accept_again_;  // as is this.

  mutable Mutex mutex_;
  // Null until the worker has presented the token.
  absl::flat_hash_map<SessionToken, std::shared_ptr<Segments>> sessions_ ABSL_GUARDED_BY(mutex_);
  PastTokens past_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_LOCAL_H_
