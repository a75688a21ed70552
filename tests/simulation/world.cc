// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace basin::simulation {
namespace {

// gRPC keepalive needs this long to notice a peer that does not answer.
constexpr SimTime kKeepalive = 3500 * kMillisecond;
constexpr SimTime kConnectTimeout = 5 * kSecond;

// After the heal come the recovery window, an operator's decision, a start timeout, leases and
// rounds.
constexpr SimTime kPatience = 180 * kSecond;
constexpr SimTime kOperatorFirst = 12 * kSecond;
constexpr SimTime kOperatorEvery = 5 * kSecond;
constexpr SimTime kLeavePatience = 30 * kSecond;

aggregator::Rules RulesOf(PlantedBug bug) {
  aggregator::Rules rules;
  rules.two_phases = bug != PlantedBug::kSendEarly;
  rules.second_prepare = bug != PlantedBug::kAdoptWithoutPrepare;
  rules.memoryless_counts = bug == PlantedBug::kCountMemoryless;
  rules.recover_with_first = bug == PlantedBug::kRecoverWithFirst;
  rules.stages_without_state = bug == PlantedBug::kStageWithoutState;
  rules.forgets_lost_frames = bug == PlantedBug::kForgetFrame;
  rules.resends_to_anyone = bug == PlantedBug::kSendElsewhere;
  rules.loses_at_once = bug == PlantedBug::kLoseEarly;
  rules.counts_acks_twice = bug == PlantedBug::kAcknowledgeTwice;
  rules.keeps_lost_samples = bug == PlantedBug::kKeepSamples;
  rules.frees_counted_samples = bug == PlantedBug::kFreeCounted;
  rules.commits_parts_of_steps = bug == PlantedBug::kPartsOfSteps;
  rules.leaves_out_of_staging = bug == PlantedBug::kLateUnstaged;
  rules.reduces_different_calls = bug == PlantedBug::kDifferentCalls;
  rules.counts_late = bug == PlantedBug::kCountLate;
  rules.forgets_deferred = bug == PlantedBug::kForgetDeferred;
  rules.keeps_lost_chunks = bug == PlantedBug::kKeepLostChunks;
  return rules;
}

}  // namespace

World::World(const Scenario& the_scenario, Detail detail)
    : scenario(the_scenario),
      network(queue, Mix(the_scenario.seed, 0x2e7), the_scenario.latency, the_scenario.jitter),
      trace(detail),
      checker(scenario, queue),
      random(Mix(the_scenario.seed, 0x3d5)),
      shard_random(Mix(the_scenario.seed, 0x54a2d)),
      batches_(Mix(the_scenario.seed, 0xba7)),
      fired_(scenario.faults.size()),
      noticed_(kTriggers) {
  // The launcher may be faster than the aggregator.
  queue.At(random.Chance(10) ? 2 * kSecond : random.Between(0, 10) * kMillisecond,
           Happening::kStartAggregator);
  aggregator_pending_ = true;
  slots_.resize(scenario.workers);
  for (uint32_t worker = 0; worker < scenario.workers; ++worker) {
    slots_[worker].start_pending = true;
    queue.At(random.Between(0, 30) * kMillisecond, Happening::kStartWorker, worker);
  }
  for (uint32_t i = 0; i < scenario.faults.size(); ++i) {
    if (scenario.faults[i].trigger == Trigger::kTime) {
      queue.At(scenario.faults[i].at, Happening::kFault, i);
    }
  }
  queue.At(scenario.heal_at, Happening::kHeal);
  for (uint32_t i = 0; i < scenario.shards; ++i) {
    AddShard(i == 0 ? 0 : shard_random.Between(0, scenario.shards_start_at));
  }
}

void World::Run(SimTime until) {
  while (!over_ && !checker.failed() && !queue.empty()) {
    const Scheduled event = queue.Pop();
    if (event.time > until) return;
    trace.Fold(static_cast<uint64_t>(event.time));
    trace.Fold(Mix(static_cast<uint64_t>(event.what), (uint64_t{event.a} << 32) | event.b));
    Dispatch(event);
    CheckLiveness();
  }
  coverage.runs = 1;
  coverage.Saw(table_rows);
  coverage.verdicts = checker.verdicts();
  coverage.sights[static_cast<uint32_t>(Sight::kExcusedFork)] += checker.excused_forks();
}

