// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

namespace basin::simulation {

SimTime Network::Delay() {
  // Most frames are fast; a few are much slower, so that connections overtake each other.
  const SimTime delay = latency_ + random_.Between(0, jitter_);
  return random_.Chance(3) ? delay + 10 * jitter_ : delay;
}

ConnectionId Network::Open(uint32_t worker, uint32_t aggregator, int32_t stream,
                           SessionToken token) {
  const ConnectionId id = size();
  Connection& connection = connections_.emplace_back();
  connection.worker = worker;
  connection.aggregator = aggregator;
  connection.stream = stream;
  SendUp(id, OpenRequest{token});
  return id;
}

void Network::Send(Pipe& pipe, Happening arrival, ConnectionId id, Item item) {
  if (pipe.dead) return;
  pipe.last = std::max({pipe.last, pipe.stalled_until, queue_.now() + Delay()});
  pipe.items.push_back(std::move(item));
  queue_.At(pipe.last, arrival, id);
}

void Network::SendUp(ConnectionId id, Item item) {
  Connection& connection = connections_[id];
  if (connection.worker_open) Send(connection.up, Happening::kArriveUp, id, std::move(item));
}

void Network::SendDown(ConnectionId id, Item item) {
  Connection& connection = connections_[id];
  if (connection.aggregator_open) {
    Send(connection.down, Happening::kArriveDown, id, std::move(item));
  }
}

// Each arrival takes the front item, so a stalled pipe keeps its order.
std::optional<Item> Network::Arrive(Pipe& pipe, bool open, Happening arrival, ConnectionId id) {
  if (pipe.dead || pipe.items.empty()) return std::nullopt;
  if (queue_.now() < pipe.stalled_until) {
    queue_.At(pipe.stalled_until, arrival, id);
    return std::nullopt;
  }
  Item item = std::move(pipe.items.front());
  pipe.items.pop_front();
  if (!open) return std::nullopt;
  return item;
}

std::optional<Item> Network::ArriveUp(ConnectionId id) {
  Connection& connection = connections_[id];
  // The request to open arrives before the aggregator's side is open.
  const bool open = connection.aggregator_open ||
                    (!connection.up.items.empty() &&
                     std::holds_alternative<OpenRequest>(connection.up.items.front()));
  return Arrive(connection.up, open, Happening::kArriveUp, id);
}

std::optional<Item> Network::ArriveDown(ConnectionId id) {
  Connection& connection = connections_[id];
  return Arrive(connection.down, connection.worker_open, Happening::kArriveDown, id);
}

void Network::CloseByWorker(ConnectionId id) {
  SendUp(id, Closing{});
  connections_[id].worker_open = false;
}

void Network::CloseByAggregator(ConnectionId id) {
  SendDown(id, Closing{});
  connections_[id].aggregator_open = false;
}

void Network::Refuse(ConnectionId id) { queue_.After(Delay(), Happening::kWorkerSeesClose, id); }

void Network::Reset(ConnectionId id) {
  Connection& connection = connections_[id];
  connection.up.dead = connection.down.dead = true;
  queue_.After(Delay(), Happening::kWorkerSeesClose, id);
  queue_.After(Delay(), Happening::kAggregatorSeesClose, id);
}

void Network::GoSilent(ConnectionId id, SimTime notice) {
  Connection& connection = connections_[id];
  connection.up.dead = connection.down.dead = true;
  queue_.After(random_.Between(0, notice), Happening::kWorkerSeesClose, id);
  queue_.After(random_.Between(0, notice), Happening::kAggregatorSeesClose, id);
}

void Network::Stall(ConnectionId id, SimTime until, bool up, bool down) {
  Connection& connection = connections_[id];
  if (up) connection.up.stalled_until = std::max(connection.up.stalled_until, until);
  if (down) connection.down.stalled_until = std::max(connection.down.stalled_until, until);
}

}  // namespace basin::simulation
