// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The scripted trainer of a worker process.

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "protocol/counted.h"
#include "tests/simulation/worker_process.h"
#include "tests/simulation/world.h"

namespace basin::simulation {
namespace {

constexpr char kBlobName[] = "state";
// Then a trainer gives up the call for which there is no room.
constexpr uint32_t kMostCallTries = 50;

// What a contribution has besides that of the round before.
std::vector<SampleRange> OwnSamples(const Contribution& given) {
  IntervalSet own(given.samples);
  if (given.late.has_value()) own.Remove(given.late->samples);
  return own.Runs();
}

}  // namespace

void WorkerProcess::ActAfter(SimTime delay) {
  const SimTime at = world_.queue.now() + delay;
  if (at >= act_at_) return;
  act_at_ = at;
  world_.queue.At(at, Happening::kTrainer, index_, 0);
}

void WorkerProcess::Start() {
  Register();
  ActAfter(random_.Between(0, 50) * kMillisecond);
}

void WorkerProcess::AddLane(uint32_t model) {
  const Scenario& scenario = world_.scenario;
  Lane& lane = lanes_.emplace_back();
  lane.model = lane.life = model;
  lane.state = checkpoint_.lanes[model];
  lane.states[0] = checkpoint_.lanes[model];
  if (MayGo(lane)) LeaveLife(lane);
  std::vector<uint32_t> tensors(scenario.lanes[model].tensors.size());
  std::iota(tensors.begin(), tensors.end(), 0);
  random_.Shuffle(tensors);
  if (scenario.partial_models && tensors.size() > 1 && random_.Chance(40)) {
    lane.absent.push_back(tensors.back());
    tensors.pop_back();
  }
  lane.known = std::move(tensors);
}

// Each process registers its lanes and tensors in its own order; some lack a tensor, for good or
// for a while. Names that may go are registered when they are used.
void WorkerProcess::Register() {
  const Scenario& scenario = world_.scenario;
  std::vector<uint32_t> models(world_calls_ > 0 ? 1 : scenario.lanes.size());
  std::iota(models.begin(), models.end(), 0);
  random_.Shuffle(models);
  // The lanes are complete first, because the core's first answers may name any lane.
  for (const uint32_t model : models) AddLane(model);
  for (const Lane& lane : lanes_) Register(lane);
}

void WorkerProcess::Register(const Lane& lane) {
  const LaneModel& model = world_.scenario.lanes[lane.model];
  client::RegisterTensors request{model.name, model.kind, {}};
  for (const uint32_t tensor : lane.known) request.tensors.push_back(model.tensors[tensor]);
  Step(request);
}

// Returns whether a fault of the scenario makes this trainer do something in this step.
bool WorkerProcess::Strikes(FaultKind kind, RoundNumber step, SimTime* duration) {
  const std::optional<Fault> fault = world_.TakeTrainerFault(kind, worker_, step);
  if (!fault.has_value()) return false;
  if (duration != nullptr) *duration = fault->duration;
  return true;
}

void WorkerProcess::Act(uint32_t wait, SimTime scheduled) {
  const SimTime now = world_.queue.now();
  if (wait == kAskedToLeave) return Leave();
  if (wait == kCallIsPostponed) return Step(client::AbandonRounds{});
  if (wait != 0) {
    // I4: a second has passed since the deadline of a wait.
    for (uint32_t handle = 0; handle < lanes_.size(); ++handle) {
      Lane& lane = lanes_[handle];
      if (lane.take == wait) return TakeResults(handle);
      if (lane.deadline == 0 || lane.wait != wait) continue;
      if (now < continued_at + kSecond) {  // It just continued, so it is not to blame.
        world_.queue.After(kSecond, Happening::kTrainer, index_, wait);
        continue;
      }
      world_.checker.Fail(
          Invariant::kTypedResult,
          absl::StrCat("The trainer of ", name(), " still waits for lane ",
                       world_.scenario.lanes[lane.model].name, " a second after its deadline."));
    }
    return;
  }
  if (scheduled != act_at_) return;
  act_at_ = kNever;
  switch (phase_) {
    case Phase::kImporting:
      phase_ = Phase::kJoining;
      [[fallthrough]];
    case Phase::kJoining: {
      if (drained_) return Leave();
      uint64_t state = 0;
      for (const Lane& lane : lanes_) {
        if (!MayGo(lane)) state = Mix(state + lane.model, lane.state.value_or(0));
      }
      Step(client::DeclareReady{checkpoint_.step, state});
      return;
    }
    case Phase::kLoading:
      return TryLoad();
    case Phase::kTraining:
      return Train();
    case Phase::kDone:
    case Phase::kLeaving:
    case Phase::kLeft:
      return;
  }
}

// Does one thing at a time: a push, or the begin of the next step.
void WorkerProcess::Train() {
  std::vector<uint32_t> pushing;
  bool waiting = false;
  RoundNumber least = std::numeric_limits<RoundNumber>::max();
  for (uint32_t handle = 0; handle < lanes_.size(); ++handle) {
    Lane& lane = lanes_[handle];
    CatchUp(lane);
    if (lane.phase == LanePhase::kPushing) pushing.push_back(handle);
    waiting |= lane.phase == LanePhase::kWaiting;
    if (!MayGo(lane)) least = std::min(least, lane.last);
  }
  // A refused call must not look like a refused begin; see Do(Refused).
  const bool begun = std::all_of(pushing.begin(), pushing.end(),
                                 [this](uint32_t handle) { return lanes_[handle].round != 0; });
  for (uint32_t handle = 0; handle < lanes_.size() && begun; ++handle) MindSamples(handle);
  if (phase_ != Phase::kTraining) return;
  if (!pushing.empty()) {
    PushNext(random_.Pick(pushing));
    if (phase_ == Phase::kTraining) ActAfter(random_.Between(10, 1000) + Lateness(5));
    return;
  }
  if (waiting && phase_ == Phase::kTraining && !dropped_ && HasCallsToBegin(least + 1)) {
    MakeCalls(least + 1);
    if (phase_ == Phase::kTraining) ActAfter(random_.Between(1, 20) * kMillisecond);
    return;
  }
  if (waiting || phase_ != Phase::kTraining) return;  // The end of a round comes back here.
  if (dropped_) return drained_ ? Leave() : Evicted();
  if (behind_ && ahead_-- == 0) return LevelUp();
  if (finished_) return;
  if (least >= world_.scenario.rounds) {
    phase_ = Phase::kDone;
    return;
  }
  const RoundNumber step = least + 1;
  if (Strikes(FaultKind::kLeave, step)) return Leave();
  if (Strikes(FaultKind::kFinish, step)) {
    finished_ = true;
    phase_ = Phase::kDone;
    return Step(client::Finish{});
  }
  SimTime busy = 0;
  if (Strikes(FaultKind::kBusy, step, &busy)) {
    Step(client::SetBusy{"evaluation", absl::Microseconds(busy)});
    return ActAfter(busy);
  }
  // The library's call waits for the answer; another thread may load data meanwhile.
  const bool leases =
      std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.leases; });
  if (leases && random_.Chance(80)) return ActAfter(random_.Between(1, 5) * kMillisecond);
  if (world_calls_ > 0) {
    if (!MakeCalls(step)) BeginLane(0);
    if (phase_ == Phase::kTraining) ActAfter(random_.Between(10, 1000));
    return;
  }
  std::vector<uint32_t> handles(lanes_.size());
  std::iota(handles.begin(), handles.end(), 0);
  // The turn is the same on every worker: the order of the model.
  std::sort(handles.begin(), handles.end(),
            [&](uint32_t a, uint32_t b) { return lanes_[a].model < lanes_[b].model; });
  if (!world_.scenario.one_lane_at_a_time) random_.Shuffle(handles);
  if (world_.scenario.scripts) {
    std::rotate(handles.begin(), handles.begin() + position_, handles.end());
    while (lanes_[handles[0]].last >= world_.scenario.rounds) {  // All lanes end after as many.
      std::rotate(handles.begin(), handles.begin() + 1, handles.end());
    }
    position_ = (lanes_[handles[0]].model + 1) % static_cast<uint32_t>(lanes_.size());
  }
  for (const uint32_t handle : handles) {
    if (phase_ != Phase::kTraining) return;
    if (!world_.scenario.scripts && lanes_[handle].last != least) continue;
    if (!WaitsForBatch(handle)) BeginLane(handle);
    if (world_.scenario.one_lane_at_a_time) break;
  }
  if (phase_ == Phase::kTraining) ActAfter(random_.Between(10, 1000));
}

