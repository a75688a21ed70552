// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Limits a connection until its first valid message. gRPC uses unbounded memory for headers that do
// not end and for calls that are reset at once; the connection of a worker brings one call and a
// valid message. Until then a connection is watched from outside of gRPC: the bytes that the kernel
// received on it are compared with the messages that gRPC delivered. A connection that exceeds the
// needs of a correct peer is closed. When too many of one address (SourceOf in runtime/grpc/peer.h)
// have sent no valid message yet, the one that has waited longest is closed, so that a peer that
// opens many cannot take all descriptors, and another behind the same address still gets in.
//
// A connection is watched through a separate descriptor, so that never another one is closed; the
// descriptor is released with the first valid message.
//
// Thread contract: safe from any thread; `refuse` and `left` are called on the thread that watches.
// Failure: a connection that cannot be watched, for lack of a descriptor, is not.

#ifndef BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_
#define BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/mutex.h"

namespace basin::aggregator {

// Why one of so many connections of an address is closed.
std::string CrowdOf(size_t most);

class Newcomers {
 public:
  // The address of the peer, without its port, and its violation, as a sentence.
  using Refuse = std::function<void(const std::string& address, const std::string& what)>;

  // The address of a peer whose connection ended before its first call.
  using Left = std::function<void(const std::string& address)>;

  Newcomers(size_t most_of_an_address, Refuse refuse, Left left);
  ~Newcomers();
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  // A connection that gRPC is about to get.
  void Add(int descriptor);

  // By gRPC's name for its other end: a call began, a message of it came, it made sense.
  void Began(const std::string& peer);
  void Came(const std::string& peer, uint64_t bytes);
  void Introduced(const std::string& peer);

 private:
  struct Newcomer {
    int descriptor = -1;  // -1: it was displaced.
    uint64_t number = 0;  // In the order in which they came.
    uint32_t calls = 0;
    uint64_t message_bytes = 0;

    bool displaced() const { return descriptor < 0; }
  };

  void Run();
  struct Findings {
    std::vector<std::pair<std::string, std::string>> violations;  // Addresses, and sentences.
    std::vector<std::string> left;                                // Addresses.
  };
  using ByPeer = std::map<std::string, Newcomer>;
  // Cuts off the one that came first, if there are too many from there.
  void MakeRoom(const std::string& source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the next one.
  ByPeer::iterator Forget(ByPeer::iterator newcomer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks all connections.
  Findings Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_of_an_address_;
  const Refuse refuse_;
  const Left left_;

  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ByPeer newcomers_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  // Those that were not displaced, by SourceOf their address: peers by their number.
  std::map<std::string, std::map<uint64_t, std::string>> of_source_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_
