// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The sockets on which connections arrive, and the thread that takes them. gRPC could listen by
// itself, but once a process has run out of file descriptors its listener never accepts again; this
// one waits until there are some.
//
// Thread contract: Open, Start and the destructor on one thread; `take` is called on the
// listener's. Failure: a connection that cannot be accepted waits in the kernel's queue.

#ifndef BASIN_AGGREGATOR_TRANSPORT_LISTENER_H_
#define BASIN_AGGREGATOR_TRANSPORT_LISTENER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/transport/counters.h"

namespace basin::aggregator {

class Listener {
 public:
  // "host:port" or "[host]:port"; port 0 is any that is free. 0.0.0.0 and [::] are every address of
  // the machine, of either kind.
  // Failure: UNAVAILABLE with the reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        Counter& failures);
  // Connections that were not taken yet are closed.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Gives every connection to `take`, which owns the descriptor then.
  // REQUIRES: called at most once.
  void Start(std::function<void(int fd)> take);

  int port() const { return port_; }

 private:
  explicit Listener(Counter& failures) : failures_(failures) {}

  void Run();
  // False when there is no descriptor for another connection.
  bool AcceptFrom(int socket);

  Counter& failures_;
  std::vector<int> sockets_;
  int port_ = 0;
  int stop_ = -1;  // An eventfd: readable once the thread must end.
  std::function<void(int fd)> take_;
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_LISTENER_H_
