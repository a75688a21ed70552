// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/term.h"

namespace basin::explore {
namespace {

using aggregator::JobState;

// The distance between the terms of two processes. Each raises its term whenever it recovers once
// more, and stays below the next one, as in a cluster, where a term begins with the time.
constexpr Term kTermsOfOne = Term{16} << aggregator::kRandomTermBits;

// Each takes about 5 KB.
constexpr size_t kCachedAggregators = 1 << 16;

// Each life of the aggregator has its own clock.
const absl::Time kClockStart = absl::UnixEpoch() + absl::Hours(24);

std::string NameOf(uint32_t worker) { return absl::StrCat("w", worker); }

// The process that takes the step, as the scheduler sees it.
uint8_t ProcessOf(const WorldStep& step) {
  if (step.kind == StepKind::kReduce) return kReducer;
  if (step.kind == StepKind::kWindow || step.kind == StepKind::kGrace ||
      step.kind == StepKind::kStartTimeout || step.kind == StepKind::kVacate ||
      step.kind == StepKind::kShardGrace) {
    return kClock;
  }
  if (step.kind == StepKind::kShardReport || step.kind == StepKind::kShardReduce ||
      step.kind == StepKind::kShardNotice || step.kind == StepKind::kShardDial) {
    return kFirstShard + step.worker;
  }
  return step.worker % kMaxWorkers;
}

// The scheduler lets this process act only if no other one can.
void ComesLast(State& state, uint8_t process) {
  const auto at = std::find(state.order.begin(), state.order.end(), process);
  std::rotate(at, at + 1, state.order.end());
}

// Returns whether the worker must retry later.
bool BacksOff(const Item& item) {
  const auto* message = std::get_if<ToWorker>(&item);
  const auto* ended = message == nullptr ? nullptr : std::get_if<Ended>(message);
  return ended != nullptr && ended->error.code == ErrorCode::kUnavailable;
}

uint32_t TakeHead(std::vector<uint32_t>& queue) {
  const uint32_t head = queue.front();
  queue.erase(queue.begin());
  return head;
}

}  // namespace

struct World::Work {
  State state;
  std::array<Link, kMaxWorkers> links;
  History history;
  std::string violation;
  bool excused = false;
  std::vector<std::string>* trail = nullptr;

  // `line` makes the text of a line, which is only wanted for a trail.
  template <typename Line>
  void Narrate(Line&& line) {
    if (trail != nullptr) trail->push_back(line());
  }
  void Fail(std::string what) {
    if (violation.empty()) violation = std::move(what);
  }
};

World::World(const Bounds& bounds)
    : bounds_(bounds),
      aggregators_([this](const AggregatorOrigin& origin) { return BearAggregator(origin); },
                   [this](AggregatorProcess& process, const AggregatorOrigin& origin) {
                     GiveAggregator(process, origin);
                     process.TakeOutputs();  // They were sent when the step was first taken.
                   },
                   kCachedAggregators) {
  trainers_.settings.min_workers = bounds_.min_workers;
  trainers_.settings.max_workers = bounds_.workers;
  trainers_.settings.start_workers = bounds_.workers;
  trainers_.node = bounds_.node;
  trainers_.chunks = bounds_.chunks;
  trainers_.knows_shards = bounds_.shards + bounds_.shard_joins > 0;
  State state;
  state.aggregator = FirstAggregator(1, true);
  state.history = histories_.Add({std::vector<std::vector<uint64_t>>(bounds_.jobs), false});
  const uint32_t no_link = links_.Add(Link());
  Work work;
  for (uint32_t w = 0; w < kMaxWorkers; ++w) {
    state.workers[w] = kNoProcess;
    state.links[w] = no_link;
  }
  for (size_t i = 0; i < state.order.size(); ++i) state.order[i] = static_cast<uint8_t>(i);
  work.state = state;
  work.history = histories_[state.history];
  for (uint32_t slot = 0; slot < bounds_.shards; ++slot) ShardComes(work, slot);
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    work.state.workers[w] = workers_.Add(WorkerProcess(JobOf(w), w, 0, trainers_));
    RunWorker(work, w, Input::kStart);
  }
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    work.state.links[w] = links_.Add(std::move(work.links[w]));
  }
  start_ = work.state;
  // Runs genesis in one order, without trainers and faults.
  bounds_.delays = kAllOrders;
  std::vector<WorldStep> steps;
  while (true) {
    steps.clear();
    steps.resize(Steps(start_, steps));
    const auto next = std::find_if(steps.begin(), steps.end(), [](const WorldStep& step) {
      return step.kind != StepKind::kTrain && step.kind != StepKind::kWindow;
    });
    if (next == steps.end()) break;
    start_ = Take(start_, *next).state;
  }
  bounds_.delays = bounds.delays;
}

aggregator::Config World::AggregatorConfig(Term term) const {
  aggregator::Config config;
  config.term = term;
  // Steps of the world end leases and other waits.
  config.lease = config.closed_lease = config.late_warning = config.idle_job_timeout =
      config.idle_lane_timeout = config.stall_threshold = absl::InfiniteDuration();
  if (bounds_.late) config.late_policy = aggregator::LatePolicy::kLeaveOut;
  config.quorum_percent = 50;
  config.frame_bytes = kChunkBytes;
  config.least_share = 1;
  config.coordinator_share = bounds_.coordinator_share;
  config.rules = bounds_.rules;
  return config;
}

uint32_t World::FirstAggregator(Term term, bool long_up) {
  const AggregatorOrigin origin{AggregatorOrigin::kBorn, static_cast<uint32_t>(term), 0, long_up};
  return aggregators_.Add(BearAggregator(origin), origin);
}

