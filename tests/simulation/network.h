// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Connections between worker processes and aggregator processes. Each is a pair of FIFO pipes with
// its own delay; nothing orders two connections. A connection can be
//
//   closed   by one side (its process exits or decides so): what it had sent still arrives, then
//            the other side sees the close
//   reset    by the network: what is on its way is lost, and each side sees a close at its own time
//   silent   half open: what is on its way and all that follows is lost; each side notices later
//   stalled  nothing arrives until some time, and then everything does, in order (a partition that
//            TCP survives), in one direction or both
//
// The scenarios and the explorer have networks of their own. In a scenario nothing moves by itself:
// the script takes an item from any pipe, and one close ends a session with all its streams. The
// explorer's queues are numbers of items, which it compares and hashes millions of times.
//
// Thread contract: one run, one network, one thread.

#ifndef BASIN_TESTS_SIMULATION_NETWORK_H_
#define BASIN_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "tests/simulation/event_queue.h"
#include "tests/simulation/payload.h"
#include "tests/simulation/random.h"

namespace basin::simulation {

// The number of a connection in the run, which is never reused.
using ConnectionId = uint32_t;

inline constexpr int32_t kSessionStream = -1;

class Network {
 public:
  struct Pipe {
    std::deque<Item> items;
    SimTime last = 0;  // When the last item arrives.
    SimTime stalled_until = 0;
    bool dead = false;  // Items on their way, and all that follow, are lost.
  };
  struct Connection {
    uint32_t worker = 0;      // Process.
    uint32_t aggregator = 0;  // Process.
    int32_t stream = kSessionStream;
    uint64_t session = 0;  // The aggregator's number for it, once accepted.
    bool worker_open = true;
    bool aggregator_open = false;
    Pipe up;
    Pipe down;
  };

  Network(EventQueue& queue, uint64_t seed, SimTime latency, SimTime jitter)
      : queue_(queue), random_(seed), latency_(latency), jitter_(jitter) {}

  // Opens a connection; an OpenRequest is on its way up.
  ConnectionId Open(uint32_t worker, uint32_t aggregator, int32_t stream, SessionToken token);

  Connection& operator[](ConnectionId id) { return connections_[id]; }
  ConnectionId size() const { return static_cast<ConnectionId>(connections_.size()); }

  void SendUp(ConnectionId id, Item item);
  void SendDown(ConnectionId id, Item item);

  // Returns the next item that arrives, unless it was lost, the receiver has closed, or the pipe is
  // stalled.
  std::optional<Item> ArriveUp(ConnectionId id);
  std::optional<Item> ArriveDown(ConnectionId id);

  // The side stops reading and writing; the other side sees that after what was sent earlier.
  void CloseByWorker(ConnectionId id);
  void CloseByAggregator(ConnectionId id);

  // No process listens there, so the worker sees the connection close.
  void Refuse(ConnectionId id);

  void Reset(ConnectionId id);
  // Each side notices after its own time, at most `notice`.
  void GoSilent(ConnectionId id, SimTime notice);
  void Stall(ConnectionId id, SimTime until, bool up, bool down);

  SimTime Delay();

 private:
  void Send(Pipe& pipe, Happening arrival, ConnectionId id, Item item);
  std::optional<Item> Arrive(Pipe& pipe, bool open, Happening arrival, ConnectionId id);

  EventQueue& queue_;
  Random random_;
  const SimTime latency_;
  const SimTime jitter_;
  std::deque<Connection> connections_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_NETWORK_H_
