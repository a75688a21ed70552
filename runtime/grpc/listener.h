// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The sockets on which connections for a gRPC server arrive, and the thread that takes them. gRPC
// could listen by itself, but once a process has run out of file descriptors its listener never
// accepts again; this one waits until there are some.
//
// Thread contract: Open, Start and the destructor on one thread; `take`, `wait` and `promised` are
// called on the listener's. Failure: a connection that cannot be accepted waits in the kernel's
// queue.

#ifndef BASIN_RUNTIME_GRPC_LISTENER_H_
#define BASIN_RUNTIME_GRPC_LISTENER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace basin {

class Listener {
 public:
  // "host:port" or "[host]:port"; port 0 is any free port. 0.0.0.0 and [::] mean all addresses of
  // the machine, IPv4 and IPv6. `failures` counts how often there was no file descriptor for a
  // connection; it outlives the listener. `kept` descriptors, but at most a quarter of the
  // process's limit, are left to other uses: connections that would need them wait. Failure:
  // UNAVAILABLE with the reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        std::atomic<uint64_t>& failures,
                                                        uint32_t kept = 0);
  // Connections that were not taken yet are closed.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Passes every connection to `take`, which then owns the descriptor. `wait` is called with true
  // when a connection must wait for a descriptor, and with false when none waits any longer.
  // `promised` says how many more descriptors the connections that were taken will need, beside
  // those that are kept. REQUIRES: called at most once.
  void Start(std::function<void(int fd)> take, std::function<void(bool waits)> wait = nullptr,
             std::function<size_t()> promised = nullptr);

  int port() const { return port_; }
  // One of those that it listens on.
  int socket() const { return sockets_.front(); }

 private:
  Listener(std::atomic<uint64_t>& failures, uint32_t kept) : failures_(failures), kept_(kept) {}

  void Run();
  // False when there is no descriptor for another connection.
  bool AcceptFrom(int socket);
  bool HasDescriptor() const;

  std::atomic<uint64_t>& failures_;
  const uint32_t kept_;
  std::vector<int> sockets_;
  int port_ = 0;
  int stop_ = -1;  // An eventfd: readable once the thread must end.
  std::function<void(int fd)> take_;
  std::function<void(bool waits)> wait_;
  std::function<size_t()> promised_;
  std::thread thread_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_LISTENER_H_