AggregatorProcess World::BearAggregator(const AggregatorOrigin& origin) const {
  const absl::Time started = origin.who != 0 ? kClockStart - absl::Hours(1) : kClockStart;
  return AggregatorProcess(AggregatorConfig(origin.item), bounds_.jobs, started, kClockStart);
}

// ---- possible steps

// Returns whether the aggregator counts on a process of this worker that does not exist any more.
bool World::ProcessIsLost(const State& state, uint32_t worker) const {
  const Nonce known = aggregators_.SummaryOf(state.aggregator).known[worker];
  if (known == 0) return false;
  if (state.workers[worker] == kNoProcess) return true;
  return known != workers_[state.workers[worker]].nonce();
}

bool World::ChangesNothing(const Effect& effect, uint32_t process) const {
  return effect.process == process && effect.wrong == 0 && effect.applied == 0;
}

bool World::Urgent(const State& state, std::vector<WorldStep>& steps) {
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    const Link& link = links_[state.links[w]];
    if (!link.up.empty()) {
      const auto& message = std::get<ToAggregator>(items_[link.up.front()]);
      if (std::holds_alternative<LayoutSeen>(message)) {
        const Effect effect =
            StepAggregator(state.aggregator, Input::kTake, link.session, link.up.front());
        if (ChangesNothing(effect, state.aggregator) && effect.outputs == 0) {
          steps.push_back({StepKind::kUp, static_cast<uint8_t>(w)});
          return true;
        }
      }
    }
    if (!link.down.empty()) {
      const auto& message = std::get<ToWorker>(items_[link.down.front()]);
      const bool credit = std::holds_alternative<Credit>(message);
      if (credit || std::holds_alternative<LaneLayout>(message)) {
        const Effect effect = StepWorker(state.workers[w], Input::kReceive, link.down.front());
        // The client answers a layout with LayoutSeen.
        if (ChangesNothing(effect, state.workers[w]) && effect.outputs <= (credit ? 0u : 1u)) {
          steps.push_back({StepKind::kDown, static_cast<uint8_t>(w)});
          return true;
        }
      }
    }
  }
  const auto over = [&](Fault fault, uint32_t most) {
    return state.used[static_cast<size_t>(fault)] >= most;
  };
  uint32_t faults = 0;
  for (size_t i = 1; i < kFaultKinds; ++i) faults += state.used[i];
  const bool faults_over = faults >= bounds_.faults;
  const auto& shards = aggregators_.SummaryOf(state.aggregator).shards;
  const bool cuts_over = faults_over || (over(Fault::kCut, bounds_.cuts) &&
                                         over(Fault::kStreamCut, bounds_.stream_cuts) &&
                                         over(Fault::kShardCut, bounds_.shard_cuts));
  if (cuts_over) {
    for (uint8_t slot = 0; slot < kMaxShards; ++slot) {
      if (!shards[slot].reports) continue;
      steps.push_back({StepKind::kShardReport, slot});
      return true;
    }
  }
  const bool drains = std::any_of(shards.begin(), shards.end(),
                                  [](const ShardSummary& shard) { return shard.draining; });
  const bool shards_stay =
      !drains && (faults_over || (over(Fault::kShardLoss, bounds_.shard_losses) &&
                                  over(Fault::kShardDrain, bounds_.shard_drains)));
  if (!over(Fault::kCrash, bounds_.crashes) || !cuts_over || !shards_stay) return false;
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    if (UrgentOfWorker(state, w, steps)) return true;
  }
  return false;
}

bool World::UrgentOfWorker(const State& state, uint32_t w, std::vector<WorldStep>& steps) {
  if (state.workers[w] == kNoProcess) return false;
  const Link& link = links_[state.links[w]];
  const auto add = [&](StepKind kind) { steps.push_back({kind, static_cast<uint8_t>(w)}); };
  if (link.wanted) {
    add(StepKind::kConnect);
    return true;
  }
  if (!link.open) return false;
  const bool message = !link.down.empty();
  const bool own_frame = link.stream && !link.down_frames.empty();
  const bool train = workers_[state.workers[w]].TrainerCanStep(bounds_.rounds);
  bool frame = own_frame;
  bool stream = link.stream;              // Frames can come.
  bool each = !link.stream || own_frame;  // Each of these has one.
  for (const ShardStream& shard : link.shards) {
    stream = stream || shard.wanted || shard.open;
    frame = frame || !shard.down.empty() || shard.ended;
    each = each && !shard.wanted && (!shard.open || (!shard.down.empty() && !shard.ended));
  }
  const bool all_known = link.ended || !stream || (message && each);
  if (all_known && (message || frame)) {
    if (message) add(StepKind::kDown);
    if (own_frame) add(StepKind::kDownFrame);
    for (size_t i = 0; i < link.shards.size(); ++i) {
      if (link.shards[i].down.empty()) continue;
      steps.push_back({StepKind::kShardDown, static_cast<uint8_t>(w + kMaxWorkers * i)});
    }
    if (train) add(StepKind::kTrain);
    if (!steps.empty()) return true;
  }
  if (!message || frame || train) return false;
  const auto& head = std::get<ToWorker>(items_[link.down.front()]);
  const bool verdict = std::holds_alternative<Verdict>(head) && !bounds_.late;
  const bool credit = std::holds_alternative<Credit>(head) &&
                      StepWorker(state.workers[w], Input::kReceive, link.down.front()).outputs == 0;
  if (verdict || credit) add(StepKind::kDown);
  return verdict || credit;
}

void World::Schedule(const State& state, std::vector<WorldStep>& steps) const {
  for (const uint8_t process : state.order) {
    const auto first = std::find_if(steps.begin(), steps.end(), [&](const WorldStep& step) {
      return ProcessOf(step) == process;
    });
    if (first == steps.end()) continue;
    steps = {*first};
    if (state.delays < bounds_.delays) steps.push_back({StepKind::kDelay, process});
    return;
  }
}