void World::Dispatch(const Scheduled& event) {
  const auto to_worker = [&](uint32_t index) -> WorkerProcess* {
    WorkerProcess& process = *workers_[index];
    if (!process.alive()) return nullptr;
    if (!process.stopped) return &process;
    process.deferred.push_back(event);
    return nullptr;
  };
  const auto to_aggregator = [&](uint32_t index) -> AggregatorProcess* {
    AggregatorProcess& process = *aggregators_[index];
    if (!process.alive()) return nullptr;
    if (!process.stopped) return &process;
    process.deferred.push_back(event);
    return nullptr;
  };
  if (DispatchToShard(event)) return;
  switch (event.what) {
    case Happening::kArriveUp: {
      const uint32_t index = network[event.a].aggregator;
      if (!aggregators_[index]->alive()) {
        // No process listens there.
        if (!network[event.a].aggregator_open) network.Refuse(event.a);
        return;
      }
      AggregatorProcess* process = to_aggregator(index);
      if (process == nullptr) return;
      if (std::optional<Item> item = network.ArriveUp(event.a)) {
        process->Arrive(event.a, std::move(*item));
      }
      return;
    }
    case Happening::kArriveDown: {
      WorkerProcess* process = to_worker(network[event.a].worker);
      if (process == nullptr) return;
      if (std::optional<Item> item = network.ArriveDown(event.a)) {
        process->Arrive(event.a, std::move(*item));
      }
      return;
    }
    case Happening::kWorkerSeesClose:
      if (WorkerProcess* process = to_worker(network[event.a].worker)) {
        event.b == 0 ? process->SeesClose(event.a) : process->ConnectTimesOut(event.a);
      }
      return;
    case Happening::kAggregatorSeesClose:
      if (AggregatorProcess* process = to_aggregator(network[event.a].aggregator)) {
        process->SeesClose(event.a);
      }
      return;
    case Happening::kLook: {
      const Network::Connection& connection = network[event.a];
      AggregatorProcess& process = *aggregators_[connection.aggregator];
      const bool heard = !connection.up.dead && queue.now() >= connection.up.stalled_until;
      if (!process.alive() || process.stopped || !connection.aggregator_open || heard) return;
      return process.HearsNothing(connection.session, event.b * kMillisecond);
    }
    case Happening::kConnect:
      if (WorkerProcess* process = to_worker(event.a)) {
        process->Connect(event.b, event.time);
        // The kernel of a stopped aggregator accepts, but nothing follows.
        for (const ConnectionId connection : process->connections()) {
          if (network[connection].aggregator_open) continue;
          const uint32_t to = network[connection].aggregator;
          if (IsShard(to) ? !shards_[to - kFirstShard]->stopped : !aggregators_[to]->stopped) {
            continue;
          }
          queue.After(kConnectTimeout, Happening::kWorkerSeesClose, connection, 1);
        }
      }
      return;
    case Happening::kWorkerTimer:
      if (WorkerProcess* process = to_worker(event.a)) process->Timer();
      return;
    case Happening::kTrainer:
      if (WorkerProcess* process = to_worker(event.a)) process->Act(event.b, event.time);
      LeaveWhenDone();
      return;
    case Happening::kAggregatorTimer:
      if (AggregatorProcess* process = to_aggregator(event.a)) process->Timer();
      return;
    case Happening::kReduced:
      if (AggregatorProcess* process = to_aggregator(event.a)) process->Reduced(event.b);
      return;
    case Happening::kSaved:
      if (AggregatorProcess* process = to_aggregator(event.a)) process->Saved(event.b);
      return;
    case Happening::kStartWorker:
      return StartWorker(event.a);
    case Happening::kStartAggregator:
      return StartAggregator();
    case Happening::kContinueWorker: {
      WorkerProcess& process = *workers_[event.a];
      if (!process.alive() || !process.stopped) return;
      Narrate(Detail::kNotable, process.name(), [] { return "continues"; });
      process.stopped = false;
      process.continued_at = queue.now();
      for (const Scheduled& late : std::exchange(process.deferred, {})) Dispatch(late);
      return;
    }
    case Happening::kContinueAggregator: {
      AggregatorProcess& process = *aggregators_[event.a];
      if (!process.alive() || !process.stopped) return;
      Narrate(Detail::kNotable, process.name(), [] { return "continues"; });
      process.stopped = false;
      for (const Scheduled& late : std::exchange(process.deferred, {})) Dispatch(late);
      return;
    }
    case Happening::kFault:
      if (fired_[event.a]) return;
      fired_[event.a] = true;
      return Strike(scenario.faults[event.a], kNobody, kNobody);
    case Happening::kFlip:
      if (healed_) return;
      Narrate(Detail::kNotable, "world", [] { return "the workers find the other aggregator"; });
      for (uint32_t worker = 0; worker < slots_.size(); ++worker) {
        Move(worker, slots_[worker].resolves_to == kNobody ? event.a : kNobody, true);
      }
      return;
    case Happening::kCommand:
      if (AggregatorProcess* process = Serving(); process != nullptr && !process->stopped) {
        process->Command(commands_[event.a]);
      }
      return;
    case Happening::kHeal:
      return Heal();
    case Happening::kOperator:
      return Operate();
    default:
      return;
  }
}