bool WorkerProcess::MakeCalls(RoundNumber step) {
  const bool in_turn = world_.scenario.one_lane_at_a_time;
  if (calls_of_ != step) {
    calls_of_ = step;
    calls_ = CallsOf(step);
    if (!in_turn) random_.Shuffle(calls_);
    tries_ = 0;
  }
  calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                              [this](uint32_t model) { return IsMade(model); }),
               calls_.end());
  if (calls_.empty()) return false;
  do {
    const std::optional<uint32_t> handle = Name(calls_.back());
    if (!handle.has_value() || phase_ != Phase::kTraining) return true;
    BeginLane(*handle);
    if (!InFlight(*handle) && ++tries_ < kMostCallTries) return true;  // It was refused.
    calls_.pop_back();
  } while (!in_turn && !calls_.empty() && phase_ == Phase::kTraining);
  return true;
}

// A trainer that makes its calls at once waits for none of them before it has begun all.
bool WorkerProcess::HasCallsToBegin(RoundNumber step) const {
  return world_calls_ > 0 && !world_.scenario.one_lane_at_a_time && calls_of_ == step &&
         std::any_of(calls_.begin(), calls_.end(),
                     [this](uint32_t model) { return !IsMade(model); });
}

// A script that joins in the middle of a step goes on where the others are, as one that keeps its
// place in its state. It takes an outcome that was kept for it all the same.
bool WorkerProcess::IsMade(uint32_t model) const {
  if (!world_.WasMade(lanes_[0].chain, model)) return false;
  const auto handle = handles_.find(model);
  return handle == handles_.end() || !core_.lanes()[handle->second].undelivered.has_value();
}

// The same on all workers.
std::vector<uint32_t> WorkerProcess::CallsOf(RoundNumber step) const {
  Random random(Mix(Mix(world_.scenario.seed, 0xca115), step));
  std::vector<uint32_t> models(world_.scenario.lanes.size() - 1);
  std::iota(models.begin(), models.end(), 1);
  random.Shuffle(models);
  models.resize(world_calls_);
  return models;
}

std::optional<uint32_t> WorkerProcess::Name(uint32_t model) {
  const auto known = handles_.find(model);
  if (known == handles_.end()) {
    handles_[model] = static_cast<uint32_t>(lanes_.size());
    AddLane(model);
  } else if (core_.lanes()[known->second].index.has_value() && random_.Chance(50)) {
    return known->second;  // It uses the handle that it has, which may mean nothing soon.
  }
  const uint32_t handle = handles_.at(model);
  Register(lanes_[handle]);
  if (random_.Chance(30)) return std::nullopt;
  return handle;
}

bool WorkerProcess::WaitsForBatch(uint32_t handle) {
  const Scenario& scenario = world_.scenario;
  Lane& lane = lanes_[handle];
  if (scenario.target_batch == 0 || scenario.lanes[lane.model].kind == LaneKind::kCall)
    return false;
  if (lane.batch_of != lane.last + 1) {
    lane.batch_of = lane.last + 1;
    lane.accumulated = 0;
    lane.closed = false;
  }
  if (lane.closed || core_.role() != Role::kMember) return false;
  if (lane.reports) return true;
  lane.reports = true;
  lane.accumulated += static_cast<uint64_t>(random_.Between(0, 8));
  Step(client::AccumulateBatch{handle, lane.accumulated, scenario.target_batch});
  return true;
}

void WorkerProcess::Do(client::BatchAnswered& answered) {
  Lane& lane = lanes_[answered.lane];
  lane.reports = false;
  if (answered.error.code == ErrorCode::kMismatch) {
    world_.checker.Fail(Invariant::kSamples, answered.error.text);
  }
  if (answered.closed) {
    lane.closed = lane.batch_of == lane.last + 1;
    world_.coverage.Saw(Sight::kBatchClosed);
  }
}

void WorkerProcess::BeginLane(uint32_t handle) {
  Lane& lane = lanes_[handle];
  const Scenario& scenario = world_.scenario;
  const LaneModel& model = scenario.lanes[lane.model];
  const RoundNumber step = MayGo(lane) ? calls_of_ : lane.last + 1;
  if (!lane.absent.empty() && random_.Chance(30)) {
    // A frozen layer wakes up, so the layout grows in the middle of the job.
    client::RegisterTensors request{model.name, model.kind, {}};
    for (const uint32_t tensor : lane.absent) {
      request.tensors.push_back(model.tensors[tensor]);
      lane.known.push_back(tensor);
    }
    lane.absent.clear();
    Step(request);
  }
  lane.phase = LanePhase::kPushing;
  lane.step = lanes_[0].chain;
  lane.round = 0;
  lane.pushed_chunks = 0;
  lane.key = Mix(Mix(world_.scenario.seed, index_), random_.Next());
  lane.given = Contribution{};
  lane.given.worker = worker_;
  lane.given.key = lane.key;
  lane.order.resize(lane.known.size());
  std::iota(lane.order.begin(), lane.order.end(), 0);
  random_.Shuffle(lane.order);
  lane.next = 0;
  lane.growing.clear();
  lane.withdraw = Strikes(FaultKind::kWithdraw, step) || behind_;
  lane.take = 0;
  lane.corrupt = Strikes(FaultKind::kCorrupt, step);
  lane.patience = 0;
  lane.abandon = Strikes(FaultKind::kAbandon, step, &lane.patience);
  if (!lane.abandon) Strikes(FaultKind::kDeadline, step, &lane.patience);
  lane.patience = std::min(lane.patience, kSecond);

  client::BeginRound begin;
  begin.lane = handle;
  begin.spec = scenario.spec;
  const bool differs = Strikes(FaultKind::kMismatch, step);
  const bool is_call = scenario.lanes[lane.model].kind == LaneKind::kCall;
  // As what its trainer calls, or in the numbers of its optimizer, or in the op.
  const bool in_words = differs && step % 2 == (is_call ? 1 : 0);
  if (is_call) begin.call = in_words ? "another call" : "a call";
  lane.given.call = begin.call;
  // A schedule changes the numbers in some steps.
  begin.optimizer = is_call ? 0 : 1 + step / 3;
  if (in_words && !is_call) begin.optimizer += 1000;
  if (differs && !in_words) {
    begin.spec.op = begin.spec.op == ReduceOp::kSum ? ReduceOp::kAverage : ReduceOp::kSum;
    begin.spec.denominator = Denominator::kAll;
  }
  if (!is_call) begin.optimizer_numbers = {absl::StrCat("lr=", begin.optimizer)};
  ChangeRanks(20);
  // Any worker may speak for others; whether they withdraw is their own affair.
  const uint32_t most = world_.scenario.most_ranks;
  if (most > 1 && random_.Chance(30)) {
    begin.represents = static_cast<uint32_t>(random_.Between(1, most));
    world_.coverage.Saw(Sight::kCarried);
  }
  lane.given.ranks = ranks_ + begin.represents;
  lane.given.late = Deferred(handle);
  lane.given.drops_late = lane.late.has_value() && !lane.given.late.has_value();
  if (lane.given.late.has_value() && world_.PlantedNow(PlantedBug::kDropDeferred)) {
    lane.given.late.reset();
  }
  if (lane.given.late.has_value()) begin.deferred = lane.given.late->ranks;
  if (lane.counted.has_value() && !lane.given.late.has_value() &&
      world_.PlantedNow(PlantedBug::kDeferCounted)) {
    lane.given.late = lane.counted;  // The core would refuse it, so it does not say so.
  }
  begin.counts.samples = 32;
  begin.step_label = step;
  NameSamples(handle, begin);
  lane.given.samples = begin.samples;
  if (HasState(lane) && core_.role() == Role::kMember) ServeBoundary();
  Step(begin);
}