size_t World::Steps(const State& state, std::vector<WorldStep>& steps) {
  if (bounds_.reduce && Urgent(state, steps)) return steps.size();
  const AggregatorSummary& aggregator = aggregators_.SummaryOf(state.aggregator);
  const auto add = [&](StepKind kind, uint32_t worker = 0) {
    steps.push_back({kind, static_cast<uint8_t>(worker)});
  };
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    const Link& link = links_[state.links[w]];
    if (link.wanted) add(StepKind::kConnect, w);
    if (!link.up.empty()) add(StepKind::kUp, w);
    if (!link.up_frames.empty()) add(StepKind::kUpFrame, w);
    if (!link.down.empty()) add(StepKind::kDown, w);
    if (link.stream && !link.down_frames.empty()) add(StepKind::kDownFrame, w);
    for (uint32_t i = 0; i < link.shards.size(); ++i) {
      const ShardStream& stream = link.shards[i];
      const uint32_t which = w + kMaxWorkers * i;
      if (stream.carries() && !stream.up.empty()) add(StepKind::kShardUp, which);
      if (!stream.down.empty()) add(StepKind::kShardDown, which);
      if (link.ended) continue;
      if (stream.ended) add(StepKind::kShardEnd, which);
      if (stream.wanted && !workers_[state.workers[w]].ReportsUnreachable(i + 1)) {
        add(StepKind::kShardFail, which);
      }
    }
    if (ProcessIsLost(state, w)) {
      add(StepKind::kForget, w);
    } else if (link.ghost != 0) {
      add(StepKind::kNotice, w);
    }
    if (state.workers[w] != kNoProcess &&
        workers_[state.workers[w]].TrainerCanStep(bounds_.rounds)) {
      add(StepKind::kTrain, w);
    }
  }
  if (aggregator.reducing) add(StepKind::kReduce);
  if (aggregator.window_runs) add(StepKind::kWindow);
  if (aggregator.grace_runs) add(StepKind::kGrace);
  for (uint32_t slot = 0; slot < kMaxShards; ++slot) {
    const ShardSummary& shard = aggregator.shards[slot];
    if (shard.reports) add(StepKind::kShardReport, slot);
    if (shard.reducing) add(StepKind::kShardReduce, slot);
    if (shard.known && !shard.alive) add(StepKind::kShardNotice, slot);
    if (state.shards[slot].phase == ShardPhase::kDials) add(StepKind::kShardDial, slot);
  }
  if (aggregator.vacate_runs) add(StepKind::kVacate);
  if (aggregator.shard_grace_runs) add(StepKind::kShardGrace);
  if (steps.empty() && aggregator.start_timeout_runs) add(StepKind::kStartTimeout);
  if (bounds_.delays != kAllOrders && !steps.empty()) Schedule(state, steps);
  const size_t usual = steps.size();

  const auto left = [&](Fault fault, uint32_t most) {
    return state.used[static_cast<size_t>(fault)] < most;
  };
  uint32_t faults = 0;
  for (size_t i = 1; i < kFaultKinds; ++i) faults += state.used[i];
  for (uint32_t w = 0; w < bounds_.processes() && faults < bounds_.faults; ++w) {
    if (state.workers[w] == kNoProcess) continue;
    if (left(Fault::kDeath, bounds_.deaths)) add(StepKind::kDie, w);
    if (left(Fault::kRestart, bounds_.restarts)) add(StepKind::kRestart, w);
    if (left(Fault::kEviction, bounds_.evictions) && aggregator.member[w] &&
        !ProcessIsLost(state, w)) {
      add(StepKind::kEvict, w);
    }
    const Link& link = links_[state.links[w]];
    if (left(Fault::kCut, bounds_.cuts) && link.open) add(StepKind::kCut, w);
    if (left(Fault::kStreamCut, bounds_.stream_cuts) && link.stream && !link.ended) {
      add(StepKind::kCutStream, w);
    }
  }
  if (left(Fault::kCrash, bounds_.crashes)) add(StepKind::kCrash);
  AddShardFaults(state, faults < bounds_.faults, steps);
  return usual;
}

void World::AddShardFaults(const State& state, bool may, std::vector<WorldStep>& steps) const {
  const auto left = [&](Fault fault, uint32_t most) {
    return may && state.used[static_cast<size_t>(fault)] < most;
  };
  const auto add = [&](StepKind kind, uint32_t which) {
    steps.push_back({kind, static_cast<uint8_t>(which)});
  };
  const AggregatorSummary& aggregator = aggregators_.SummaryOf(state.aggregator);
  bool joins = left(Fault::kShardJoin, bounds_.shard_joins);
  for (uint32_t slot = 0; slot < kMaxShards; ++slot) {
    const ShardPhase phase = state.shards[slot].phase;
    if (phase == ShardPhase::kOut) {
      if (joins) add(StepKind::kJoinShard, slot);
      joins = false;  // Another one is as good.
      continue;
    }
    if (left(Fault::kShardLoss, bounds_.shard_losses)) add(StepKind::kLoseShard, slot);
    if (phase != ShardPhase::kLinked) continue;
    if (left(Fault::kShardDrain, bounds_.shard_drains) && !aggregator.shards[slot].draining) {
      add(StepKind::kDrainShard, slot);
    }
    for (uint32_t w = 0; w < bounds_.processes(); ++w) {
      if (state.workers[w] == kNoProcess) continue;
      const bool cut_off = (links_[state.links[w]].cut_off >> slot & 1) != 0;
      if (cut_off) add(StepKind::kHealShard, w + kMaxWorkers * slot);
      if (!cut_off && left(Fault::kShardCut, bounds_.shard_cuts)) {
        add(StepKind::kCutShard, w + kMaxWorkers * slot);
      }
    }
  }
}

// ---- processes

