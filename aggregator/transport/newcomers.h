// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Limits a connection until its first valid message. gRPC uses unbounded memory for headers that do
// not end and for calls that are reset at once; the connection of a worker brings one call and a
// valid message, which is small: a worker with more to send waits for the answer. Until then a
// connection is watched from outside of gRPC, by the bytes that the kernel received on it. One that
// exceeds the needs of a correct peer is reset, and what gRPC has not read of it is gone. The same
// holds for a peer that ends such connections itself and opens others. When too many of one address
// (SourceOf in runtime/grpc/peer.h) have sent no valid message yet, the one that has waited longest
// is closed, so that a peer that opens many cannot take all descriptors, and another behind the
// same address still gets in.
//
// A handshake of TLS takes a few hundred kilobytes and some milliseconds. So the next connection of
// an address waits (preface.h) while `most_waiting` of them have begun no call, and those that then
// take longer than a second are reset.
//
// A connection is watched through a separate descriptor, so that never another one is closed. With
// the first valid message it is released, and the connection is passed to overhead.h.
//
// Thread contract: safe from any thread; `refuse` and `left` are called on the thread that watches.
// Failure: a connection that cannot be watched, for lack of a descriptor, is not.

#ifndef BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_
#define BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aggregator/transport/overhead.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// Why one of so many connections of an address is closed.
std::string CrowdOf(size_t most);

class Newcomers {
 public:
  // The address of the peer, without its port, its violation, as a sentence, and whether gRPC was
  // flooded: it was not by a peer that only opened too many connections.
  using Refuse =
      std::function<void(const std::string& address, const std::string& what, bool flooded)>;

  // The address of a peer whose connection ended before its first call.
  using Left = std::function<void(const std::string& address)>;

  // `guard`: for those that have sent a valid message; without one they are not watched.
  Newcomers(size_t most_of_an_address, Refuse refuse, Left left,
            size_t most_waiting = std::numeric_limits<size_t>::max(),
            OverheadGuard* guard = nullptr);
  ~Newcomers();
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  // A connection that gRPC is about to get.
  void Add(int descriptor);

  // Whether gRPC may get another one of this source (SourceOf an address).
  bool HasRoom(const std::string& source);

  // By gRPC's name for its other end: a call began, its first message made sense.
  void Began(const std::string& peer);
  // Returns where the call counts its messages (OverheadGuard::Introduced); null: nowhere.
  std::shared_ptr<OverheadGuard::Traffic> Introduced(const std::string& peer);

 private:
  struct Newcomer {
    int descriptor = -1;  // -1: it was displaced.
    uint64_t number = 0;  // In the order in which they came.
    std::chrono::steady_clock::time_point came;
    uint32_t calls = 0;

    bool displaced() const { return descriptor < 0; }
  };

  // The connections of one that were not displaced.
  struct Source {
    std::map<uint64_t, std::string> peers;  // By their number.
    size_t waiting = 0;                     // That have begun no call.
  };

  void Run();
  // Waits for something to happen on a connection, and not for long if some take too long.
  void AwaitNews(bool crowded);
  // For the thread.
  void Wake();
  struct Violation {
    std::string address;
    std::string what;
    bool flooded = true;
  };
  struct Findings {
    std::vector<Violation> violations;
    std::vector<std::string> left;  // Addresses.
    bool crowded = false;           // A source has no room.
  };
  using ByPeer = std::map<std::string, Newcomer>;
  // Cuts off the one that came first, if there are too many from there.
  void MakeRoom(const std::string& source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Watches it no longer.
  void Release(int descriptor);
  // Returns the next one.
  ByPeer::iterator Forget(ByPeer::iterator newcomer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks all connections.
  Findings Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A connection brought so many bytes, and ended without a valid message. Whether such connections
  // of this source have brought too much by now.
  bool Exhausts(const std::string& source, uint64_t bytes);

  const size_t most_of_an_address_;
  const Refuse refuse_;
  const Left left_;
  const size_t most_waiting_;
  OverheadGuard* const guard_;
  const int news_;  // An epoll with each connection, edge-triggered, and `wake_`.
  const int wake_;  // An eventfd.

  // For the thread only.
  struct Tally {
    double bytes = 0;
    std::chrono::steady_clock::time_point at;
  };
  std::map<std::string, Tally> tallies_;  // By source.

  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ByPeer newcomers_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Source> sources_ ABSL_GUARDED_BY(mutex_);  // By SourceOf an address.

  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_NEWCOMERS_H_