void WorkerProcess::NameSamples(uint32_t handle, client::BeginRound& begin) {
  // A call has no samples, and its lane may be gone by now.
  if (world_.scenario.lanes[lanes_[handle].model].kind == LaneKind::kCall) return;
  const client::Samples& samples = core_.lanes()[handle].samples;
  if (samples.held.empty() || world_.scenario.epoch_samples == 0 || behind_) return;
  if (world_.scenario.global_batch > 0) {
    if (lanes_[handle].shares.empty()) return;
    begin.samples = lanes_[handle].shares.front();
    begin.sample_epoch = samples.held_of.number;
    return;
  }
  uint64_t left = world_.scenario.batch;
  const std::optional<LateContribution>& late = lanes_[handle].given.late;
  IntervalSet named(late.has_value() ? late->samples : std::vector<SampleRange>{});
  IntervalSet free = samples.held;
  free.Remove(named.Runs());
  for (SampleRange run : free.Runs()) {
    if (left == 0 || random_.Chance(20)) continue;
    if (run.size() > 1 && random_.Chance(30)) ++run.begin;
    run.end = run.begin + std::min(run.size(), left);
    left -= run.size();
    named.Add(run);
  }
  begin.samples = named.Runs();
  if (!begin.samples.empty()) begin.sample_epoch = samples.held_of.number;
}

std::optional<LateContribution> WorkerProcess::Deferred(uint32_t handle) const {
  const Lane& lane = lanes_[handle];
  const RoundSpec& spec = world_.scenario.spec;
  const bool adds = spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage;
  if (!lane.late.has_value() || lane.late->round != lane.last || behind_ || !adds ||
      spec.denominator == Denominator::kPresent) {
    return std::nullopt;
  }
  // It may have returned samples of it meanwhile, or gone on to another epoch.
  const client::Samples& samples = core_.lanes()[handle].samples;
  for (const SampleRange& range : lane.late->samples) {
    if (samples.held_of.number != lane.late->epoch ||
        samples.held.Inside(range) != std::vector<SampleRange>{range}) {
      return std::nullopt;
    }
  }
  return lane.late;
}

void WorkerProcess::MindSamples(uint32_t handle) {
  const Scenario& scenario = world_.scenario;
  Lane& lane = lanes_[handle];
  if (scenario.epoch_samples == 0 || scenario.lanes[lane.model].kind == LaneKind::kCall) return;
  if (lane.leases || finished_ || dropped_ || behind_ || core_.role() != Role::kMember) return;
  if (scenario.global_batch > 0) return MindSteps(handle);
  const client::Samples& samples = core_.lanes()[handle].samples;
  if (random_.Chance(5) && lane.phase == LanePhase::kIdle && !samples.held.empty()) {
    const SampleRange run = random_.Pick(samples.held.Runs());
    return Step(client::GiveBackSamples{handle, samples.held_of.number, {run}});
  }
  if (samples.held.count() >= 2 * scenario.batch || random_.Chance(30)) return;
  LeaseSamples(handle);
}

void WorkerProcess::MindSteps(uint32_t handle) {
  Lane& lane = lanes_[handle];
  const client::Samples& samples = core_.lanes()[handle].samples;
  // What is committed, or was given up for a later epoch, is not held.
  const auto held = [&](const std::vector<SampleRange>& share) {
    return std::all_of(share.begin(), share.end(),
                       [&](const SampleRange& range) { return samples.held.Contains(range); });
  };
  while (!lane.shares.empty() && !held(lane.shares.front())) lane.shares.pop_front();
  const Generation& generation = core_.membership().generation;
  const bool again = !lane.shares.empty() && (lane.shares_of != generation || random_.Chance(5));
  if (lane.phase == LanePhase::kIdle && (again || (lane.shares.empty() && !samples.held.empty()))) {
    lane.shares.clear();
    return Step(client::GiveBackSamples{handle, samples.held_of.number, samples.held.Runs()});
  }
  if (lane.shares.size() >= 3 || (!lane.shares.empty() && random_.Chance(30))) return;
  if (lane.shares.empty()) lane.shares_of = generation;
  LeaseSamples(handle);
}

void WorkerProcess::LeaseSamples(uint32_t handle) {
  const Scenario& scenario = world_.scenario;
  Lane& lane = lanes_[handle];
  const client::Samples& samples = core_.lanes()[handle].samples;
  lane.epoch = std::max(lane.epoch, samples.committed.epoch.number);
  if (scenario.break_off_percent > 0 && random_.Chance(scenario.break_off_percent)) {
    world_.coverage.Saw(Sight::kEpochBrokenOff);
    world_.checker.BrokeOff(lane.model, lane.epoch++);
  }
  lane.leases = true;
  Step(client::TakeSamples{
      handle,
      {lane.epoch, scenario.epoch_samples, scenario.seed, scenario.global_batch},
      static_cast<uint64_t>(random_.Between(1, 6))});
}