void World::GiveAggregator(AggregatorProcess& process, const AggregatorOrigin& origin) const {
  switch (static_cast<Input>(origin.input)) {
    case Input::kOpen:
      process.Open(origin.who);
      break;
    case Input::kOpenStream:
      process.OpenStream(origin.who);
      break;
    case Input::kLoseStream:
      process.LoseStream(origin.who);
      break;
    case Input::kTake:
      process.Take(origin.who, items_[origin.item]);
      break;
    case Input::kLose:
      process.Lose(origin.who);
      break;
    case Input::kEvict:
      process.Evict(JobOf(origin.who), NameOf(origin.who));
      break;
    case Input::kReduce:
      process.FinishReduction();
      break;
    case Input::kWindow:
      process.PassWindow();
      break;
    case Input::kGrace:
      process.PassGrace();
      break;
    case Input::kStartTimeout:
      process.PassStartTimeout();
      break;
    case Input::kShardComes:
      process.TakeShard(origin.who, origin.item);
      break;
    case Input::kShardDies:
      process.KillShard(origin.who);
      break;
    case Input::kShardLost:
      process.LoseShard(origin.who);
      break;
    case Input::kShardDrains:
      process.DrainShard(origin.who);
      break;
    case Input::kShardOpens:
      process.OpenStreamOf(origin.item % kMaxShards, origin.who, origin.item / kMaxShards);
      break;
    case Input::kShardCloses:
      process.CloseShardStream(origin.who);
      break;
    case Input::kShardTakes:
      process.TakeAtShard(origin.who, items_[origin.item]);
      break;
    case Input::kShardReduces:
      process.FinishReductionOf(origin.who);
      break;
    case Input::kShardReports:
      process.HearShard(origin.who);
      break;
    case Input::kVacate:
      process.PassUntil(process.VacateAt());
      break;
    case Input::kShardGrace:
      process.PassUntil(process.UnreachableEnd());
      break;
    default:
      break;
  }
}

World::Effect World::StepAggregator(uint32_t process, Input input, uint8_t who, uint32_t item) {
  const StepKey key{process, static_cast<uint32_t>(input) * 256 + who, item};
  if (const auto known = aggregator_steps_.find(key); known != aggregator_steps_.end()) {
    return known->second;
  }
  const AggregatorOrigin origin{process, item, static_cast<uint8_t>(input), who};
  AggregatorProcess next = aggregators_.Get(process);
  GiveAggregator(next, origin);
  Effect effect;
  effect.first_output = static_cast<uint32_t>(outputs_.size());
  for (AggregatorOutput& output : next.TakeOutputs()) {
    outputs_.push_back({static_cast<uint8_t>(output.kind), static_cast<uint8_t>(output.to), 0,
                        items_.Add(std::move(output.item))});
  }
  effect.outputs = static_cast<uint32_t>(outputs_.size()) - effect.first_output;
  if (!next.wrong().empty()) {
    effect.wrong = static_cast<uint32_t>(wrongs_.size());
    wrongs_.push_back(absl::StrCat("The aggregator's core is broken: ", next.wrong(), "."));
  }
  effect.process = aggregators_.Add(std::move(next), origin);
  aggregator_steps_.emplace(key, effect);
  return effect;
}

World::Effect World::StepWorker(uint32_t process, Input input, uint32_t item) {
  const StepKey key{process, static_cast<uint32_t>(input), item};
  if (const auto known = worker_steps_.find(key); known != worker_steps_.end()) {
    return known->second;
  }
  WorkerProcess next = workers_[process];
  switch (input) {
    case Input::kStart:
      next.Start(bounds_.kind);
      break;
    case Input::kSessionUp:
      next.SessionUp();
      break;
    case Input::kSessionDown:
      next.SessionDown();
      break;
    case Input::kStreamUp:
      next.StreamUp(item);
      break;
    case Input::kStreamDown:
      next.StreamDown(item);
      break;
    case Input::kReceive:
      next.Take(items_[item]);
      break;
    case Input::kTrain:
      next.StepTrainer(bounds_.whole_trainer);
      break;
    default:
      break;
  }
  Effect effect;
  effect.first_output = static_cast<uint32_t>(outputs_.size());
  for (WorkerOutput& output : next.TakeOutputs()) {
    const bool sends =
        output.kind == WorkerOutput::Kind::kMessage || output.kind == WorkerOutput::Kind::kFrame;
    outputs_.push_back({static_cast<uint8_t>(output.kind), static_cast<uint8_t>(output.stream),
                        static_cast<uint8_t>(output.slot),
                        sends ? items_.Add(std::move(output.item)) : 0});
  }
  effect.outputs = static_cast<uint32_t>(outputs_.size()) - effect.first_output;
  effect.first_applied = static_cast<uint32_t>(applied_.size());
  applied_.insert(applied_.end(), next.applied().begin(), next.applied().end());
  effect.applied = static_cast<uint32_t>(applied_.size()) - effect.first_applied;
  if (!next.wrong().empty()) {
    effect.wrong = static_cast<uint32_t>(wrongs_.size());
    wrongs_.push_back(next.wrong());
  }
  effect.process = workers_.Add(std::move(next));
  worker_steps_.emplace(key, effect);
  return effect;
}

