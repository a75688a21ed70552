// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A relay between a client and a server, for faults of connections: it forwards bytes both ways
// until the test stops it, and counts them.
//
// Thread contract: safe from any thread; it has one of its own.

#ifndef BASIN_TESTS_CLIENT_TRANSPORT_GRPC_TCP_RELAY_H_
#define BASIN_TESTS_CLIENT_TRANSPORT_GRPC_TCP_RELAY_H_

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "runtime/mutex.h"

namespace basin::client {

class TcpRelay {
 public:
  // To 127.0.0.1:`port`. Takes little into its buffers.
  explicit TcpRelay(int port);
  ~TcpRelay();

  std::string address() const;
  int port() const { return port_; }

  // Flips a bit of the next bytes like these on their way to the server, in the first of them.
  void FlipNext(std::string bytes);
  // Whether that has happened.
  bool flipped() const;

  // Ends the oldest connection.
  void CutOldest();
  // Reads nothing more; connections stay open. Returns when that is so.
  void Freeze();
  // Waits until a client of this process can write nothing more to its connection, whose buffer in
  // the kernel is made small.
  void AwaitStuck();
  uint64_t bytes_to_server() const;
  // Waits until the client has sent so many bytes.
  void AwaitBytesToServer(uint64_t bytes);

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  void Run();
  void Accept();
  // False when the connection has ended.
  bool Forward(int from, int to, bool to_server);

  const int target_;
  int listener_ = -1;
  int port_ = 0;
  int wake_[2] = {-1, -1};

  mutable Mutex mutex_;
  Condition changed_;
  bool freeze_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  bool frozen_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t to_server_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string flip_ ABSL_GUARDED_BY(mutex_);  // Empty: nothing is to be flipped.
  bool flipped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Pair> pairs_;  // For the thread only; for any thread once it is frozen.
  std::thread thread_;
};

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_TRANSPORT_GRPC_TCP_RELAY_H_