void WorkerProcess::Do(client::SamplesAnswered& answered) {
  Lane& lane = lanes_[answered.lane];
  lane.leases = false;
  if (answered.outcome == LeaseOutcome::kRefused) {
    world_.Narrate(Detail::kNotable, name(), [&] { return answered.error.text; });
    if (answered.error.code == ErrorCode::kMismatch) {
      world_.checker.Fail(Invariant::kSamples, answered.error.text);
    }
    return;
  }
  const client::Lane& core = core_.lanes()[answered.lane];
  // What it has given up for a later epoch is leased to it only as long as the round counts it.
  const bool gave_up = core.samples.asked.number > core.samples.held_of.number;
  if (world_.scenario.global_batch > 0) {
    if (answered.outcome == LeaseOutcome::kLeased) lane.shares.push_back(answered.ranges);
  } else if (!core.early.has_value() && !gave_up) {
    world_.checker.Leased(index_, id(), lane.model, core.next(),
                          {core.samples.held_of, core.samples.held.Runs()});
  }
  if (answered.outcome == LeaseOutcome::kNoneNow) world_.coverage.Saw(Sight::kSamplesNoneNow);
  if (answered.outcome == LeaseOutcome::kEnded) ++lane.epoch;
}

// A trainer of its node is lost or joins.
void WorkerProcess::ChangeRanks(uint32_t percent) {
  const uint32_t most = world_.scenario.most_ranks;
  if (most == 1 || !random_.Chance(percent)) return;
  ranks_ = static_cast<uint32_t>(random_.Between(1, most));
  Step(client::SetRanks{ranks_, ranks_ - 1});
}

void WorkerProcess::PushNext(uint32_t handle) {
  Lane& lane = lanes_[handle];
  ChangeRanks(5);  // This round is what it was when it began.
  if (lane.withdraw && (behind_ || lane.next * 2 >= lane.order.size())) {
    lane.given.withdrawn = true;
    Record(lane);
    lane.phase = LanePhase::kWaiting;
    const bool without_results = random_.Chance(50);
    if (without_results) {
      lane.take = world_.NextWait();
      world_.queue.After(random_.Between(0, 200) * kMillisecond, Happening::kTrainer, index_,
                         lane.take);
    }
    const char* const reason = without_results && random_.Chance(50) ? "" : "the backward failed";
    Step(client::WithdrawRound{handle, reason, without_results});
    return Wait(handle, 0);
  }
  if (!lane.growing.empty()) return Grow(lane);
  if (lane.next == lane.order.size()) {
    lane.given.committed = true;
    Record(lane);
    lane.phase = LanePhase::kWaiting;
    Step(client::CommitRound{handle});
    return Wait(handle, lane.patience);
  }
  client::PushTensors push{handle, {}};
  do {
    const client::TensorHandle tensor = lane.order[lane.next++];
    const bool skips = push.tensors.empty() && random_.Chance(world_.scenario.skip_percent);
    if (skips && !lane.given.HasLate(lane.known[tensor])) {
      // It reports the skip, or leaves it to the commit.
      if (random_.Chance(50)) Step(client::SkipTensor{handle, tensor});
      return;
    }
    push.tensors.push_back(ToPush(handle, tensor));
    // The library sends a large tensor while it copies it.
    const uint32_t chunks = ChunksOf(lane, tensor);
    if (chunks > 1 && random_.Chance(30)) {
      client::PushTensor& part = push.tensors.back();
      lane.growing.push_back(part);
      part.digest = 0;
      part.squared_norm.reset();
      part.chunks = lane.growing.back().chunks =
          static_cast<uint32_t>(random_.Between(1, chunks - 1));
      world_.coverage.Saw(Sight::kPushedInPieces);
    }
  } while (lane.next < lane.order.size() && random_.Chance(50));
  Record(lane);
  if (push.tensors.size() == 1) return Step(push.tensors.front());
  Step(push);
}

// More chunks of some tensors that were pushed in part.
void WorkerProcess::Grow(Lane& lane) {
  client::PushMore more{lane.growing.front().lane, {}};
  for (client::PushTensor& tensor : lane.growing) {
    const uint32_t chunks = ChunksOf(lane, tensor.tensor);
    if (!more.parts.empty() && random_.Chance(50)) continue;
    tensor.chunks = static_cast<uint32_t>(random_.Between(*tensor.chunks + 1, chunks));
    more.parts.push_back({tensor.tensor, *tensor.chunks, 0, {}});
    if (*tensor.chunks < chunks) continue;
    more.parts.back().digest = tensor.digest;
    more.parts.back().squared_norm = tensor.squared_norm;
  }
  const auto is_whole = [&](const client::PushTensor& tensor) {
    return *tensor.chunks == ChunksOf(lane, tensor.tensor);
  };
  lane.growing.erase(std::remove_if(lane.growing.begin(), lane.growing.end(), is_whole),
                     lane.growing.end());
  Step(more);
}

uint32_t WorkerProcess::ChunksOf(const Lane& lane, client::TensorHandle tensor) const {
  const LaneModel& model = world_.scenario.lanes[lane.model];
  return ChunkCount(*TensorBytes(model.tensors[lane.known[tensor]]));
}

uint32_t WorkerProcess::PositionOf(const Lane& lane, const std::string& name) const {
  const std::vector<TensorSpec>& tensors = world_.scenario.lanes[lane.model].tensors;
  uint32_t position = 0;
  while (tensors[position].name != name) ++position;
  return position;
}

client::PushTensor WorkerProcess::ToPush(uint32_t handle, client::TensorHandle tensor) {
  Lane& lane = lanes_[handle];
  const uint32_t position = lane.known[tensor];
  const TensorSpec& spec = world_.scenario.lanes[lane.model].tensors[position];
  lane.given.pushed |= uint32_t{1} << position;
  const uint64_t tensor_hash = HashName(spec.name);
  Digest digest = lane.corrupt ? 1 : 0;
  lane.corrupt = false;
  for (uint32_t chunk = 0; chunk < ChunksOf(lane, tensor); ++chunk) {
    digest += DigestOf(lane.given.At(position, tensor_hash, chunk));
  }
  // A few norms are not finite, which the aggregator must note.
  const double squared_norm = digest % 4096 == 0 ? std::numeric_limits<double>::infinity() : 1.0;
  return {handle, tensor, digest, squared_norm};
}

void WorkerProcess::Wait(uint32_t handle, SimTime patience) {
  Lane& lane = lanes_[handle];
  if (lane.phase != LanePhase::kWaiting) return;  // It ended meanwhile.
  if (HasState(lane) && core_.role() == Role::kMember) ServeBoundary();
  client::WaitRound wait{handle, absl::InfiniteFuture()};
  lane.deadline = 0;
  if (patience > 0) {
    lane.deadline = world_.queue.now() + patience;
    lane.wait = world_.NextWait();
    wait.deadline = ToAbsl(lane.deadline);
    world_.queue.At(lane.deadline + kSecond, Happening::kTrainer, index_, lane.wait);
  }
  Step(wait);
}

// Takes the results that another worker holds, if one has all of them, as if both were of one node;
// and requests those that it lacks then.
void WorkerProcess::TakeResults(uint32_t handle) {
  lanes_[handle].take = 0;
  for (const WorkerProcess* other : world_.AliveWorkers()) {
    const std::optional<ResultFrame> frame = other->HeldResults(lanes_[handle]);
    if (other == this || !frame.has_value()) continue;
    world_.coverage.Saw(Sight::kTookResults);
    for (const ChunkRange& range : frame->ranges) {
      const Chunk& chunk = frame->At(range.tensor, range.first);
      Base::Arrive(
          ResultFrame{*lanes_[handle].index, frame->round, frame->ballot, {range}, {chunk}}, *this);
    }
    break;
  }
  world_.coverage.Saw(Sight::kRequestedResults);
  Step(client::RequestResults{handle});
}