void World::RunAggregator(Work& work, Input input, uint8_t who, uint32_t item) {
  using Kind = AggregatorOutput::Kind;
  const Effect effect = StepAggregator(work.state.aggregator, input, who, item);
  work.state.aggregator = effect.process;
  if (effect.wrong != 0) work.Fail(wrongs_[effect.wrong]);
  for (uint32_t i = 0; i < effect.outputs; ++i) {
    const Output output = outputs_[effect.first_output + i];
    const Kind kind = static_cast<Kind>(output.kind);
    if (kind == Kind::kRelease) {
      work.Narrate([&] { return absl::StrCat("    shard s", output.to, " is released"); });
      ShardIsGone(work, output.to);
      continue;
    }
    if (output.to >= kFirstShardStream) {
      OnShardStream(work, output);
      continue;
    }
    const uint32_t worker = WorkerOf(output.to);
    Link& link = work.links[worker];
    if (output.to == link.ghost) {
      if (kind == Kind::kEnd) link.ghost = 0;
      continue;
    }
    if (!link.open || link.session != output.to || link.ended) continue;
    work.Narrate([&] {
      return absl::StrCat("    to ", NameOf(worker), ": ", Describe(items_[output.item]));
    });
    OnVerdictSent(work, JobOf(worker), items_[output.item]);
    (kind == Kind::kFrame ? link.down_frames : link.down).push_back(output.item);
    if (kind == Kind::kEnd) {
      link.ended = true;
      link.up.clear();
      link.up_frames.clear();
    }
  }
}

void World::OnShardStream(Work& work, const Output& output) {
  using Kind = AggregatorOutput::Kind;
  const uint32_t worker = WorkerOfStream(output.to);
  for (ShardStream& stream : work.links[worker].shards) {
    if (!stream.open || stream.ended || stream.number != output.to) continue;
    switch (static_cast<Kind>(output.kind)) {
      case Kind::kShardFrame:
        work.Narrate([&] {
          return absl::StrCat("    s", stream.slot, " to ", NameOf(worker), ": ",
                              Describe(items_[output.item]));
        });
        stream.down.push_back(output.item);
        break;
      case Kind::kAcceptStream:
        stream.accepted = true;
        break;
      case Kind::kCloseStream:
        stream.ended = true;
        stream.up.clear();
        break;
      default:
        break;
    }
  }
}

void World::RunWorker(Work& work, uint32_t worker, Input input, uint32_t item) {
  using Kind = WorkerOutput::Kind;
  const Effect effect = StepWorker(work.state.workers[worker], input, item);
  work.state.workers[worker] = effect.process;
  if (effect.wrong != 0) {
    work.Fail(absl::StrCat("Worker ", NameOf(worker), ": ", wrongs_[effect.wrong], "."));
  }
  Link& link = work.links[worker];
  for (uint32_t i = 0; i < effect.outputs; ++i) {
    const Output output = outputs_[effect.first_output + i];
    switch (static_cast<Kind>(output.kind)) {
      case Kind::kMessage:
      case Kind::kFrame:
        if (!link.open || link.ended) break;
        if (output.to > 0) {
          ShardStream& stream = link.shards[output.to - 1];
          if (!stream.open || stream.ended) break;
          work.Narrate([&] {
            return absl::StrCat("    from ", NameOf(worker), " to s", stream.slot, ": ",
                                Describe(items_[output.item]));
          });
          stream.up.push_back(output.item);
          break;
        }
        work.Narrate([&] {
          return absl::StrCat("    from ", NameOf(worker), ": ", Describe(items_[output.item]));
        });
        (static_cast<Kind>(output.kind) == Kind::kFrame ? link.up_frames : link.up)
            .push_back(output.item);
        break;
      case Kind::kOpenSession:
        link.wanted = true;
        break;
      case Kind::kCloseSession:
        BreakLink(work, worker);
        break;
      case Kind::kOpenStream:
        if (output.to > 0) {
          if (link.shards.size() < output.to) link.shards.resize(output.to);
          link.shards[output.to - 1] = ShardStream();
          link.shards[output.to - 1].wanted = true;
          link.shards[output.to - 1].slot = output.slot;
          break;
        }
        link.stream = true;
        RunAggregator(work, Input::kOpenStream, link.session);
        break;
      case Kind::kCloseStream:
        if (link.shards.size() < output.to) break;
        CloseShardStream(work, link.shards[output.to - 1]);
        link.shards[output.to - 1] = ShardStream();
        break;
    }
  }
  for (uint32_t i = 0; i < effect.applied; ++i) {
    const Applied applied = applied_[effect.first_applied + i];
    work.Narrate([&] {
      return absl::StrCat("    ", NameOf(worker), " applies round ", applied.round, ", history ",
                          absl::Hex(applied.chain));
    });
    const std::vector<uint64_t>& verdicts = work.history.verdicts[JobOf(worker)];
    if (applied.round > verdicts.size() || verdicts[applied.round - 1] != applied.chain) {
      work.Fail(absl::StrCat("Worker ", NameOf(worker), " applies a version of round ",
                             applied.round, " that is not the one that was told last."));
    }
  }
  if (workers_[effect.process].conflict() && !work.history.ended) {
    work.Fail(absl::StrCat("Worker ", NameOf(worker),
                           " is told that its history is not the job's, and there was no fork."));
  }
  OpenShardStreams(work, worker);
}

// ---- shards

bool World::Reaches(const Work& work, uint32_t worker, uint32_t slot) const {
  return work.state.shards[slot].phase == ShardPhase::kLinked &&
         (work.links[worker].cut_off >> slot & 1) == 0;
}

void World::OpenShardStreams(Work& work, uint32_t worker) {
  Link& link = work.links[worker];
  if (!link.open || link.ended) return;
  for (size_t i = 0; i < link.shards.size(); ++i) {
    ShardStream& stream = link.shards[i];
    if (!stream.wanted || !Reaches(work, worker, stream.slot)) continue;
    stream.wanted = false;
    stream.open = true;
    link.last_stream = (link.last_stream + 1) % kShardStreams;
    stream.number =
        static_cast<uint8_t>(kFirstShardStream + worker * kShardStreams + link.last_stream);
    RunAggregator(work, Input::kShardOpens, stream.number, link.session * kMaxShards + stream.slot);
    RunWorker(work, worker, Input::kStreamUp, static_cast<uint32_t>(i + 1));
  }
}