// ---- shards

void World::AddShard(SimTime at) {
  const auto index = static_cast<uint32_t>(shards_.size());
  if (index >= kMostShards) return;
  shards_.push_back(std::make_unique<ShardProcess>(*this, index));
  queue.At(std::max(at, queue.now()), Happening::kStartShard, index);
}

bool World::ShardReaches(ShardProcess& shard) {
  AggregatorProcess* process = Serving();
  if (process == nullptr || process->stopped) return false;
  process->TakeShard(shard);
  return true;
}

bool World::IsCutOff(uint32_t worker, uint32_t shard) const {
  const auto found = cut_off_.find({worker, shard});
  return found != cut_off_.end() && queue.now() < found->second;
}

// Returns whether the event is of a shard.
bool World::DispatchToShard(const Scheduled& event) {
  const bool on_connection =
      event.what == Happening::kArriveUp || event.what == Happening::kAggregatorSeesClose;
  if (!on_connection && event.what < Happening::kShardDials) return false;
  if (on_connection && !IsShard(network[event.a].aggregator)) return false;
  const uint32_t index = on_connection ? network[event.a].aggregator - kFirstShard : event.a;
  ShardProcess& shard = *shards_[index];
  if (event.what == Happening::kStartShard) {
    if (!shard.alive()) shard.Start();
    return true;
  }
  if (event.what == Happening::kContinueShard) {
    if (!shard.alive() || !shard.stopped) return true;
    Narrate(Detail::kNotable, shard.name(), [] { return "continues"; });
    shard.stopped = false;
    for (const Scheduled& late : std::exchange(shard.deferred, {})) Dispatch(late);
    return true;
  }
  // These happen to the aggregator.
  if (event.what == Happening::kShardReports || event.what == Happening::kShardIsLost) {
    for (const auto& process : aggregators_) {
      if (!process->alive() || !process->HasShard(index, event.b)) continue;
      if (process->stopped) {
        process->deferred.push_back(event);
      } else if (event.what == Happening::kShardIsLost) {
        process->LoseShard(index);
      } else {
        process->FromShard(shard, event.b);
      }
      return true;
    }
    return true;
  }
  if (!shard.alive()) {
    if (event.what == Happening::kArriveUp && !network[event.a].aggregator_open) {
      network.Refuse(event.a);
    }
    return true;
  }
  if (shard.stopped) {
    shard.deferred.push_back(event);
    return true;
  }
  switch (event.what) {
    case Happening::kArriveUp:
      if (std::optional<Item> item = network.ArriveUp(event.a)) {
        shard.Arrive(event.a, std::move(*item));
      }
      break;
    case Happening::kAggregatorSeesClose:
      shard.SeesClose(event.a);
      break;
    case Happening::kShardDials:
      shard.Dial();
      break;
    case Happening::kShardHears:
      shard.BatchArrives(event.b);
      break;
    case Happening::kShardLinkLost:
      shard.LinkIsLost(event.b);
      break;
    case Happening::kShardDrainEnds:
      shard.DrainEnds(event.b);
      break;
    default:
      shard.Reduced(event.b);
  }
  return true;
}

void World::StrikeShard(const Fault& fault, uint32_t acting_worker) {
  if (fault.kind == FaultKind::kShardAdded) return AddShard(queue.now());
  if (shards_.empty()) return;
  ShardProcess& shard = *shards_[fault.salt / 16 % shards_.size()];
  const bool flag = fault.salt / 2 % 2 == 0;
  if (!shard.alive()) return;
  const bool acting = acting_worker != kNobody && fault.salt % 2 == 0;
  WorkerProcess* worker = acting ? workers_[acting_worker].get() : Current(fault.worker);
  switch (fault.kind) {
    case FaultKind::kShardCrash:
      shard.Crash(flag);
      queue.After(fault.duration, Happening::kStartShard, shard.index());
      return;
    case FaultKind::kShardStop:
      if (shard.stopped) return;
      Narrate(Detail::kNotable, shard.name(), [] { return "is stopped"; });
      shard.stopped = true;
      queue.After(fault.duration, Happening::kContinueShard, shard.index());
      // Keepalive notices.
      if (fault.duration > kKeepalive && flag) {
        shard.CutLink();
        for (ConnectionId id = 0; id < network.size(); ++id) {
          if (network[id].aggregator == kFirstShard + shard.index()) {
            network.GoSilent(id, kKeepalive);
          }
        }
      }
      return;
    case FaultKind::kShardLinkCut:
      return shard.CutLink();
    case FaultKind::kShardLinkStalled:
      return shard.StallLink(queue.now() + fault.duration);
    case FaultKind::kShardDrain:
      // Half of the time it may take as long as it needs.
      if (!shard.stopped) shard.Drain(flag ? 30 * kSecond : fault.duration / 4, fault.duration);
      return;
    case FaultKind::kShardSlow:
      shard.slow = !shard.slow;
      return;
    case FaultKind::kShardUnreachable:
      if (worker == nullptr || !worker->alive()) return;
      cut_off_[{worker->worker(), shard.index()}] = queue.now() + fault.duration;
      [[fallthrough]];
    case FaultKind::kShardCut:
      if (worker == nullptr || !worker->alive()) return;
      for (const ConnectionId id : worker->connections()) {
        if (network[id].aggregator != kFirstShard + shard.index()) continue;
        flag ? network.Reset(id) : network.GoSilent(id, kKeepalive);
      }
      return;
    default:
      return;
  }
}