// All results of a round of this lane, if this worker has staged it and its verdict is not known.
std::optional<ResultFrame> WorkerProcess::HeldResults(const Lane& of) const {
  for (uint32_t handle = 0; handle < lanes_.size(); ++handle) {
    const Lane& lane = lanes_[handle];
    if (lane.forgotten || !lane.knows_life || !of.knows_life || lane.life != of.life) continue;
    const std::optional<StagedValue>& held = core_.lanes()[handle].settlement.staged();
    if (lane.layout != of.layout || !of.index.has_value()) continue;
    if (!held.has_value() || held->value.outcome != Outcome::kCommitted) continue;
    const world::StagedChunks<Chunk>& staged = shell_.staged(handle);
    ResultFrame frame{*of.index, held->round, held->value_ballot, {}, {}};
    for (const auto& [place, chunk] : staged.chunks) {
      frame.ranges.push_back({place.first, place.second, 1});
      frame.chunks.push_back(chunk);
    }
    return frame;
  }
  return std::nullopt;
}

void WorkerProcess::Do(client::Deliver& deliver) { EndRound(deliver.lane, deliver.record); }

// Passes rounds that end without a message to this trainer: those that were aborted before it began
// them, and calls that went on without it.
void WorkerProcess::CatchUp(Lane& lane) {
  while (lane.phase == LanePhase::kIdle && lane.placed) {
    const auto next = lane.verdicts.find(lane.last + 1);
    if (next == lane.verdicts.end()) return;
    const VerdictRecord record = next->second;
    if (record.value.outcome == Outcome::kAborted) {
      Apply(lane, record);
    } else if (WentWithout(lane, record)) {
      Pass(lane, record);
    } else {
      return;
    }
  }
}

bool WorkerProcess::WentWithout(const Lane& lane, const VerdictRecord& record) const {
  if (world_.scenario.lanes[lane.model].kind != LaneKind::kCall) return false;
  const client::Lane& core = core_.lanes()[static_cast<size_t>(&lane - lanes_.data())];
  return core.last_verdict >= record.round && !core.undelivered.has_value() &&
         !IsCounted(record.value, id(), incarnation_);
}

void WorkerProcess::Pass(Lane& lane, const VerdictRecord& record) {
  world_.coverage.Saw(Sight::kCallWithout);
  lane.state = world_.checker.Passed(index_, id(), lane.life, record);
  Settle(lane, record);
}

// The additional time until this trainer does the next thing, if it is late this time.
SimTime WorkerProcess::Lateness(uint32_t percent) {
  const bool may_be = world_.scenario.late_percent > 0;
  return may_be && random_.Chance(percent) ? random_.Between(1, 600) * kMillisecond : 0;
}

// Returns whether the value says that this worker was left out because it was late.
bool WorkerProcess::IsLate(const VerdictRecord& record) const {
  const std::vector<WorkerId>& late = record.value.late;
  return std::find(late.begin(), late.end(), id()) != late.end();
}

// Returns whether a value may leave out a contribution that the worker has committed.
bool WorkerProcess::MayBeLeftOut(const Lane& lane, const VerdictRecord& record) const {
  if (world_.checker.WasRejected(lane.life, record.round, id())) return true;
  if (IsLate(record)) return true;
  // A worker that joined in a pause when the value was already fixed only stages it. The verdict
  // may also come from an earlier aggregator, which did not know this life of the worker.
  if (lane.joined == record.round &&
      (record.ballot != record.value_ballot || record.value_ballot.term < incarnation_.term)) {
    return true;
  }
  // All other reasons involve two aggregators: one prepared the value, and another one adopted it,
  // or learned its verdict from a hello, and sent the verdict. The verdict of a staged value may
  // have been sent, so the value cannot change to count one more. Within one term there is no such
  // excuse, because a worker that is lost there is evicted.
  const Term made_by = record.value_ballot.term;
  if (record.ballot.term == made_by && term_ == made_by) return false;
  // The first aggregator lost this worker (its lease ended) while its contribution was not
  // effective yet. The worker does not know that and is a member at the other aggregator.
  if (world_.checker.WasDropped(lane.life, record.round, id(), made_by)) return true;
  // The first aggregator lost it before the round opened, or recovered without it, so it was not in
  // the round at all.
  if (world_.checker.IsLost(id(), made_by)) return true;
  if (!world_.checker.Lists(record.value.generation, id())) return true;
  // The first aggregator counted another process with its id, before this process was superseded.
  const auto& contributors = record.value.contributors;
  return std::any_of(contributors.begin(), contributors.end(),
                     [&](const Contributor& other) { return other.worker == id(); });
}

void WorkerProcess::EndRound(uint32_t handle, const VerdictRecord& record) {
  Lane& lane = lanes_[handle];
  lane.deadline = 0;
  if (MayGo(lane)) {
    if (lane.phase == LanePhase::kIdle) {
      world_.checker.Fail(
          Invariant::kOneLife,
          absl::StrCat(name(), " gets an outcome of ", world_.scenario.lanes[lane.model].name,
                       ", round ", record.round, ", and waits for none."));
    }
    world_.checker.Settled(id(), lane.life, lane.key, record.round);
    world_.CallMade(lane.step, lane.model);
  }
  const bool mine = lane.phase != LanePhase::kIdle && lane.round == record.round;
  lane.phase = LanePhase::kIdle;
  CatchUp(lane);
  if (lane.last >= record.round) return ActAfter(0);  // CatchUp has passed it.
  const bool counted = IsCounted(record.value, id(), incarnation_);
  const bool call = world_.scenario.lanes[lane.model].kind == LaneKind::kCall;
  if (call && counted && lane.joined == record.round && record.value_ballot.attempt > 1) {
    world_.coverage.Saw(Sight::kJoinedCall);
  }
  if (record.value.outcome == Outcome::kCommitted && mine && lane.given.committed &&
      !lane.given.withdrawn && !counted && !MayBeLeftOut(lane, record)) {
    world_.checker.Fail(Invariant::kCountedOnce,
                        absl::StrCat(name(), " committed its contribution to round ", record.round,
                                     " of ", world_.scenario.lanes[lane.model].name,
                                     " and never left, but is not counted."));
    return;
  }
  if (IsLate(record)) {
    if (lane.left_out + 1 == record.round) world_.coverage.Saw(Sight::kLateAgain);
    lane.left_out = record.round;
  } else if (counted && lane.left_out != 0 && lane.left_out + 1 == record.round) {
    world_.coverage.Saw(Sight::kLateCounted);
  }
  // The round went on without it while it pushed, before its script came to serve the boundary.
  // A call whose name may go has no boundary.
  if (record.value.outcome == Outcome::kCommitted && mine && !counted && !MayGo(lane)) {
    MissBoundary();
  }
  if (mine && lane.given.late.has_value()) {
    world_.coverage.Saw(counted ? Sight::kDeferred : Sight::kDeferredLost);
  }
  lane.late.reset();
  lane.counted.reset();
  if (mine && lane.given.committed && !lane.given.withdrawn) {
    LateContribution given{record.round,
                           lane.given.key,
                           lane.given.pushed,
                           lane.given.ranks,
                           {},
                           core_.lanes()[handle].samples.held_of.number};
    if (counted) lane.counted = given;
    given.samples = OwnSamples(lane.given);
    if (IsLate(record) && record.value.late_carries) lane.late = given;
  }
  Apply(lane, record);
  if (phase_ == Phase::kTraining) {
    ActAfter(world_.scenario.step / 2 + random_.Between(0, world_.scenario.step) +
             Lateness(world_.scenario.late_percent));
  }
}