void World::CloseShardStream(Work& work, ShardStream& stream) {
  if (!stream.open || stream.ended) return;
  stream.ended = true;
  stream.up.clear();
  stream.down.clear();
  RunAggregator(work, Input::kShardCloses, stream.number);
}

void World::ShardComes(Work& work, uint32_t slot) {
  SlotState& shard = work.state.shards[slot];
  shard.phase = ShardPhase::kLinked;
  RunAggregator(work, Input::kShardComes, static_cast<uint8_t>(slot),
                ShardIdOf(slot, shard.lives++));
  for (uint32_t w = 0; w < bounds_.processes(); ++w) OpenShardStreams(work, w);
}

void World::ShardIsGone(Work& work, uint32_t slot) {
  work.state.shards[slot].phase = ShardPhase::kOut;
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    for (ShardStream& stream : work.links[w].shards) {
      if (!stream.open || stream.slot != slot) continue;
      stream.ended = true;
      stream.up.clear();
      stream.down.clear();
    }
  }
}

// ---- sent verdicts

void World::OnVerdictSent(Work& work, uint32_t job, const Item& item) {
  const auto* message = std::get_if<ToWorker>(&item);
  if (message == nullptr) return;
  if (const auto* verdict = std::get_if<Verdict>(message)) {
    OnVerdictSent(work, job, verdict->record);
  } else if (const auto* welcome = std::get_if<Welcome>(message)) {
    for (const LastVerdicts& last : welcome->verdicts) {
      for (const VerdictRecord& record : last.verdicts) OnVerdictSent(work, job, record);
    }
  }
}

// Checks that a round has only one version.
void World::OnVerdictSent(Work& work, uint32_t job, const VerdictRecord& record) {
  std::vector<uint64_t>& verdicts = work.history.verdicts[job];
  if (verdicts.size() < record.round) verdicts.resize(record.round);
  uint64_t& known = verdicts[record.round - 1];
  if (known == record.chain) return;
  if (known != 0) {
    if (!work.history.ended && SomebodyRemembers(work.state, {record.round, known})) {
      work.Fail(absl::StrCat("Two versions of round ", record.round,
                             " are told, and a worker lives that remembers the first."));
      return;
    }
    EndGuarantee(work);
    verdicts.resize(record.round);
  }
  verdicts[record.round - 1] = record.chain;
}

void World::EndGuarantee(Work& work) const {
  work.excused |= !work.history.ended;
  work.history.ended = true;
}

bool World::SomebodyRemembers(const State& state, const Applied& version) const {
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    if (state.workers[w] != kNoProcess && workers_[state.workers[w]].Holds(version)) return true;
  }
  return false;
}

// ---- steps

void World::Connect(Work& work, uint32_t worker) {
  Link& link = work.links[worker];
  const auto parity = [&] { return static_cast<uint8_t>(2 * worker + (link.parity ? 2 : 1)); };
  if (parity() == link.ghost) link.parity = !link.parity;
  link.session = parity();
  link.parity = !link.parity;
  link.wanted = false;
  link.open = true;
  RunAggregator(work, Input::kOpen, link.session);
  RunWorker(work, worker, Input::kSessionUp);
}

// The worker's session has ended for the worker. The aggregator does not know that yet, unless it
// ended the session.
void World::BreakLink(Work& work, uint32_t worker) {
  Link& link = work.links[worker];
  link.wanted = false;
  if (!link.open) return;
  for (ShardStream& stream : link.shards) CloseShardStream(work, stream);
  link.shards.clear();
  const uint8_t before = link.ghost;
  link.ghost = link.ended ? link.ghost : link.session;
  link.open = link.stream = link.ended = false;
  link.session = 0;
  link.up.clear();
  link.up_frames.clear();
  link.down.clear();
  link.down_frames.clear();
  // The aggregator has only one unnoticed session of a worker at a time.
  if (before != 0 && before != link.ghost) RunAggregator(work, Input::kLose, before);
}

void World::Crash(Work& work) {
  work.state.aggregator =
      FirstAggregator(aggregators_.SummaryOf(work.state.aggregator).term + kTermsOfOne, false);
  for (SlotState& shard : work.state.shards) {
    if (shard.phase == ShardPhase::kLinked) shard.phase = ShardPhase::kDials;
    shard.lives = 0;
  }
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    const bool open = work.links[w].open;
    const bool wanted = work.links[w].wanted;
    const uint8_t cut_off = work.links[w].cut_off;
    work.links[w] = Link();
    work.links[w].wanted = wanted;
    work.links[w].cut_off = cut_off;
    if (open) RunWorker(work, w, Input::kSessionDown);
  }
}

