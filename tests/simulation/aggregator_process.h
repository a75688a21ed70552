// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of the aggregator: its process (tests/world), its connections, what checks its actions,
// and faults, which may end it between two actions.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_SIMULATION_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/lives.h"
#include "tests/simulation/network.h"
#include "tests/simulation/payload.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/shard_process.h"
#include "tests/simulation/ticker.h"
#include "tests/world/aggregator_process.h"

namespace basin::simulation {

class World;

class AggregatorProcess : public world::AggregatorProcess<Sums> {
 public:
  AggregatorProcess(World& world, uint32_t index, aggregator::Config config);

  // ---- events
  void Arrive(ConnectionId connection, Item item);
  void SeesClose(ConnectionId connection);
  void Timer();
  void Reduced(uint32_t reduction);
  void Saved(uint32_t save);
  void Command(const aggregator::Event& event);
  // Its kernel has received nothing of the session for so long.
  void HearsNothing(aggregator::SessionId session, SimTime unheard);

  // ---- shards
  // A shard has dialed. One that this process has still, under an earlier number, is lost.
  void TakeShard(ShardProcess& shard);
  void FromShard(ShardProcess& shard, uint32_t generation);
  void LoseShard(uint32_t index);
  // It drains, and was told that no round needs it.
  void EndReleased(ShardId shard);
  // Whether it has this link of the shard.
  bool HasShard(uint32_t index, uint32_t generation) const;

  // The process ends. Everything that it has sent still arrives, unless `reset`.
  void Crash(bool reset);

  bool alive() const { return alive_; }
  uint32_t index() const { return index_; }
  std::string name() const;
  const aggregator::Job* job() const;
  uint64_t held_bytes() const { return shell_.parked_bytes() + shell_.result_bytes(); }
  // Describes what it waits for.
  std::string Explain() const;

  bool stopped = false;
  std::vector<Scheduled> deferred;  // Events that came while it was stopped.

 private:
  // Returns what the workers of its recovery knew.
  Knowledge Recovered() const;
  void ForgetOutvoted();
  using Base = world::AggregatorProcess<Sums>;
  friend Base;
  friend Base::Shell;

  void Step(const aggregator::Event& event);
  // Whether the action is carried out, unless a fault ends this process before.
  bool Allows(const aggregator::Action& action);
  bool Allows(const aggregator::Reduce& reduce);
  void Check(const std::vector<aggregator::Action>& actions);

  void Do(aggregator::Send& send);
  void Do(aggregator::SendAll& send);
  void Do(aggregator::EndSession& end);
  void Do(aggregator::ResultsTaken&) {}
  void Do(aggregator::AcceptStream& accept);
  void Do(aggregator::CloseStream& close);
  void Do(aggregator::SaveState& save);
  void Do(aggregator::SaveSettings&) {}  // No operator sets anything here.
  void Do(aggregator::Note& note);
  void Do(aggregator::ReleaseShard&) {}  // The shard does.
  void Do(aggregator::Drained&);

  // Keeps an action for the shards that it is for; carries it out here if that includes this one.
  void Route(aggregator::Action& action);
  void SendToShards();

  void OnOpen(ConnectionId connection, const OpenRequest& request);
  void OnMessage(ConnectionId connection, ToAggregator& message);
  void OnPush(ConnectionId connection, const PushFrame& frame);
  void SendOn(aggregator::StreamId stream, const Frame& frame);
  void Started(Reduction reduction);
  // Sends what waits.
  void Flush(aggregator::SessionId session);
  // Fails the run, because a bad status breaks the contract between a core and its runner.
  void Require(const absl::Status& status);
  // The ledger of each lane is charged for what it takes.
  void CheckLedgers();
  // No sample is lost, and none has two holders.
  void CheckSamples();
  void PlantIn(Reduction& reduction);
  // Learns from the core which lanes it has now, and which it has let go in this step.
  void FollowLives();
  // In which life a lane is that the core has recovered.
  Life RecoveredLife(const aggregator::Lane& lane, uint32_t model) const;
  Life LifeOf(const LaneLayout& layout) const;
  // The life of the lane that has the name now, or had it last; absent if no lane has it.
  std::optional<Life> LifeNamed(const std::string& name) const;
  std::optional<Life> LifeAt(LaneIndex lane) const;
  // A worker in this session is told the layout.
  void Tell(ConnectionId session, const LaneLayout& layout);

  World& world_;
  const uint32_t index_;
  bool alive_ = true;
  Ticker ticker_;

  std::map<aggregator::SessionId, ConnectionId> sessions_;  // Those that are open.
  // Messages to them that can wait for another one.
  std::map<aggregator::SessionId, std::vector<ToWorker>> waiting_;
  aggregator::SessionId next_session_ = 0;
  std::map<uint32_t, Reduction> reductions_;  // In progress, by number.
  uint32_t last_reduction_ = 0;
  std::vector<aggregator::SaveState> saves_;
  // By worker, what the workers of its last recovery know; and what the aggregator knew earlier, if
  // it recovered because that was lost.
  std::map<WorkerId, Knowledge> knowledge_;
  Knowledge orphaned_;
  // From the last hello of each worker before a recovery; the empty id has that of the state file.
  std::map<WorkerId, Membership> lists_;
  uint32_t recoveries_ = 0;  // How many have begun.
  bool recovering_ = false;  // It began or ended a recovery in this step.
  bool refused_ = false;     // It refused a worker in this step.
  // The lives of the lanes, as the workers were told them: the core may give an index to another
  // lane in the step in which it says the last about this one.
  std::map<LaneIndex, Life> told_;
  // Where lanes are let go: those of the core's lanes now, and their next rounds; the names that it
  // has let go; and what workers remembered in their last hellos.
  struct Followed {
    Life life = 0;
    RoundNumber next = 0;
  };
  std::map<LaneIndex, Followed> lives_;
  std::set<uint32_t> let_go_;
  struct Remembered {
    LaneIndex lane = 0;
    RoundNumber last = 0;
    uint64_t chain = 0;
    Life life = 0;
  };
  std::map<WorkerId, std::map<std::string, Remembered>> remembered_;
  uint32_t verdicts_in_step_ = 0;

  struct LinkedShard {
    uint32_t index = 0;
    uint32_t generation = 0;
    ToShard batch;  // What this step asks of it.
  };
  std::map<ShardId, LinkedShard> shards_;
  ShardId last_shard_ = 0;
  std::optional<std::pair<ShardId, uint64_t>> answers_;  // The frame that this step was given.

  std::vector<aggregator::Action> actions_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_AGGREGATOR_PROCESS_H_