void WorkerProcess::Apply(Lane& lane, const VerdictRecord& record) {
  const auto handle = static_cast<client::LaneHandle>(&lane - lanes_.data());
  lane.state = world_.checker.Applied(index_, id(), lane.life, record, lane.layout,
                                      shell_.staged(handle), lane.state);
  if (behind_ && HasState(lane)) Keep(lane, record);
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("applies ", Narrate(record), " of ",
                        world_.scenario.lanes[lane.model].name);
  });
  if (core_.lanes()[handle].last_verdict == record.round) {
    world_.checker.SamplesKnown(id(), lane.life, record.chain,
                                core_.lanes()[handle].samples.committed);
  }
  if (record.value.abort_cause == AbortCause::kStepAgain) world_.coverage.Saw(Sight::kStepAgain);
  if (record.value.samples.has_value()) {
    world_.coverage.Saw(Sight::kSamplesCommitted);
    if (record.value.samples->epoch.has_steps()) world_.coverage.Saw(Sight::kStepCommitted);
    if (record.value.samples->ends_epoch()) world_.coverage.Saw(Sight::kEpochEnded);
  }
  Settle(lane, record);
  Announce(lane);
}

void WorkerProcess::Settle(Lane& lane, const VerdictRecord& record) {
  lane.last = record.round;
  lane.chain = record.chain;
  lane.verdicts.erase(lane.verdicts.begin(), lane.verdicts.upper_bound(record.round));
  lane.round = 0;
  if (lane.asked.has_value() && record.round > *lane.asked) {
    world_.coverage.Saw(Sight::kLetGoVoid);
    lane.asked.reset();
  }
  if (MayGo(lane)) return;
  if (!behind_) checkpoint_.step = lane.last;
  if (!lane.state.has_value()) return;
  lane.states[lane.chain] = *lane.state;
  checkpoint_.lanes[lane.model] = *lane.state;
}

void WorkerProcess::Do(client::FailRound& fail) {
  Lane& lane = lanes_[fail.lane];
  lane.deadline = 0;
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("round ", fail.round, " of ", world_.scenario.lanes[lane.model].name, ": ",
                        ErrorCodeName(fail.error.code), ": ", fail.error.text);
  });
  if (fail.error.code == ErrorCode::kOk || fail.error.text.empty()) {
    world_.checker.Fail(Invariant::kNoted,
                        absl::StrCat("A round of ", name(), " failed without a reason."));
  }
  switch (fail.error.code) {
    case ErrorCode::kMismatch:
    case ErrorCode::kRoundAborted: {
      const auto verdicts = lane.verdicts.find(fail.round);
      if (verdicts == lane.verdicts.end()) {
        world_.checker.Fail(Invariant::kOneVerdict,
                            absl::StrCat("A round of ", name(), " was aborted without a verdict."));
        return;
      }
      const VerdictRecord record = verdicts->second;
      world_.coverage.Saw(fail.error.code == ErrorCode::kMismatch ? Sight::kDifferentCalls
                                                                  : Sight::kRetriedAfterAbort);
      return EndRound(fail.lane, record);
    }
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kPaused: {
      if (fail.error.code == ErrorCode::kOutcomeUnknown) {
        world_.coverage.Saw(Sight::kOutcomeUnknown);
      }
      if (std::exchange(lane.abandon, false)) return Step(client::AbandonRounds{});
      return Wait(fail.lane, 0);
    }
    case ErrorCode::kFailedPrecondition:
      // The round began without this worker, which takes part in a later one.
      lane.phase = LanePhase::kIdle;
      lane.round = 0;
      return ActAfter(20 * kMillisecond);
    case ErrorCode::kResourceExhausted:
      if (!MayGo(lane)) return Evicted();
      // There was no room for its name, until the workers have let others go.
      lane.phase = LanePhase::kIdle;
      if (++tries_ < kMostCallTries) calls_.push_back(lane.model);
      return ActAfter(20 * kMillisecond);
    default:
      return Evicted();
  }
}

void WorkerProcess::Do(client::RoundRejected& rejected) {
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("contribution rejected: ", ErrorCodeName(rejected.error.code), ": ",
                        rejected.error.text);
  });
  // Its core has compared it with the same verdict.
  if (absl::StrContains(rejected.error.text, "gradients of the round before")) {
    world_.checker.Fail(Invariant::kCountedOnce, rejected.error.text);
  }
  if (!absl::StrContains(rejected.error.text, "the optimizers differ")) return;
  world_.coverage.Saw(Sight::kOtherOptimizer);
  // A client leaves out only what the aggregator knows.
  if (absl::StrContains(rejected.error.text, "was not sent")) {
    world_.checker.Fail(Invariant::kNoted, rejected.error.text);
  }
}

// The incarnation has ended: the trainer needs the state of a donor, and a script begins at its
// top.
void WorkerProcess::Evicted() {
  position_ = 0;
  calls_of_ = 0;
  EndBehind();
  world_.checker.MemoryLost();
  for (Lane& lane : lanes_) {
    if (lane.forgotten) continue;
    lane.placed = !MayGo(lane);
    lane.enters = 0;
    lane.phase = LanePhase::kIdle;
    lane.round = 0;
    lane.deadline = 0;
    lane.start.reset();
    lane.verdicts.clear();
    // Another lineage may begin with the same chain and other parameters.
    lane.states.clear();
    lane.prepared.reset();
    world_.checker.LaneOf(index_, lane.life) = ProcessLane{};
  }
  if (phase_ != Phase::kTraining && phase_ != Phase::kLoading && phase_ != Phase::kDone) return;
  phase_ = Phase::kJoining;
  ActAfter(random_.Between(1, 30) * kMillisecond);
}

void WorkerProcess::Do(client::Refused& refused) {
  world_.coverage.Saw(Sight::kRefusedCall);
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("call refused: ", ErrorCodeName(refused.error.code), ": ",
                        refused.error.text);
  });
  if (refused.error.text.empty()) {
    world_.checker.Fail(Invariant::kNoted,
                        absl::StrCat("A call of ", name(), " was refused without a reason."));
  }
  // A begin that came too early is repeated later. After other refusals the round is in flight.
  for (uint32_t handle = 0; handle < lanes_.size(); ++handle) {
    Lane& lane = lanes_[handle];
    if (world_calls_ > 0 && InFlight(handle)) continue;
    if (lane.phase == LanePhase::kPushing && lane.next == 0 && lane.round == 0) {
      lane.phase = LanePhase::kIdle;
    }
  }
  ActAfter(20 * kMillisecond);
}

