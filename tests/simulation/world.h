// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One run: processes, network, clock and faults; and the supervisor that restarts dead processes
// and the operator that decides what a machine must not.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_WORLD_H_
#define BASIN_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/aggregator_process.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/shard_process.h"
#include "tests/simulation/trace.h"
#include "tests/simulation/worker_process.h"

namespace basin::simulation {

inline constexpr char kJobName[] = "sim";
inline constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

class World {
 public:
  World(const Scenario& the_scenario, Detail detail);

  // Runs to the end, to the first violation, or until `until`.
  void Run(SimTime until);

  // ---- for the processes
  const Scenario scenario;
  EventQueue queue;
  Network network;
  Trace trace;
  Checker checker;
  Coverage coverage;
  TableRows table_rows;
  Random random;
  Random shard_random;                               // Its draws change no other draw.
  std::optional<aggregator::SavedState> state_file;  // It survives every crash.

  template <typename F>
  void Narrate(Detail detail, const std::string& actor, F&& text) {
    if (trace.shows(detail)) trace.Line(queue.now(), actor, text());
  }

  // Reports an event that a fault may wait for. The process that it names may be gone afterwards.
  void Notice(Trigger trigger, uint32_t worker, uint32_t aggregator);
  // `lane`: the life of the lane that the note is about.
  void Noted(const aggregator::Note& note, std::optional<Life> lane, Term term);
  void ServiceDrained(AggregatorProcess& aggregator);
  std::optional<Fault> TakeTrainerFault(FaultKind kind, uint32_t worker, RoundNumber step);
  bool TakeStateFileFailure() { return std::exchange(state_file_fails_, false); }
  // Returns whether the planted bug strikes now; it takes every seventh chance.
  bool PlantedNow(PlantedBug bug);
  // Whether the next frame travels with its session.
  bool DrawBatched() { return scenario.batches && batches_.Chance(50); }

  // The aggregator that a worker finds.
  std::optional<uint32_t> Resolve(uint32_t worker) const;
  std::vector<const WorkerProcess*> AliveWorkers() const;
  void TrainerExits(WorkerProcess& process);
  std::optional<uint32_t> LaneByName(const std::string& name) const;
  // The outcome of a call before the step after this chain of the first lane came to a trainer.
  void CallMade(uint64_t chain, uint32_t model) { calls_made_.emplace(chain, model); }
  bool WasMade(uint64_t chain, uint32_t model) const {
    return calls_made_.count({chain, model}) > 0;
  }
  // In which life a worker process knows the lane of this name; absent if it does not.
  std::optional<Life> LifeIn(uint32_t process, const std::string& name) const;
  uint32_t NextWait() { return ++waits_; }

  // ---- shards
  ShardProcess& shard(uint32_t index) { return *shards_[index]; }
  // Returns whether the shard has found an aggregator; that takes it.
  bool ShardReaches(ShardProcess& shard);
  // Whether the worker cannot reach the shard.
  bool IsCutOff(uint32_t worker, uint32_t shard) const;

 private:
  // The supervisor knows this about a worker id.
  struct Slot {
    uint32_t process = kNobody;  // The current one.
    uint32_t resolves_to = kNobody;
    Checkpoint checkpoint;
    bool start_pending = false;
  };

  void Dispatch(const Scheduled& event);
  void StartWorker(uint32_t worker);
  void StartAggregator();
  void Strike(const Fault& fault, uint32_t acting_worker, uint32_t acting_aggregator);
  void StrikeWorker(const Fault& fault, WorkerProcess& process);
  void StrikeAggregator(const Fault& fault, AggregatorProcess& process);
  // Their aggregators look what they hear of these connections, which are cut off from now on. They
  // do not look at those of a worker that is stopped, because its kernel is heard.
  void LookAt(const std::vector<ConnectionId>& cut_off, SimTime duration);
  void Move(uint32_t worker, uint32_t to, bool reset);
  void StrikeCommand(const Fault& fault);
  void StrikeShard(const Fault& fault, uint32_t acting_worker);
  void AddShard(SimTime at);
  bool DispatchToShard(const Scheduled& event);
  void CrashWorker(WorkerProcess& process, bool reset, SimTime restart_after);
  void CrashAggregator(AggregatorProcess& process, bool reset, SimTime restart_after);
  void Heal();
  void Operate();
  void LeaveWhenDone();
  void CheckEnd();
  void CheckLiveness();
  WorkerProcess* Current(uint32_t worker);
  AggregatorProcess* Serving();

  std::vector<std::unique_ptr<AggregatorProcess>> aggregators_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::vector<std::unique_ptr<ShardProcess>> shards_;
  // Workers and shards that cannot reach each other, and until when.
  std::map<std::pair<uint32_t, uint32_t>, SimTime> cut_off_;
  std::vector<Slot> slots_;
  Random batches_;                 // Its draws change no other draw.
  std::vector<bool> fired_;        // By position; whether the fault has struck.
  std::vector<uint64_t> noticed_;  // By trigger.
  std::set<std::pair<uint64_t, uint32_t>> calls_made_;  // Chains and models.
  uint32_t waits_ = 0;
  uint32_t planted_ = 0;
  bool state_file_fails_ = false;
  bool healed_ = false;
  bool leaving_ = false;  // All workers are done and were asked to leave.
  SimTime leaving_since_ = 0;
  bool over_ = false;
  SimTime over_at_ = 0;  // One lease after the last worker has left.
  std::vector<aggregator::Event> commands_;
  uint32_t serving_ = kNobody;
  bool aggregator_pending_ = false;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_WORLD_H_