Outcome World::Take(const State& state, WorldStep step, std::vector<std::string>* trail) {
  Work work;
  work.state = state;
  work.history = histories_[state.history];
  work.trail = trail;
  for (uint32_t w = 0; w < bounds_.processes(); ++w) work.links[w] = links_[state.links[w]];
  const uint32_t w = step.worker % kMaxWorkers;
  const uint32_t which = step.worker / kMaxWorkers;  // A shard's slot, or a data stream to one.
  Link& link = work.links[w];
  const auto use = [&](Fault fault) { ++work.state.used[static_cast<size_t>(fault)]; };
  switch (step.kind) {
    case StepKind::kConnect:
      work.Narrate([&] { return absl::StrCat(NameOf(w), " connects"); });
      Connect(work, w);
      break;
    case StepKind::kUp:
    case StepKind::kUpFrame: {
      const uint32_t item = TakeHead(step.kind == StepKind::kUp ? link.up : link.up_frames);
      work.Narrate(
          [&] { return absl::StrCat(NameOf(w), " -> aggregator: ", Describe(items_[item])); });
      RunAggregator(work, Input::kTake, link.session, item);
      break;
    }
    case StepKind::kDown:
    case StepKind::kDownFrame: {
      const uint32_t item = TakeHead(step.kind == StepKind::kDown ? link.down : link.down_frames);
      work.Narrate(
          [&] { return absl::StrCat("aggregator -> ", NameOf(w), ": ", Describe(items_[item])); });
      RunWorker(work, w, Input::kReceive, item);
      if (bounds_.delays != kAllOrders && BacksOff(items_[item]))
        ComesLast(work.state, step.worker);
      break;
    }
    case StepKind::kReduce:
      work.Narrate([&] { return "the reduction ends"; });
      RunAggregator(work, Input::kReduce, 0);
      break;
    case StepKind::kTrain:
      work.Narrate([&] { return absl::StrCat("trainer ", NameOf(w), " goes on"); });
      RunWorker(work, w, Input::kTrain);
      break;
    case StepKind::kNotice: {
      work.Narrate([&] {
        return absl::StrCat("the aggregator notices that a connection of ", NameOf(w), " is gone");
      });
      const uint8_t ghost = link.ghost;
      link.ghost = 0;
      RunAggregator(work, Input::kLose, ghost);
      break;
    }
    case StepKind::kForget:
      work.Narrate([&] {
        return absl::StrCat("the aggregator gives up ", NameOf(w), ", whose process is gone");
      });
      RunAggregator(work, Input::kEvict, static_cast<uint8_t>(w));
      break;
    case StepKind::kWindow:
      work.Narrate([&] { return "the recovery window is over"; });
      RunAggregator(work, Input::kWindow, 0);
      // A worker that is late for a recovery must not be late for ever.
      if (bounds_.delays != kAllOrders) ComesLast(work.state, kClock);
      break;
    case StepKind::kGrace:
      work.Narrate([&] { return "the grace is over"; });
      RunAggregator(work, Input::kGrace, 0);
      if (bounds_.delays != kAllOrders) ComesLast(work.state, kClock);
      break;
    case StepKind::kStartTimeout:
      work.Narrate([&] { return "the start timeout is over"; });
      RunAggregator(work, Input::kStartTimeout, 0);
      break;
    case StepKind::kDelay: {
      ComesLast(work.state, step.worker);
      ++work.state.delays;
      break;
    }
    case StepKind::kDie:
      work.Narrate([&] { return absl::StrCat("FAULT: ", NameOf(w), " dies"); });
      use(Fault::kDeath);
      BreakLink(work, w);
      link.parity = false;
      work.state.workers[w] = kNoProcess;
      break;
    case StepKind::kRestart: {
      work.Narrate([&] { return absl::StrCat("FAULT: ", NameOf(w), " restarts without memory"); });
      use(Fault::kRestart);
      BreakLink(work, w);
      const uint32_t life = workers_[work.state.workers[w]].life() + 1;
      work.state.workers[w] = workers_.Add(WorkerProcess(JobOf(w), w, life, trainers_));
      RunWorker(work, w, Input::kStart);
      break;
    }
    case StepKind::kEvict:
      work.Narrate([&] { return absl::StrCat("FAULT: ", NameOf(w), " is evicted and lives"); });
      use(Fault::kEviction);
      RunAggregator(work, Input::kEvict, static_cast<uint8_t>(w));
      break;
    case StepKind::kCut:
      work.Narrate([&] { return absl::StrCat("FAULT: the connections of ", NameOf(w), " break"); });
      use(Fault::kCut);
      BreakLink(work, w);
      RunWorker(work, w, Input::kSessionDown);
      break;
    case StepKind::kCutStream:
      work.Narrate(
          [&] { return absl::StrCat("FAULT: the data stream of ", NameOf(w), " breaks"); });
      use(Fault::kStreamCut);
      link.stream = false;
      link.up_frames.clear();
      link.down_frames.clear();
      RunAggregator(work, Input::kLoseStream, link.session);
      RunWorker(work, w, Input::kStreamDown);
      break;
    case StepKind::kShardUp: {
      ShardStream& stream = link.shards[which];
      const uint32_t item = TakeHead(stream.up);
      work.Narrate([&] {
        return absl::StrCat(NameOf(w), " -> s", stream.slot, ": ", Describe(items_[item]));
      });
      RunAggregator(work, Input::kShardTakes, stream.number, item);
      break;
    }
    case StepKind::kShardDown: {
      ShardStream& stream = link.shards[which];
      const uint32_t item = TakeHead(stream.down);
      work.Narrate([&] {
        return absl::StrCat("s", stream.slot, " -> ", NameOf(w), ": ", Describe(items_[item]));
      });
      RunWorker(work, w, Input::kReceive, item);
      break;
    }
    case StepKind::kShardEnd:
      work.Narrate([&] {
        return absl::StrCat(NameOf(w), " sees that its data stream to s", link.shards[which].slot,
                            " has ended");
      });
      link.shards[which] = ShardStream();
      RunWorker(work, w, Input::kStreamDown, which + 1);
      break;
    case StepKind::kShardFail:
      work.Narrate([&] {
        return absl::StrCat(NameOf(w), " cannot open a data stream to s", link.shards[which].slot);
      });
      link.shards[which] = ShardStream();
      RunWorker(work, w, Input::kStreamDown, which + 1);
      break;
    case StepKind::kShardReport:
      work.Narrate([&] { return absl::StrCat("s", w, " -> aggregator: a report"); });
      RunAggregator(work, Input::kShardReports, step.worker);
      break;
    case StepKind::kShardReduce:
      work.Narrate([&] { return absl::StrCat("the reduction at s", w, " ends"); });
      RunAggregator(work, Input::kShardReduces, step.worker);
      break;
    case StepKind::kShardNotice:
      work.Narrate([&] { return absl::StrCat("the aggregator notices that s", w, " is gone"); });
      RunAggregator(work, Input::kShardLost, step.worker);
      break;
    case StepKind::kShardDial:
      work.Narrate([&] { return absl::StrCat("s", w, " connects again"); });
      ShardComes(work, w);
      break;
    case StepKind::kVacate:
      work.Narrate([&] { return "lanes that rest leave the shard that drains"; });
      RunAggregator(work, Input::kVacate, 0);
      if (bounds_.delays != kAllOrders) ComesLast(work.state, kClock);
      break;
    case StepKind::kShardGrace:
      work.Narrate([&] { return "a shard has been out of reach for long enough"; });
      RunAggregator(work, Input::kShardGrace, 0);
      if (bounds_.delays != kAllOrders) ComesLast(work.state, kClock);
      break;
    case StepKind::kLoseShard:
      work.Narrate([&] { return absl::StrCat("FAULT: s", w, " dies"); });
      use(Fault::kShardLoss);
      if (state.shards[w].phase == ShardPhase::kLinked) {
        RunAggregator(work, Input::kShardDies, step.worker);
      }
      ShardIsGone(work, w);
      break;
    case StepKind::kDrainShard:
      work.Narrate([&] { return absl::StrCat("FAULT: s", w, " is asked to end"); });
      use(Fault::kShardDrain);
      RunAggregator(work, Input::kShardDrains, step.worker);
      break;
    case StepKind::kCutShard:
      work.Narrate([&] { return absl::StrCat("FAULT: ", NameOf(w), " cannot reach s", which); });
      use(Fault::kShardCut);
      link.cut_off |= static_cast<uint8_t>(1u << which);
      for (ShardStream& stream : link.shards) {
        if (stream.slot == which) CloseShardStream(work, stream);
      }
      break;
    case StepKind::kHealShard:
      work.Narrate([&] { return absl::StrCat(NameOf(w), " can reach s", which, " again"); });
      link.cut_off &= static_cast<uint8_t>(~(1u << which));
      OpenShardStreams(work, w);
      break;
    case StepKind::kJoinShard:
      work.Narrate([&] { return absl::StrCat("s", w, " comes"); });
      use(Fault::kShardJoin);
      ShardComes(work, w);
      break;
    case StepKind::kCrash:
      work.Narrate([&] { return "FAULT: the aggregator crashes and is back"; });
      use(Fault::kCrash);
      Crash(work);
      break;
  }
  for (uint32_t i = 0; i < bounds_.processes(); ++i) {
    work.state.links[i] = links_.Add(std::move(work.links[i]));
  }
  work.state.history = histories_.Add(std::move(work.history));
  return {work.state, std::move(work.violation), work.excused};
}