// Ranks are dense: those of a member follow the ranks of the members before it.
void WorkerProcess::CheckRank(const client::MembershipNow& now) {
  if (!now.rank.has_value()) return;
  const MemberList& members = now.membership.members;
  uint32_t first = 0;
  size_t position = 0;
  for (; position < members.size() && members[position] != core_.config().worker; ++position) {
    first += members.ranks().empty() ? 1 : members.ranks()[position];
  }
  const uint32_t ranks =
      members.ranks().empty() || position == members.size() ? 1 : members.ranks()[position];
  if (ranks > 1) world_.coverage.Saw(Sight::kSeveralRanks);
  if (members_.ids() == members.ids() && members_ != members) {
    world_.coverage.Saw(Sight::kRanksChanged);
  }
  members_ = members;
  if (*now.rank >= first && *now.rank < first + ranks &&
      (ranks != ranks_ || *now.rank == first + ranks - 1)) {
    return;
  }
  world_.checker.Fail(Invariant::kOneSet,
                      absl::StrCat(name(), " has rank ", *now.rank, ", but its ", ranks,
                                   " ranks begin with ", first, "."));
}

void WorkerProcess::Do(client::MembershipNow& now) {
  world_.checker.GenerationSeen(index_, now.membership, now.role == Role::kMember);
  CheckRank(now);
  world_.Narrate(Detail::kNotable, name(), [&] { return Narrate(now); });
  if (phase_ == Phase::kLeaving || phase_ == Phase::kLeft) return;
  if (now.role != Role::kMember) {
    if (drained_) return Leave();
    if (phase_ == Phase::kJoining && now.membership.generation.term == 0) {
      return ActAfter(random_.Between(1, 30) * kMillisecond);  // Evicted as a joiner.
    }
    if (finished_) return Leave();  // It has no reason to rejoin.
    // A round that it is in goes on; the trainer continues when that has ended.
    const auto& lanes = core_.lanes();
    dropped_ = phase_ == Phase::kTraining &&
               std::any_of(lanes.begin(), lanes.end(),
                           [](const client::Lane& lane) { return lane.round.has_value(); });
    if (!dropped_) Evicted();
    return;
  }
  dropped_ = false;
  if (phase_ == Phase::kLoading && now.donor.has_value()) donor_ = now.donor;
  if (!now.joined) {
    if (now.donor.has_value()) donor_since_ = now.donor_since;
    const bool waits = std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return HasState(lane) && lane.phase == LanePhase::kWaiting;
    });
    if (waits) ServeBoundary();
    return;
  }
  EndBehind();
  for (Lane& lane : lanes_) {
    lane.late.reset();
    if (!lane.start.has_value()) continue;
    lane.last = lane.start->first - 1;
    lane.joined = lane.start->first;
    lane.chain = lane.start->second;
    lane.start.reset();
    ProcessLane& known = world_.checker.LaneOf(index_, lane.life);
    known = ProcessLane{};
    known.last = lane.last;
    known.chain = lane.chain;
    // The state that it keeps, or is about to load.
    const bool keeps = !now.donor.has_value() || *now.donor == id();
    if (keeps && lane.state.has_value()) lane.states[lane.chain] = *lane.state;
  }
  donor_ = now.donor;
  donor_since_ = served_ = now.donor_since;
  const bool lacks_state = donor_.has_value() && *donor_ != id();
  joined_since_ = now.donor_since;
  for (Lane& lane : lanes_) {
    if (lacks_state && !HasState(lane)) lane.state.reset();
  }
  if (lacks_state &&
      std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return HasState(lane); })) {
    if (MayGoAhead()) return GoAhead();
    phase_ = Phase::kLoading;
    loading_since_ = world_.queue.now();
    fetching_.clear();
    shell_.ForgetBlobs();
    return ActAfter(random_.Between(100, 2000));
  }
  phase_ = Phase::kTraining;
  for (const Lane& lane : lanes_) Announce(lane);
  ActAfter(random_.Between(100, 2000));
}

// ---- state of a donor

void WorkerProcess::Announce(const Lane& lane) {
  if (!world_.scenario.broadcast || !lane.state.has_value() || MayGo(lane)) return;
  const std::string& name = world_.scenario.lanes[lane.model].name;
  Step(Serve({name, kBlobName, lane.last}, {kBlobName, DType::kU8, {kBlobBytes}}, *lane.state));
}

// With several gradient lanes, a script serves at a boundary that their rounds do not show.
void WorkerProcess::ServeBoundary() {
  if (std::exchange(served_, donor_since_) == donor_since_ || behind_) return;
  const auto has_state = [this](const Lane& lane) { return HasState(lane); };
  if (std::count_if(lanes_.begin(), lanes_.end(), has_state) != 1) return;
  const Lane& lane = *std::find_if(lanes_.begin(), lanes_.end(), has_state);
  if (!lane.state.has_value()) return;
  world_.coverage.Saw(Sight::kStateServed);
  world_.checker.Serves(name(), lane.model, donor_since_, *lane.state);
}

// From now on its script would serve the state after the round that has ended without it, in place
// of that before it. Nobody may need that any more: no round ends without those who have joined
// with it, and these begin it, or stage it, only when they have the state.
void WorkerProcess::MissBoundary() {
  if (std::exchange(served_, donor_since_) == donor_since_) return;
  for (const WorkerProcess* other : world_.AliveWorkers()) {
    const bool loads = other->phase_ == Phase::kLoading && other->joined_since_ == donor_since_;
    if (!loads || world_.checker.IsLost(other->id(), term_)) continue;
    world_.checker.Fail(
        Invariant::kSameBytes,
        absl::StrCat(name(),
                     " was left out of a round before it has served the state with which "
                     "that begins, and ",
                     other->name(), " still loads this state."));
  }
}

void WorkerProcess::Loaded(const Lane& lane) {
  world_.checker.Joins(name(), lane.model, joined_since_, *lane.state);
}

// Only the parameters of gradient lanes are a state; nobody loads what calls have returned.
bool WorkerProcess::HasState(const Lane& lane) const {
  return world_.scenario.lanes[lane.model].kind == LaneKind::kGradient;
}

void WorkerProcess::TryLoad() {
  if (world_.scenario.broadcast && fetching_.empty()) {
    for (const Lane& lane : lanes_) {
      const std::string& name = world_.scenario.lanes[lane.model].name;
      if (HasState(lane)) fetching_[name] = lane.last;
    }
    for (const Lane& lane : lanes_) {
      if (phase_ != Phase::kLoading) return;
      if (!HasState(lane)) continue;
      const std::string& name = world_.scenario.lanes[lane.model].name;
      Step(client::GetBlob{{name, kBlobName, lane.last},
                           std::nullopt,
                           donor_,
                           ToAbsl(world_.queue.now() + 2 * kSecond)});
    }
    return;  // BlobReady or BlobFailed continues.
  }
  // Loads from the donor's memory, or from that of any worker with the same state.
  const WorkerProcess* named = nullptr;
  for (const WorkerProcess* other : world_.AliveWorkers()) {
    // A twin has the id of the donor, but is no member.
    const bool member = other->core_.role() == Role::kMember;
    if (other->id() == *donor_ && (named == nullptr || member)) named = other;
  }
  const auto has_all = [&](const WorkerProcess& other) {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return !HasState(lane) || other.StateAfter(lane.model, lane.chain).has_value();
    });
  };
  if (named != nullptr && has_all(*named)) return LoadFrom(*named);
  // Every lineage begins with the same chain, so until a round has ended the chain does not show
  // which state another worker has.
  const bool begun = std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return !HasState(lane) || lane.chain != 0;
  });
  for (const WorkerProcess* other : world_.AliveWorkers()) {
    if (begun && other != this && has_all(*other)) return LoadFrom(*other);
  }
  if (world_.queue.now() < loading_since_ + 20 * kSecond) return ActAfter(20 * kMillisecond);
  world_.coverage.Saw(Sight::kStateLost);
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("gives up: nobody has the state that donor ", *donor_, " was named for");
  });
  world_.TrainerExits(*this);
}