// ---- processes

WorkerProcess* World::Current(uint32_t worker) {
  if (worker >= slots_.size() || slots_[worker].process == kNobody) return nullptr;
  WorkerProcess* process = workers_[slots_[worker].process].get();
  return process->alive() ? process : nullptr;
}

AggregatorProcess* World::Serving() {
  if (serving_ == kNobody) return nullptr;
  AggregatorProcess* process = aggregators_[serving_].get();
  return process->alive() ? process : nullptr;
}

std::optional<uint32_t> World::Resolve(uint32_t worker) const {
  const uint32_t to = slots_[worker].resolves_to == kNobody ? serving_ : slots_[worker].resolves_to;
  if (to == kNobody) return std::nullopt;
  return to;
}

std::vector<const WorkerProcess*> World::AliveWorkers() const {
  std::vector<const WorkerProcess*> alive;
  for (const auto& process : workers_) {
    if (process->alive()) alive.push_back(process.get());
  }
  return alive;
}

std::optional<uint32_t> World::LaneByName(const std::string& name) const {
  for (uint32_t i = 0; i < scenario.lanes.size(); ++i) {
    if (scenario.lanes[i].name == name) return i;
  }
  return std::nullopt;
}

std::optional<Life> World::LifeIn(uint32_t process, const std::string& name) const {
  return workers_[process]->LifeOf(name);
}

void World::StartWorker(uint32_t worker) {
  Slot& slot = slots_[worker];
  slot.start_pending = false;
  if (leaving_) return;
  const uint32_t index = static_cast<uint32_t>(workers_.size());
  client::Config config;
  config.job = kJobName;
  config.worker = absl::StrCat("w", worker);
  config.nonce = Mix(Mix(scenario.seed, 0x10c), index) | 1;
  // The launcher declares a run new; a supervisor that restarts one process does not.
  config.fresh = slot.process == kNobody && worker < scenario.workers && scenario.seed % 10 < 7;
  config.settings = scenario.settings;
  config.streams = scenario.streams;
  config.jitter_seed = config.nonce;
  config.ranks = 1 + static_cast<uint32_t>(Mix(config.nonce, 0x4a7) % scenario.most_ranks);
  config.local_rank = config.ranks - 1;
  if (scenario.groups) config.group = {absl::StrCat("node-", worker / 2), 2};
  config.frame_tensors = scenario.config.frame_tensors;  // Both have the limit of the protocol.
  // Some workers have older clients.
  if (scenario.seed % 8 != 7 || worker % 2 == 0) config.features = kFeatureRuns;
  const bool old = scenario.old_clients && worker % 2 == 1;
  if (scenario.shards > 0 && !old) config.features |= kFeaturePlacement;
  workers_.push_back(std::make_unique<WorkerProcess>(
      *this, index, worker, config, scenario.checkpoints ? slot.checkpoint : Checkpoint{}));
  slot.process = index;
  if (AliveWorkers().size() > scenario.settings.max_workers) checker.Crowded();
  Narrate(Detail::kNotable, workers_.back()->name(), [] { return "starts"; });
  workers_.back()->Start();
}