// ---- endings

Ending World::EndingOf(const State& state, std::string& why) {
  Ending worst = Ending::kNotYet;
  for (uint32_t i = 0; i < bounds_.jobs; ++i) worst = std::max(worst, EndingOf(state, i, why));
  return worst;
}

Ending World::EndingOf(const State& state, uint32_t number, std::string& why) {
  const aggregator::Job* job = aggregators_.Get(state.aggregator).FindJob(number);
  uint32_t live = 0;
  bool done = true;
  for (uint32_t w = 0; w < bounds_.processes(); ++w) {
    if (JobOf(w) != number || state.workers[w] == kNoProcess) continue;
    const WorkerProcess& worker = workers_[state.workers[w]];
    if (worker.trainer() == TrainerPhase::kStopped) continue;
    ++live;
    if (worker.trainer() == TrainerPhase::kWaiting) continue;
    if (worker.trainer() == TrainerPhase::kIdle && worker.last_verdict() >= bounds_.rounds) {
      continue;
    }
    done = false;
    absl::StrAppend(&why, NameOf(w), " is in round ", worker.last_verdict() + 1, ". ");
  }
  if (live == 0) return Ending::kDone;
  if (job == nullptr) {
    why += "The aggregator has never heard of the job.";
    return Ending::kStuck;
  }
  const bool few = live < bounds_.min_workers;
  if (job->state() == JobState::kRunning && !job->Paused()) {
    if (done && !job->HasOpenRound()) return HoldsNothing(state, *job, why);
    absl::StrAppend(&why, "The job runs.");
    return Ending::kStuck;
  }
  absl::StrAppend(&why, "The job is ", job->Paused() ? "paused, " : "",
                  aggregator::JobStateName(job->state()), ": ", job->reason, " ", live,
                  " workers live. ");
  if (job->state() == JobState::kHalted) {
    const bool lost_memory = state.used[static_cast<size_t>(Fault::kDeath)] > 0 ||
                             state.used[static_cast<size_t>(Fault::kRestart)] > 0 ||
                             state.used[static_cast<size_t>(Fault::kEviction)] > 0;
    return lost_memory ? Ending::kHalted : Ending::kStuck;
  }
  if (job->state() == JobState::kRecovering) return Ending::kStuck;
  return few ? Ending::kPaused : Ending::kStuck;
}

Ending World::HoldsNothing(const State& state, const aggregator::Job& job, std::string& why) {
  for (const auto& [slot, shard] : aggregators_.Get(state.aggregator).shards()) {
    if (shard.held_bytes() == 0 || job.placements.Excludes(shard.id())) continue;
    absl::StrAppend(&why, "Shard s", slot, " holds ", shard.held_bytes(), " bytes of no round.");
    return Ending::kStuck;
  }
  return Ending::kDone;
}

std::string World::Sizes() const {
  return absl::StrCat(aggregators_.size(), " aggregator states (", aggregators_.remade(),
                      " steps to make some again), ", workers_.size(), " worker states, ",
                      links_.size(), " link states, ", items_.size(), " messages, ",
                      aggregator_steps_.size() + worker_steps_.size(), " core steps");
}

}  // namespace basin::explore