void WorkerProcess::LoadFrom(const WorkerProcess& donor) {
  for (Lane& lane : lanes_) {
    if (!HasState(lane)) continue;
    lane.state = *donor.StateAfter(lane.model, lane.chain);
    lane.states[lane.chain] = *lane.state;
    Loaded(lane);
  }
  world_.coverage.Saw(Sight::kStateLoaded);
  world_.Narrate(Detail::kNotable, name(),
                 [&] { return absl::StrCat("has loaded the state of ", donor.name()); });
  phase_ = Phase::kTraining;
  for (const Lane& lane : lanes_) Announce(lane);
  ActAfter(random_.Between(100, 2000));
}

// Until a round was committed, a chain does not show which state another worker has.
bool WorkerProcess::MayGoAhead() const {
  return world_.scenario.rounds_ahead > 0 &&
         std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
           return !HasState(lane) || world_.checker.StateAfter(lane.model, lane.chain).has_value();
         });
}

// Its library withdraws from some rounds and keeps their results, and then the trainer has the
// state before them.
void WorkerProcess::GoAhead() {
  for (Lane& lane : lanes_) {
    if (HasState(lane)) lane.state.reset();
    lane.boundary = lane.chain;
    lane.kept.clear();
  }
  behind_ = true;
  ahead_ = static_cast<uint32_t>(random_.Between(1, world_.scenario.rounds_ahead));
  phase_ = Phase::kTraining;
  ActAfter(random_.Between(100, 2000));
}

// It is no longer a member: it drops what it has kept, and has the state that it came with.
void WorkerProcess::EndBehind() {
  if (!behind_) return;
  behind_ = false;
  for (Lane& lane : lanes_) {
    if (HasState(lane)) lane.state = checkpoint_.lanes[lane.model];
  }
}

void WorkerProcess::Keep(Lane& lane, const VerdictRecord& record) {
  lane.state.reset();  // The checker knows the state after this round, and this worker does not.
  if (record.value.outcome != Outcome::kCommitted) return;
  const auto handle = static_cast<client::LaneHandle>(&lane - lanes_.data());
  const std::optional<uint64_t> sum =
      world_.checker.SumOf(lane.model, record, lane.layout, shell_.staged(handle));
  if (sum.has_value()) lane.kept.push_back({record.round, *sum});
}

// Loads the state of each lane from a worker that has it, and applies what was kept since.
void WorkerProcess::LevelUp() {
  for (Lane& lane : lanes_) {
    if (!HasState(lane)) continue;
    for (const WorkerProcess* other : world_.AliveWorkers()) {
      if (other != this) lane.state = other->StateAfter(lane.model, lane.boundary);
      if (lane.state.has_value()) break;
    }
    if (lane.state.has_value()) continue;
    world_.coverage.Saw(Sight::kStateLost);
    world_.Narrate(Detail::kNotable, name(), [&] {
      return absl::StrCat("gives up: nobody has the state that it joined with in lane ",
                          world_.scenario.lanes[lane.model].name);
    });
    return world_.TrainerExits(*this);
  }
  behind_ = false;
  for (Lane& lane : lanes_) {
    if (!HasState(lane)) continue;
    Loaded(lane);
    for (const Kept& kept : lane.kept) lane.state = Mix(*lane.state, kept.round) + kept.sum;
    world_.checker.CaughtUp(id(), lane.model, lane.chain, *lane.state);
    if (!lane.kept.empty()) world_.coverage.Saw(Sight::kCaughtUp);
    lane.states[lane.chain] = *lane.state;
    checkpoint_.step = lane.last;
    checkpoint_.lanes[lane.model] = *lane.state;
  }
  for (const Lane& lane : lanes_) Announce(lane);
  ActAfter(random_.Between(100, 2000));
}

void WorkerProcess::Do(client::BlobReady& ready) {
  if (phase_ != Phase::kLoading) return;
  const auto fetching = fetching_.find(ready.key.lane);
  if (fetching == fetching_.end() || fetching->second != ready.key.version) return;
  fetching_.erase(fetching);
  if (!fetching_.empty()) return;
  for (Lane& lane : lanes_) {
    if (!HasState(lane)) continue;
    const std::string& name = world_.scenario.lanes[lane.model].name;
    const absl::StatusOr<uint64_t> content =
        shell_.ContentOf({name, kBlobName, lane.last}, ready.spec);
    if (!content.ok()) return Require(content.status());
    lane.state = lane.states[lane.chain] = *content;
    Loaded(lane);
  }
  world_.coverage.Saw(Sight::kStateBroadcast);
  phase_ = Phase::kTraining;
  for (const Lane& lane : lanes_) Announce(lane);
  ActAfter(random_.Between(100, 2000));
}

void WorkerProcess::Do(client::BlobFailed& failed) {
  if (failed.error.text.empty()) {
    world_.checker.Fail(Invariant::kNoted, "A value failed without a reason.");
  }
  if (phase_ != Phase::kLoading) return;
  fetching_["-"] = 0;  // It then loads without the mailbox.
  ActAfter(20 * kMillisecond);
}

// ---- the end

void WorkerProcess::Leave() {
  if (phase_ == Phase::kLeaving || phase_ == Phase::kLeft) return;
  phase_ = Phase::kLeaving;
  Step(client::LeaveJob{});
}

void WorkerProcess::Do(client::Left&) {
  phase_ = Phase::kLeft;
  world_.TrainerExits(*this);
}

void WorkerProcess::Do(client::Fatal& fatal) {
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("fatal: ", ErrorCodeName(fatal.error.code), ": ", fatal.error.text);
  });
  if (fatal.error.text.empty()) {
    world_.checker.Fail(Invariant::kNoted, absl::StrCat(name(), " is to exit without a reason."));
  }
  fenced_ = fatal.error.code == ErrorCode::kSuperseded;
  world_.TrainerExits(*this);
}

std::string WorkerProcess::Explain() const {
  static constexpr const char* kPhases[] = {"imports", "joins",  "loads state", "trains",
                                            "is done", "leaves", "left"};
  std::string text = absl::StrCat(name(), " ", kPhases[static_cast<int>(phase_)],
                                  session_.has_value() ? "" : ", not connected");
  for (const Lane& lane : lanes_) {
    if (lane.forgotten) continue;
    absl::StrAppend(&text, ", ", world_.scenario.lanes[lane.model].name, " after round ", lane.last,
                    lane.phase == LanePhase::kIdle      ? ""
                    : lane.phase == LanePhase::kPushing ? " pushes"
                                                        : " waits");
  }
  return text;
}

}  // namespace basin::simulation