void World::StartAggregator() {
  aggregator_pending_ = false;
  aggregator::Config config = scenario.config;
  config.term = static_cast<Term>(1'000'000'000 + queue.now() / kSecond);
  if (config.state_file && state_file.has_value()) {
    config.saved[kJobName] = *state_file;
    config.term = std::max(config.term, state_file->term + 1);
  }
  // Terms start at unix seconds; a later life gets a higher term even within the same second.
  for (const auto& other : aggregators_) {
    const bool later = other->alive() || other->core().config().term == config.term;
    if (later) config.term = std::max(config.term, other->core().config().term + 1);
  }
  config.term_random = Mix(Mix(scenario.seed, 0x7e6), aggregators_.size());
  config.rules = RulesOf(scenario.bug);
  const uint32_t index = static_cast<uint32_t>(aggregators_.size());
  aggregators_.push_back(std::make_unique<AggregatorProcess>(*this, index, std::move(config)));
  serving_ = index;
  Narrate(Detail::kNotable, aggregators_.back()->name(),
          [&] { return absl::StrCat("starts, term ", aggregators_.back()->core().config().term); });
}

// A trainer that exits closes its connections like one that is killed.
void World::TrainerExits(WorkerProcess& process) {
  Slot& slot = slots_[process.worker()];
  slot.checkpoint = process.checkpoint();
  checker.MemoryLost();
  const bool current = slot.process == process.index();
  if (process.left() || process.fenced()) {
    process.Crash(false);
    return;  // The world starts it again only after the faults.
  }
  process.Crash(false);
  if (!current || slot.start_pending) return;
  slot.start_pending = true;
  queue.After(random.Between(50, 1000) * kMillisecond, Happening::kStartWorker, process.worker());
}

// ---- faults

void World::Notice(Trigger trigger, uint32_t worker, uint32_t aggregator) {
  const uint64_t count = ++noticed_[static_cast<uint32_t>(trigger)];
  if (healed_) return;
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const Fault& fault = scenario.faults[i];
    if (fired_[i] || fault.trigger != trigger || count < static_cast<uint64_t>(fault.at)) continue;
    fired_[i] = true;
    Strike(fault, worker, aggregator);
  }
}

std::optional<Fault> World::TakeTrainerFault(FaultKind kind, uint32_t worker, RoundNumber step) {
  if (healed_) return std::nullopt;
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const Fault& fault = scenario.faults[i];
    if (fired_[i] || fault.kind != kind || fault.worker != worker) continue;
    if (step < static_cast<RoundNumber>(fault.at)) continue;
    fired_[i] = true;
    ++coverage.faults[static_cast<uint32_t>(kind)];
    Narrate(Detail::kNotable, "fault", [&] { return Describe(fault); });
    return fault;
  }
  return std::nullopt;
}

bool World::PlantedNow(PlantedBug bug) {
  if (scenario.bug != bug) return false;
  // The bug skips the first chances, so that the run is under way, and then strikes now and again.
  return ++planted_ % 7 == 3;
}

void World::Strike(const Fault& fault, uint32_t acting_worker, uint32_t acting_aggregator) {
  if (healed_ || leaving_) return;
  ++coverage.faults[static_cast<uint32_t>(fault.kind)];
  Narrate(Detail::kNotable, "fault", [&] { return Describe(fault); });
  if (fault.kind > FaultKind::kFinish) return StrikeShard(fault, acting_worker);
  if (fault.kind == FaultKind::kJoin) {
    if (slots_.size() >= kMaxWorkers) return;
    slots_.emplace_back().start_pending = true;
    queue.After(0, Happening::kStartWorker, static_cast<uint32_t>(slots_.size() - 1));
    return;
  }
  if (fault.kind == FaultKind::kStateFileFails) {
    state_file_fails_ = true;
    return;
  }
  if (fault.kind >= FaultKind::kEvict) return StrikeCommand(fault);
  if (fault.kind >= FaultKind::kAggregatorCrash) {
    AggregatorProcess* process =
        acting_aggregator != kNobody ? aggregators_[acting_aggregator].get() : Serving();
    if (process != nullptr && process->alive()) StrikeAggregator(fault, *process);
    return;
  }
  // Half of the faults strike the worker that caused the event, the others the one that was drawn.
  const bool acting = acting_worker != kNobody && fault.salt % 2 == 0;
  WorkerProcess* process = acting ? workers_[acting_worker].get() : Current(fault.worker);
  if (process != nullptr && process->alive()) StrikeWorker(fault, *process);
}

