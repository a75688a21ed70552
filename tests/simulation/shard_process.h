// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One shard: a process without a core, which holds what stands for bytes. Its events and the
// actions for it travel over a link to the aggregator; frames come from workers on connections of
// its own. It forgets everything when the link is lost, and dials again.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_SHARD_PROCESS_H_
#define BASIN_TESTS_SIMULATION_SHARD_PROCESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "aggregator/core/event.h"
#include "tests/simulation/network.h"
#include "tests/simulation/payload.h"
#include "tests/world/aggregator_shell.h"

namespace basin::simulation {

class World;

// Connections to shard i have the aggregator number kFirstShard + i.
inline constexpr uint32_t kFirstShard = 1000;
inline bool IsShard(uint32_t aggregator) { return aggregator >= kFirstShard; }

// What a shard reports. A frame has a number, by which it is answered.
struct ShardFrame {
  uint64_t number = 0;
  aggregator::FrameReceived event;
};
using FromShard = std::variant<aggregator::StreamOpened, aggregator::StreamLost, ShardFrame,
                               aggregator::ReduceDone, aggregator::ShardDraining>;

// What one step of the aggregator asks of it. `frame`: the one that the step was given; 0: another
// event.
struct ToShard {
  uint64_t frame = 0;
  std::vector<aggregator::Action> actions;
};

class ShardProcess {
 public:
  using Shell = world::AggregatorShell<Sums>;
  using Frame = Shell::Frame;
  using Reduction = Shell::Reduction;

  ShardProcess(World& world, uint32_t index);

  // ---- the link
  // Looks for an aggregator; again, later, if there is none.
  void Dial();
  // The aggregator has taken it, under this number.
  void Linked(uint32_t aggregator, ShardId id);
  // On the link of this generation; lost if the shard has another one by now.
  void SendDown(uint32_t generation, ToShard batch);
  // The next batch of the link of this generation arrives.
  void BatchArrives(uint32_t generation);
  // The same for what it has sent, at the aggregator; absent if that link is lost.
  std::optional<FromShard> Take(uint32_t generation);
  // The link breaks; each side notices after its own time.
  void CutLink();
  void StallLink(SimTime until);
  // It notices that its link is lost.
  void LinkIsLost(uint32_t generation);
  bool IsLinkedTo(uint32_t aggregator) const { return link_ == aggregator; }
  std::optional<uint32_t> link() const { return link_; }
  uint32_t generation() const { return generation_; }

  // ---- connections of workers
  void Arrive(ConnectionId connection, Item item);
  void SeesClose(ConnectionId connection);
  void Reduced(uint32_t reduction);

  void Crash(bool reset);
  void Start();
  // It is asked to end, does so after `most` at the latest, and starts again `restart` after that.
  void Drain(SimTime most, SimTime restart);
  void DrainEnds(uint32_t drain);

  bool alive() const { return alive_; }
  uint32_t index() const { return index_; }
  std::string name() const;
  // That of its data streams, as workers are told it.
  static std::string EndpointOf(uint32_t index);
  static uint32_t IndexOf(const std::string& endpoint);
  uint64_t held_bytes() const { return shell_.parked_bytes() + shell_.result_bytes(); }
  size_t frames() const { return shell_.frames() + waiting_.size(); }
  // Nothing is on its way on the link.
  bool quiet() const { return up_.empty() && down_.empty(); }

  bool stopped = false;
  bool slow = false;
  bool given_up = false;  // The job went on without it, so it may hold what nobody asks for.
  std::vector<Scheduled> deferred;

 private:
  friend Shell;

  void SendUp(FromShard what);
  void CarryOut(aggregator::Action& action, const Shell::Arrived& arrived);
  void Require(const absl::Status& status);
  void CheckBytes();
  void SendOn(aggregator::StreamId stream, const Frame& frame);
  void Started(Reduction reduction);
  void Forget();
  // The process ends by itself.
  void End();
  SimTime Delay();

  World& world_;
  const uint32_t index_;
  bool alive_ = false;
  std::optional<uint32_t> link_;  // The aggregator at its other end.
  ShardId id_ = 0;
  uint32_t generation_ = 0;  // That of the link.
  std::deque<ToShard> down_;
  std::deque<FromShard> up_;
  SimTime last_down_ = 0;
  SimTime last_up_ = 0;
  SimTime stalled_until_ = 0;
  bool cut_ = false;  // The link is broken, and this side has not noticed it.
  bool draining_ = false;
  uint32_t drains_ = 0;
  SimTime restart_ = 0;  // After the drain.

  Shell shell_;
  std::set<ConnectionId> connections_;
  std::map<uint64_t, PushFrame> waiting_;  // Frames without an answer.
  uint64_t last_frame_ = 0;
  std::map<uint32_t, Reduction> reductions_;
  uint32_t last_reduction_ = 0;  // Not reset by Forget, so that one that is void is not found.
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_SHARD_PROCESS_H_
