// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/shard_process.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/simulation/world.h"

namespace basin::simulation {
namespace {

constexpr char kEndpoint[] = "shard:";
constexpr SimTime kDialAgain = 50 * kMillisecond;

}  // namespace

ShardProcess::ShardProcess(World& world, uint32_t index) : world_(world), index_(index) {}

std::string ShardProcess::name() const { return absl::StrCat("shard", index_); }

std::string ShardProcess::EndpointOf(uint32_t index) { return absl::StrCat(kEndpoint, index); }

uint32_t ShardProcess::IndexOf(const std::string& endpoint) {
  uint32_t index = 0;
  return absl::SimpleAtoi(absl::StripPrefix(endpoint, kEndpoint), &index) ? index : 0;
}

SimTime ShardProcess::Delay() {
  const SimTime delay = world_.network.Delay();
  return slow ? delay + world_.shard_random.Between(0, 20) * kMillisecond : delay;
}

// ---- the link

void ShardProcess::Start() {
  alive_ = true;
  world_.Narrate(Detail::kNotable, name(), [] { return "starts"; });
  world_.queue.After(Delay(), Happening::kShardDials, index_);
}

void ShardProcess::Dial() {
  if (!alive_ || link_.has_value()) return;
  if (world_.ShardReaches(*this)) return;
  world_.queue.After(kDialAgain, Happening::kShardDials, index_);
}

void ShardProcess::Linked(uint32_t aggregator, ShardId id) {
  link_ = aggregator;
  id_ = id;
  ++generation_;
  last_down_ = last_up_ = 0;
  cut_ = false;
  world_.Narrate(Detail::kNotable, name(),
                 [&] { return absl::StrCat("is shard ", id, " of agg", aggregator); });
}

void ShardProcess::SendDown(uint32_t generation, ToShard batch) {
  if (!link_.has_value() || cut_ || generation != generation_) return;
  down_.push_back(std::move(batch));
  last_down_ = std::max({last_down_, stalled_until_, world_.queue.now() + Delay()});
  world_.queue.At(last_down_, Happening::kShardHears, index_, generation_);
}

void ShardProcess::SendUp(FromShard what) {
  if (!link_.has_value() || cut_) return;
  up_.push_back(std::move(what));
  last_up_ = std::max({last_up_, stalled_until_, world_.queue.now() + Delay()});
  world_.queue.At(last_up_, Happening::kShardReports, index_, generation_);
}

std::optional<FromShard> ShardProcess::Take(uint32_t generation) {
  if (!link_.has_value() || generation != generation_ || up_.empty()) return std::nullopt;
  if (world_.queue.now() < stalled_until_) {
    world_.queue.At(stalled_until_, Happening::kShardReports, index_, generation_);
    return std::nullopt;
  }
  FromShard what = std::move(up_.front());
  up_.pop_front();
  return what;
}

void ShardProcess::BatchArrives(uint32_t generation) {
  if (!link_.has_value() || generation != generation_ || down_.empty()) return;
  if (world_.queue.now() < stalled_until_) {
    world_.queue.At(stalled_until_, Happening::kShardHears, index_, generation_);
    return;
  }
  ToShard batch = std::move(down_.front());
  down_.pop_front();
  std::optional<PushFrame> frame;
  if (const auto found = waiting_.find(batch.frame); found != waiting_.end()) {
    frame = std::move(found->second);
    waiting_.erase(found);
  }
  const Shell::Arrived arrived{frame.has_value() ? &*frame : nullptr, nullptr};
  for (aggregator::Action& action : batch.actions) {
    if (!alive_ || world_.checker.failed()) return;
    CarryOut(action, arrived);
  }
  CheckBytes();
}

void ShardProcess::CheckBytes() {
  const aggregator::Config& config = world_.scenario.config;
  const uint64_t own = world_.scenario.shard_memory.at(index_);
  const uint64_t budget = own == 0 ? config.memory_bytes : own;
  const uint64_t accumulator = reductions_.empty() ? 0 : aggregator::kWidening * config.frame_bytes;
  const uint64_t held = held_bytes() + accumulator;
  if (held <= budget) return;
  world_.checker.Fail(Invariant::kBoundedBytes,
                      absl::StrCat(name(), " holds ", held, " bytes (", shell_.parked_bytes(),
                                   " parked, ", shell_.result_bytes(), " of results, ", accumulator,
                                   " accumulating), and its budget is ", budget, "."));
}

void ShardProcess::CutLink() {
  if (!link_.has_value() || cut_) return;
  cut_ = true;
  world_.queue.After(world_.network.Delay(), Happening::kShardLinkLost, index_, generation_);
  world_.queue.After(world_.network.Delay(), Happening::kShardIsLost, index_, generation_);
  up_.clear();
  down_.clear();
}

void ShardProcess::Drain(SimTime most, SimTime restart) {
  if (draining_) return;
  world_.Narrate(Detail::kNotable, name(), [] { return "is asked to end"; });
  draining_ = true;
  restart_ = restart;
  if (!link_.has_value()) return End();
  SendUp(aggregator::ShardDraining{id_});
  world_.queue.After(most, Happening::kShardDrainEnds, index_, ++drains_);
}

void ShardProcess::DrainEnds(uint32_t drain) {
  if (draining_ && drain == drains_) End();
}

void ShardProcess::End() {
  Crash(false);
  world_.queue.After(restart_, Happening::kStartShard, index_);
}

void ShardProcess::StallLink(SimTime until) { stalled_until_ = std::max(stalled_until_, until); }

void ShardProcess::LinkIsLost(uint32_t generation) {
  if (!alive_ || !link_.has_value() || generation != generation_) return;
  if (draining_) return End();
  world_.Narrate(Detail::kNotable, name(), [] { return "has lost its link, and dials again"; });
  Forget();
  for (const ConnectionId connection : connections_) world_.network.CloseByAggregator(connection);
  connections_.clear();
  world_.queue.After(kDialAgain, Happening::kShardDials, index_);
}

void ShardProcess::Forget() {
  link_.reset();
  shell_ = Shell();
  waiting_.clear();
  reductions_.clear();
  up_.clear();
  down_.clear();
  stalled_until_ = 0;
}

void ShardProcess::Crash(bool reset) {
  world_.Narrate(Detail::kNotable, name(), [] { return "dies"; });
  CutLink();
  Forget();
  alive_ = stopped = draining_ = given_up = false;
  deferred.clear();
  connections_.clear();
  for (ConnectionId id = 0; id < world_.network.size(); ++id) {
    const Network::Connection& connection = world_.network[id];
    if (connection.aggregator != kFirstShard + index_) continue;
    if (!connection.aggregator_open) {
      if (connection.worker_open) world_.network.Refuse(id);
    } else if (reset) {
      world_.network.Reset(id);
    } else {
      world_.network.CloseByAggregator(id);
    }
  }
}

// ---- connections of workers

void ShardProcess::Arrive(ConnectionId id, Item item) {
  Network::Connection& connection = world_.network[id];
  if (const auto* open = std::get_if<OpenRequest>(&item)) {
    connection.aggregator_open = true;
    if (!link_.has_value()) return world_.network.CloseByAggregator(id);
    connections_.insert(id);
    return SendUp(aggregator::StreamOpened{aggregator::StreamId{id} + 1, open->token, id_});
  }
  if (std::holds_alternative<Closing>(item)) return SeesClose(id);
  auto* frame = std::get_if<PushFrame>(&item);
  if (frame == nullptr || connections_.count(id) == 0) return;
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("<- p", connection.worker, " ", Narrate(*frame)); });
  aggregator::FrameReceived event = Shell::EventOf(connection.session, *frame);
  event.shard = id_;
  waiting_.emplace(++last_frame_, std::move(*frame));
  SendUp(ShardFrame{last_frame_, std::move(event)});
}