void World::StrikeWorker(const Fault& fault, WorkerProcess& process) {
  const std::vector<ConnectionId> connections = process.connections();
  const bool flag = fault.salt / 2 % 2 == 0;
  switch (fault.kind) {
    case FaultKind::kCutStream:
      if (const auto stream = process.stream(fault.salt / 4)) network.Reset(*stream);
      return;
    case FaultKind::kCutSession:
      if (process.session().has_value()) network.Reset(*process.session());
      return;
    case FaultKind::kCutAll:
      for (const ConnectionId connection : connections) network.Reset(connection);
      return;
    case FaultKind::kHalfOpen:
      for (const ConnectionId connection : connections) network.GoSilent(connection, kKeepalive);
      LookAt(connections, kKeepalive);
      return;
    case FaultKind::kHalfOpenStream:
      if (const auto stream = process.stream(fault.salt / 4)) {
        network.GoSilent(*stream, kKeepalive);
      }
      return;
    case FaultKind::kPartition:
    case FaultKind::kOneWay: {
      const bool both = fault.kind == FaultKind::kPartition;
      for (const ConnectionId connection : connections) {
        network.Stall(connection, queue.now() + fault.duration, both || flag, both || !flag);
      }
      LookAt(connections, fault.duration);
      return;
    }
    case FaultKind::kWorkerCrash:
      return CrashWorker(process, flag, fault.duration + kSecond);
    case FaultKind::kWorkerRestart:
      return CrashWorker(process, flag, fault.duration);
    case FaultKind::kExitReported: {
      const std::string id = process.id();
      CrashWorker(process, flag, fault.duration + kSecond);
      commands_.push_back(aggregator::WorkerExited{kJobName, id});
      queue.After(network.Delay(), Happening::kCommand,
                  static_cast<uint32_t>(commands_.size() - 1));
      return;
    }
    case FaultKind::kWorkerStop:
      if (process.stopped) return;
      process.stopped = true;
      queue.After(fault.duration, Happening::kContinueWorker, process.index());
      // Either the aggregator's keepalive notices, or only the lease does.
      if (fault.duration > kKeepalive && flag) {
        for (const ConnectionId connection : connections) {
          network.GoSilent(connection, kKeepalive);
        }
      }
      return;
    case FaultKind::kTwin:
      if (slots_[process.worker()].start_pending) return;
      slots_[process.worker()].start_pending = true;
      queue.After(0, Happening::kStartWorker, process.worker());
      return;
    default:
      return;
  }
}

void World::LookAt(const std::vector<ConnectionId>& cut_off, SimTime duration) {
  for (const ConnectionId connection : cut_off) {
    if (network[connection].stream != kSessionStream) continue;
    for (SimTime time = kSecond; time < duration; time += 200 * kMillisecond) {
      queue.After(time, Happening::kLook, connection, static_cast<uint32_t>(time / kMillisecond));
    }
  }
}

void World::CrashWorker(WorkerProcess& process, bool reset, SimTime restart_after) {
  Slot& slot = slots_[process.worker()];
  slot.checkpoint = process.checkpoint();
  checker.MemoryLost();
  Narrate(Detail::kNotable, process.name(), [] { return "dies"; });
  process.Crash(reset);
  if (slot.process != process.index() || slot.start_pending) return;
  slot.start_pending = true;
  queue.After(restart_after, Happening::kStartWorker, process.worker());
}

void World::CrashAggregator(AggregatorProcess& process, bool reset, SimTime restart_after) {
  Narrate(Detail::kNotable, process.name(), [] { return "dies"; });
  process.Crash(reset);
  if (serving_ != process.index() || aggregator_pending_) return;
  aggregator_pending_ = true;
  queue.After(restart_after, Happening::kStartAggregator);
}

void World::StrikeAggregator(const Fault& fault, AggregatorProcess& process) {
  const bool flag = fault.salt / 2 % 2 == 0;
  switch (fault.kind) {
    case FaultKind::kAggregatorCrash:
      return CrashAggregator(process, flag, fault.duration);
    case FaultKind::kAggregatorStop:
      if (process.stopped) return;
      process.stopped = true;
      queue.After(fault.duration, Happening::kContinueAggregator, process.index());
      if (fault.duration <= kKeepalive || !flag) return;
      for (const auto& worker : workers_) {  // Their keepalive notices.
        if (!worker->alive() || worker->aggregator() != process.index()) continue;
        for (const ConnectionId connection : worker->connections()) {
          network.GoSilent(connection, kKeepalive);
        }
      }
      return;
    case FaultKind::kTwoAggregators: {
      // The old aggregator lives on, and only some of the workers move to the new one.
      const uint32_t before = serving_;
      if (before == kNobody || aggregator_pending_) return;
      StartAggregator();
      uint64_t moved = fault.salt / 4;
      for (uint32_t worker = 0; worker < slots_.size(); ++worker, moved /= 2) {
        slots_[worker].resolves_to = before;
        if (moved % 2 == 1) Move(worker, kNobody, flag);
      }
      queue.After(fault.duration, Happening::kFlip, before);
      return;
    }
    default:
      return;
  }
}

