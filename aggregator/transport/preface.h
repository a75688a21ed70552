// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the first bytes of a connection before gRPC gets it: only a connection that begins with
// the preface of HTTP/2, or with a handshake where the port speaks TLS, is passed on. A peer that
// speaks another protocol is refused with a reason that is counted and logged, which gRPC would not
// do; and a silent peer costs a descriptor, but no memory of gRPC.
//
// A client that speaks gRPC with TLS to a port without, or the reverse, gets an answer from which
// it can conclude that (client/transport/grpc/failure.cc).
//
// gRPC needs a fraction of a millisecond to take a connection. The addresses that connections come
// from take turns, so that a flood from one delays no worker elsewhere, and what one of them has
// waiting is bounded. Addresses that runtime/grpc/peer.h counts as one have one turn. One that has
// flooded gRPC has none for a while (held_back.h), nor has one that has no room (newcomers.h).
//
// Thread contract: OnConnection from any thread. `pass` is called on the thread that waits, and
// owns the descriptor then; `refuse` on that thread and on those of OnConnection.
// Failure: none; a connection that sends nothing in time is closed. When too many wait, the oldest
// of their address is closed, or of silent ones the oldest of an address that has most of them.

#ifndef BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_
#define BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/transport/counters.h"
#include "aggregator/transport/held_back.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class PrefaceCheck {
 public:
  using Pass = std::function<void(int descriptor)>;
  // What counts the violation, the address of the peer, without its port, and the violation, as a
  // sentence.
  using Refuse = std::function<void(Counter TransportCounters::*counter, const std::string& address,
                                    const std::string& what)>;

  enum class Protocol : uint8_t { kPlain, kTls };

  // Whether another connection of this source may be passed on.
  using HasRoom = std::function<bool(const std::string& source)>;

  // `most` connections of one address wait for their turn, and `most` in all for their first bytes.
  // `held_back` must outlive it.
  PrefaceCheck(Protocol protocol, absl::Duration timeout, size_t most, const HeldBack& held_back,
               Pass pass, Refuse refuse, HasRoom has_room = nullptr);
  // Connections that wait are closed.
  ~PrefaceCheck();
  PrefaceCheck(const PrefaceCheck&) = delete;
  PrefaceCheck& operator=(const PrefaceCheck&) = delete;

  void OnConnection(int descriptor);

  // Connections that were neither passed on nor closed yet.
  size_t waiting() const { return waiting_; }

 private:
  struct Connection {
    int descriptor;
    std::string address;  // The peer's, without its port.
    std::string source;   // What is limited: SourceOf(address).
  };
  struct Silent {
    Connection connection;
    std::chrono::steady_clock::time_point until;
  };

  void Run();
  // It waits for its turn.
  void Queue(Connection connection);
  bool MayPass(const std::string& source) const;
  // Those whose turn it is; empty when no more have arrived.
  std::vector<Connection> TakeArrived() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When it will be the turn of one that has arrived.
  std::chrono::steady_clock::time_point NextArrival() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForBytes(Connection connection);
  // False once the descriptor has been closed, for example because its time has passed.
  bool Look(const Connection& connection, bool time_is_up);
  // What the bytes that a peer began with mean for it.
  enum class Verdict : uint8_t { kPass, kWait, kRefuse };
  Verdict Judge(std::string_view begin) const;
  void RefuseBeginning(const Connection& connection, std::string_view begin);
  void Close(const Connection& connection);
  void RefuseFor(Counter TransportCounters::*counter, const Connection& connection,
                 const std::string& what);

  // Constant after construction.
  const Protocol protocol_;
  const std::chrono::steady_clock::duration timeout_;
  const size_t most_;
  const HeldBack& held_back_;
  const Pass pass_;
  const Refuse refuse_;
  const HasRoom has_room_;
  const int wake_;  // An eventfd: readable when there is work.

  std::atomic<size_t> waiting_{0};

  std::list<Silent> silent_;  // For the thread only; in the order of arrival.

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::deque<Connection>> arrived_ ABSL_GUARDED_BY(mutex_);  // By source.

  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_