void ShardProcess::SeesClose(ConnectionId id) {
  world_.network[id].aggregator_open = false;
  if (connections_.erase(id) == 0) return;
  SendUp(aggregator::StreamLost{aggregator::StreamId{id} + 1});
}

void ShardProcess::Reduced(uint32_t number) {
  const auto reduction = reductions_.extract(number);
  if (reduction.empty()) return;
  aggregator::ReduceDone done = shell_.Finish(reduction.mapped());
  done.shard = id_;
  SendUp(std::move(done));
}

// ---- actions

void ShardProcess::CarryOut(aggregator::Action& action, const Shell::Arrived& arrived) {
  std::visit(
      [&](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (Shell::kTakes<What>) {
          Require(shell_.CarryOut(what, arrived, *this));
        } else if constexpr (std::is_same_v<What, aggregator::AcceptStream>) {
          const auto connection = static_cast<ConnectionId>(what.stream - 1);
          if (connections_.count(connection) == 0) return;
          world_.network[connection].session = what.session;
          world_.network.SendDown(connection, OpenAccepted{});
        } else if constexpr (std::is_same_v<What, aggregator::ReleaseShard>) {
          if (held_bytes() > 0 && !given_up) {
            Require(absl::InternalError(
                absl::StrCat("it is released, and holds ", held_bytes(), " bytes")));
          }
          world_.Narrate(Detail::kNotable, name(), [] { return "is released"; });
          link_.reset();
          End();
        } else if constexpr (std::is_same_v<What, aggregator::CloseStream>) {
          const auto connection = static_cast<ConnectionId>(what.stream - 1);
          if (connections_.erase(connection) > 0) world_.network.CloseByAggregator(connection);
        } else {
          Require(absl::InternalError("an action is not for a shard"));
        }
      },
      action);
}

void ShardProcess::Require(const absl::Status& status) {
  if (status.ok()) return;
  world_.checker.Fail(
      Invariant::kContract,
      absl::StrCat("The aggregator of ", name(), " breaks the contract: ", status.message(), "."));
}

void ShardProcess::SendOn(aggregator::StreamId stream, const Frame& frame) {
  const auto connection = static_cast<ConnectionId>(stream - 1);
  if (connections_.count(connection) == 0) return;
  std::visit([&](const auto& what) { world_.network.SendDown(connection, what); }, frame);
}

void ShardProcess::Started(Reduction reduction) {
  if (world_.PlantedNow(PlantedBug::kShardStaleBytes)) {
    for (Chunk& chunk : reduction.result) ++chunk.content;
  }
  const uint32_t number = ++last_reduction_;
  reductions_.emplace(number, std::move(reduction));
  const SimTime delay = slow || world_.scenario.slow_reducer
                            ? world_.shard_random.Between(1, 30) * kMillisecond
                            : world_.shard_random.Between(20, 400);
  world_.queue.After(delay, Happening::kShardReduced, index_, number);
}

}  // namespace basin::simulation