// From now on the worker finds another aggregator, and its old connections are gone.
void World::Move(uint32_t worker, uint32_t to, bool reset) {
  slots_[worker].resolves_to = to;
  WorkerProcess* current = Current(worker);
  if (current == nullptr) return;
  for (const ConnectionId connection : current->connections()) {
    reset ? network.Reset(connection) : network.GoSilent(connection, kKeepalive);
  }
}

void World::StrikeCommand(const Fault& fault) {
  const WorkerId id = absl::StrCat("w", fault.worker);
  const auto command = [this](aggregator::Event event, SimTime after) {
    commands_.push_back(std::move(event));
    queue.After(after, Happening::kCommand, static_cast<uint32_t>(commands_.size() - 1));
  };
  switch (fault.kind) {
    case FaultKind::kEvict:
      return command(aggregator::EvictWorker{kJobName, id, "an operator said so"}, 0);
    case FaultKind::kDrainWorker:
      return command(aggregator::DrainWorker{kJobName, id}, 0);
    case FaultKind::kDrainService:
      return command(aggregator::DrainService{}, 0);
    case FaultKind::kSuspend:
      command(aggregator::SuspendJob{kJobName}, 0);
      return command(aggregator::ResumeJob{kJobName}, fault.duration);
    case FaultKind::kForceRecovery:
      return command(aggregator::RecoverJob{kJobName}, 0);
    default:
      return;
  }
}

void World::Noted(const aggregator::Note& note, std::optional<Life> lane, Term term) {
  using aggregator::NoteCause;
  using aggregator::NoteKind;
  switch (note.kind) {
    case NoteKind::kContributionRejected:
      // The worker may lose its connection before the message arrives, but the note stays.
      if (lane) checker.Rejected(*lane, note.round, note.worker);
      break;
    case NoteKind::kContributionDropped:
      if (lane) checker.Dropped(*lane, note.round, note.worker, term);
      break;
    case NoteKind::kGeneration:
      checker.Made(*note.membership);
      break;
    case NoteKind::kWorkerFinished:
      checker.WorkerFinished();
      break;
    case NoteKind::kWorkerLost:
      checker.Lost(note.worker, term);
      break;
    case NoteKind::kWorkerAdmitted:
      checker.Admitted(note.worker, term);
      break;
    case NoteKind::kDraining:
      checker.Drained(note.worker);
      break;
    default:
      break;
  }
  switch (note.cause) {
    case NoteCause::kUnspecified:
      return;
    case NoteCause::kJoinsAlone:
      checker.JoinsAlone(note.worker);
      return coverage.Saw(Sight::kJoinedAlone);
    case NoteCause::kFruitlessJoins:
      return coverage.Saw(Sight::kFruitlessJoins);
    case NoteCause::kLeftOut:
      if (lane) checker.Rejected(*lane, note.round, note.worker);
      return coverage.Saw(Sight::kLeftOutOfCall);
    case NoteCause::kNeededAgain:
      return coverage.Saw(Sight::kAttemptDropped);
    case NoteCause::kEveryMemberIsBack:
      return coverage.Saw(Sight::kRecoveredEveryone);
    case NoteCause::kMajorityIsBack:
      return coverage.Saw(Sight::kRecoveredMajority);
    case NoteCause::kGoesOnWithoutMissing:
      checker.MemoryLost();
      return coverage.Saw(Sight::kRecoveredForced);
    case NoteCause::kNewRun:
      return coverage.Saw(Sight::kRecoveredFresh);
  }
}

// The process of a drained aggregator exits, and its replacement starts.
void World::ServiceDrained(AggregatorProcess& process) {
  CrashAggregator(process, false, random.Between(10, 1000) * kMillisecond);
}

// ---- the end

void World::Heal() {
  healed_ = true;
  Narrate(Detail::kNotable, "world", [] { return "faults stop here"; });
  fired_.assign(fired_.size(), true);
  state_file_fails_ = false;
  for (ConnectionId id = 0; id < network.size(); ++id) {
    network[id].up.stalled_until = network[id].down.stalled_until = 0;
  }
  for (const auto& process : workers_) {
    if (process->alive() && process->stopped) {
      queue.After(0, Happening::kContinueWorker, process->index());
    }
  }
  for (const auto& process : aggregators_) {
    if (!process->alive()) continue;
    if (process->index() != serving_) {
      CrashAggregator(*process, false, 0);
    } else if (process->stopped) {
      queue.After(0, Happening::kContinueAggregator, process->index());
    }
  }
  if (Serving() == nullptr && !aggregator_pending_) {
    aggregator_pending_ = true;
    queue.After(0, Happening::kStartAggregator);
  }
  cut_off_.clear();
  for (const auto& shard : shards_) {
    shard->slow = false;
    shard->StallLink(0);
    if (shard->stopped) queue.After(0, Happening::kContinueShard, shard->index());
    if (!shard->alive()) queue.After(0, Happening::kStartShard, shard->index());
  }
  commands_.push_back(aggregator::ResumeJob{kJobName});
  queue.After(kSecond, Happening::kCommand, static_cast<uint32_t>(commands_.size() - 1));
  for (uint32_t worker = 0; worker < slots_.size(); ++worker) {
    Slot& slot = slots_[worker];
    slot.resolves_to = kNobody;
    if (Current(worker) != nullptr || slot.start_pending) continue;
    slot.start_pending = true;
    queue.After(random.Between(0, 500) * kMillisecond, Happening::kStartWorker, worker);
  }
  queue.After(kOperatorFirst, Happening::kOperator);
}

// An operator lets a halted job go on without the missing workers, and supervisors restart what has
// died since.
void World::Operate() {
  queue.After(kOperatorEvery, Happening::kOperator);
  LeaveWhenDone();  // The last worker that was training may have died.
  if (leaving_) return;
  const AggregatorProcess* process = Serving();
  if (process != nullptr && process->job() != nullptr &&
      process->job()->state() == aggregator::JobState::kHalted) {
    coverage.Saw(Sight::kOperatorRecovered);
    commands_.push_back(aggregator::RecoverJob{kJobName});
    queue.After(0, Happening::kCommand, static_cast<uint32_t>(commands_.size() - 1));
  }
  for (uint32_t worker = 0; worker < slots_.size(); ++worker) {
    Slot& slot = slots_[worker];
    if (Current(worker) != nullptr || slot.start_pending) continue;
    slot.start_pending = true;
    queue.After(0, Happening::kStartWorker, worker);
  }
}

// All workers leave when at least one has done all rounds and none trains any more. When all have
// left, the run is over.
void World::LeaveWhenDone() {
  if (leaving_) return;
  bool done = false;
  for (const auto& process : workers_) {
    if (!process->alive()) continue;
    if (process->training()) return;
    done |= process->done();
  }
  if (!done) return;
  leaving_ = true;
  leaving_since_ = queue.now();
  Heal();
  for (const auto& process : workers_) {
    if (process->alive()) queue.After(0, Happening::kTrainer, process->index(), kAskedToLeave);
  }
}

void World::CheckEnd() {
  AggregatorProcess* process = Serving();
  if (process == nullptr) return;
  if (process->held_bytes() > 0) {
    checker.Fail(Invariant::kBoundedBytes,
                 absl::StrCat(process->name(), " still holds ", process->held_bytes(),
                              " bytes after everyone has left."));
  }
  for (const auto& shard : shards_) {
    if (!shard->alive() || shard->stopped || !shard->quiet()) continue;
    if (!shard->IsLinkedTo(process->index())) continue;
    if (shard->held_bytes() == 0 && shard->frames() == 0) continue;
    checker.Fail(Invariant::kBoundedBytes,
                 absl::StrCat(shard->name(), " still holds ", shard->held_bytes(), " bytes and ",
                              shard->frames(), " frames after everyone has left."));
  }
}

void World::CheckLiveness() {
  if (checker.failed()) return;
  const auto explain = [this] {
    std::string text;
    for (const auto& process : aggregators_) {
      if (process->alive()) absl::StrAppend(&text, " ", process->Explain(), ".");
    }
    for (const auto& process : workers_) {
      if (process->alive()) absl::StrAppend(&text, " ", process->Explain(), ".");
    }
    return text;
  };
  if (leaving_) {
    const bool alive = std::any_of(workers_.begin(), workers_.end(),
                                   [](const auto& process) { return process->alive(); });
    // An aggregator holds what it received until the lease of a broken connection ends.
    if (!alive && over_at_ == 0) {
      over_at_ = queue.now() + absl::ToInt64Microseconds(scenario.config.lease) + kSecond;
    }
    if (over_at_ != 0 && queue.now() >= over_at_) {
      CheckEnd();
      over_ = true;
    }
    if (over_at_ == 0 && queue.now() > leaving_since_ + kLeavePatience) {
      checker.Fail(Invariant::kLiveness,
                   absl::StrCat("Not everyone could leave within 30 s.", explain()));
    }
    return;
  }
  if (healed_ && queue.now() > scenario.heal_at + kPatience) {
    checker.Fail(Invariant::kLiveness,
                 absl::StrCat("Three minutes after faults stopped there are rounds without a "
                              "verdict.",
                              explain()));
  }
}

}  // namespace basin::simulation
