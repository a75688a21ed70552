// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The transport around the client core; the trainer is in trainer.cc.

#include "tests/simulation/worker_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/world.h"

namespace basin::simulation {
namespace {

SimTime ToSim(absl::Duration duration) {
  return absl::ToInt64Microseconds(absl::Ceil(duration, absl::Microseconds(1)));
}

}  // namespace

WorkerProcess::WorkerProcess(World& world, uint32_t index, uint32_t worker, client::Config config,
                             Checkpoint checkpoint)
    : Base(config),
      world_(world),
      world_calls_(world.scenario.calls),
      index_(index),
      worker_(worker),
      random_(Mix(Mix(world.scenario.seed, 0x7a1), index)),
      ranks_(config.ranks),
      ticker_(world.queue, Happening::kWorkerTimer, index),
      act_at_(kNever),
      streams_(config.streams),
      tokens_(config.streams),
      ends_at_(config.streams),
      connect_stream_at_(config.streams, -1),
      checkpoint_(std::move(checkpoint)) {
  checkpoint_.lanes.resize(world.scenario.lanes.size());
}

std::string WorkerProcess::id() const { return absl::StrCat("w", worker_); }

std::string WorkerProcess::name() const { return absl::StrCat("p", index_, "(w", worker_, ")"); }

std::vector<ConnectionId> WorkerProcess::connections() const {
  std::vector<ConnectionId> all;
  if (session_.has_value()) all.push_back(*session_);
  for (const auto& stream : streams_) {
    if (stream.has_value()) all.push_back(*stream);
  }
  return all;
}

std::optional<ConnectionId> WorkerProcess::stream(uint64_t salt) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto& stream = streams_[(salt + i) % streams_.size()];
    if (stream.has_value()) return stream;
  }
  return std::nullopt;
}

std::optional<uint32_t> WorkerProcess::aggregator() const {
  if (!session_.has_value()) return std::nullopt;
  return world_.network[*session_].aggregator;
}

std::optional<uint64_t> WorkerProcess::StateAfter(uint32_t lane, uint64_t chain) const {
  for (const Lane& mine : lanes_) {
    if (mine.model != lane) continue;
    const auto it = mine.states.find(chain);
    if (it != mine.states.end()) return it->second;
    if (phase_ == Phase::kLoading) break;  // Its state is still that of another lineage.
    // Rounds that were aborted without this trainer change nothing.
    for (RoundNumber round = mine.last + 1; mine.verdicts.count(round) > 0; ++round) {
      const VerdictRecord& record = mine.verdicts.at(round);
      if (record.value.outcome != Outcome::kAborted) break;
      if (record.chain == chain) return mine.state;
    }
  }
  return std::nullopt;
}

// ---- events

void WorkerProcess::Arrive(ConnectionId id, Item item) {
  if (std::holds_alternative<Closing>(item)) return SeesClose(id);
  const int32_t stream = world_.network[id].stream;
  const bool current =
      stream == kSessionStream ? session_ == id : streams_[static_cast<size_t>(stream)] == id;
  if (!current) return;
  if (std::holds_alternative<OpenAccepted>(item)) {
    if (stream == kSessionStream) return Step(client::SessionUp{});
    return Step(client::StreamUp{static_cast<uint32_t>(stream)});
  }
  if (auto* message = std::get_if<ToWorker>(&item)) {
    Observe(*message);
    return Step(client::MessageReceived{std::move(*message)});
  }
  if (const auto* batched = std::get_if<BatchedFrame>(&item)) {
    if (const auto* frame = std::get_if<ResultFrame>(&batched->frame))
      return Base::Arrive(*frame, *this);
  }
  if (const auto* frame = std::get_if<ResultFrame>(&item)) return Base::Arrive(*frame, *this);
  if (const auto* frame = std::get_if<BlobFrame>(&item)) return Base::Arrive(*frame, *this);
}

void WorkerProcess::SendOn(uint32_t stream, PushFrame frame) {
  if (!streams_[stream].has_value()) return;
  const bool to_shard = IsShard(world_.network[*streams_[stream]].aggregator);
  if (session_.has_value() && !to_shard && world_.DrawBatched()) {
    world_.network.SendUp(*session_, BatchedFrame{*streams_[stream], std::move(frame)});
  } else {
    world_.network.SendUp(*streams_[stream], std::move(frame));
  }
}

void WorkerProcess::SendOn(uint32_t stream, BlobFrame frame) {
  if (streams_[stream].has_value()) world_.network.SendUp(*streams_[stream], std::move(frame));
}

void WorkerProcess::SeesClose(ConnectionId id) {
  Network::Connection& connection = world_.network[id];
  if (!connection.worker_open) return;
  connection.worker_open = false;
  if (session_ == id) {
    session_.reset();
    for (auto& stream : streams_) {
      if (stream.has_value()) world_.network.CloseByWorker(*stream);
      stream.reset();
    }
    std::fill(connect_stream_at_.begin(), connect_stream_at_.end(), -1);
    return Step(client::SessionDown{"the connection was closed"});
  }
  if (connection.stream == kSessionStream) return;
  const uint32_t stream = static_cast<uint32_t>(connection.stream);
  if (streams_[stream] != id) return;
  streams_[stream].reset();
  Step(client::StreamDown{stream, "the connection was closed"});
}

void WorkerProcess::ConnectTimesOut(ConnectionId id) {
  if (world_.network[id].aggregator_open) return;  // It was accepted in time.
  world_.network.SendUp(id, Closing{});
  SeesClose(id);
}

void WorkerProcess::Connect(uint32_t what, SimTime scheduled) {
  SimTime& at = what == 0 ? connect_at_ : connect_stream_at_[what - 1];
  if (at != scheduled) return;  // A close or another connect came meanwhile.
  at = -1;
  if (what == 0) {
    resolved_ = world_.Resolve(worker_);
    if (!resolved_.has_value()) return Step(client::SessionDown{"the name does not resolve"});
    session_ = world_.network.Open(index_, *resolved_, kSessionStream, 0);
    return;
  }
  if (!resolved_.has_value()) return;
  const uint32_t stream = what - 1;
  const PlacedShard& shard = ends_at_[stream];
  uint32_t to = *resolved_;
  if (shard.shard != kCoordinatorShard) to = kFirstShard + ShardProcess::IndexOf(shard.endpoint);
  streams_[stream] = world_.network.Open(index_, to, static_cast<int32_t>(stream), tokens_[stream]);
  if (IsShard(to) && world_.IsCutOff(worker_, to - kFirstShard)) {
    world_.network.Reset(*streams_[stream]);
  }
}

void WorkerProcess::CloseConnections() {
  for (const ConnectionId connection : connections()) world_.network.CloseByWorker(connection);
  session_.reset();
  for (auto& stream : streams_) stream.reset();
  connect_at_ = -1;
  std::fill(connect_stream_at_.begin(), connect_stream_at_.end(), -1);
}

void WorkerProcess::Crash(bool reset) {
  if (reset) {
    for (const ConnectionId connection : connections()) world_.network.Reset(connection);
  }
  CloseConnections();
  alive_ = false;
  deferred.clear();
  world_.checker.ForgetProcess(index_);
}

void WorkerProcess::Timer() {
  if (!ticker_.Comes(core_.NextDeadline())) return;
  if (!ticker_.spins()) return Step(client::Tick{});
  world_.checker.Fail(Invariant::kContract,
                      absl::StrCat("The client of ", name(),
                                   " asks for a tick at a time that has passed, again and "
                                   "again."));
}

// ---- the core and its actions

void WorkerProcess::Step(const client::Event& event) {
  // Calls of the trainer in answer to an action wait until the other actions are done.
  if (stepping_) {
    pending_.push_back(event);
    return;
  }
  stepping_ = true;
  StepNow(event);
  for (size_t i = 0; i < pending_.size(); ++i) {
    const client::Event next = std::move(pending_[i]);
    StepNow(next);
  }
  pending_.clear();
  stepping_ = false;
  if (alive_) ticker_.Plan(core_.NextDeadline());
}

void WorkerProcess::StepNow(const client::Event& event) {
  if (!alive_ || world_.checker.failed()) return;
  ++world_.coverage.steps;
  actions_.clear();
  core_.Step(event, ToAbsl(world_.queue.now()), actions_);
  if (world_calls_ > 0) PlaceLanes();
  for (client::Action& action : actions_) {
    if (!alive_ || world_.checker.failed()) return;
    world_.trace.Fold(action.index());
    if (Allows(action)) CarryOut(action, *this);
  }
}

void WorkerProcess::Do(client::OpenSession& open) {
  connect_at_ = world_.queue.now() + ToSim(open.delay);
  world_.queue.At(connect_at_, Happening::kConnect, index_, 0);
}

void WorkerProcess::Do(client::CloseSession&) { CloseConnections(); }

void WorkerProcess::Do(client::OpenStream& open) {
  if (open.stream >= streams_.size()) {
    streams_.resize(open.stream + 1);
    tokens_.resize(open.stream + 1);
    ends_at_.resize(open.stream + 1);
    connect_stream_at_.resize(open.stream + 1, -1);
  }
  ends_at_[open.stream] = open.shard;
  tokens_[open.stream] = open.token;
  connect_stream_at_[open.stream] = world_.queue.now() + ToSim(open.delay);
  world_.queue.At(connect_stream_at_[open.stream], Happening::kConnect, index_, open.stream + 1);
}

void WorkerProcess::Do(client::CloseStream& close) {
  connect_stream_at_[close.stream] = -1;
  if (!streams_[close.stream].has_value()) return;
  world_.network.CloseByWorker(*streams_[close.stream]);
  streams_[close.stream].reset();
}

WorkerProcess::Lane* WorkerProcess::LaneAt(LaneIndex index) {
  for (Lane& lane : lanes_) {
    if (lane.index == index) return &lane;
  }
  return nullptr;
}

// Reports to the checker what this life of the worker has contributed to the round in flight.
void WorkerProcess::Record(Lane& lane) {
  if (lane.round == 0) return;
  world_.checker.ContributionOf(lane.life, lane.round, incarnation_) = lane.given;
}

void WorkerProcess::Do(client::Send& send) {
  if (!session_.has_value()) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat("The client of ", name(), " sends without a session."));
    return;
  }
  Trigger trigger = Trigger::kTime;
  if (const auto* begin = std::get_if<Begin>(&send.message)) {
    Lane* lane = LaneAt(begin->lane);
    if (lane == nullptr || lane->phase == LanePhase::kIdle) {
      world_.checker.Fail(Invariant::kContract,
                          absl::StrCat("The client of ", name(),
                                       " begins a round that its trainer did not begin."));
      return;
    }
    // The call that the trainer began went on without this worker, so this begin is for the next
    // one. If the session was down, the client may never have sent a begin for the first.
    if (const auto before = lane->verdicts.find(lane->last + 1);
        before != lane->verdicts.end() && begin->round > before->first) {
      const VerdictRecord record = before->second;
      Pass(*lane, record);
      world_.coverage.Saw(Sight::kCallPostponed);
      // The trainer makes one call more than the others, which may not join it, so it starts over.
      world_.queue.After(kMillisecond, Happening::kTrainer, index_, kCallIsPostponed);
    }
    if (world_.checker.lives.IsLater(lane->life)) world_.coverage.Saw(Sight::kNameAgain);
    lane->round = begin->round;
    Record(*lane);
    trigger = Trigger::kBegin;
  } else if (std::holds_alternative<Commit>(send.message)) {
    trigger = Trigger::kCommit;
  } else if (const auto* staged = std::get_if<Staged>(&send.message)) {
    Lane* lane = LaneAt(staged->lane);
    if (lane != nullptr && lane->prepared.has_value() && lane->prepared->round == staged->round) {
      world_.checker.StagedBy(index_, lane->life, *lane->prepared);
    }
    trigger = Trigger::kStaged;
  } else if (const auto* let_go = std::get_if<LetGo>(&send.message)) {
    if (Lane* lane = LaneAt(let_go->lane); lane != nullptr) lane->asked.reset();
  }
  world_.Narrate(Detail::kAll, name(), [&] { return absl::StrCat("-> ", Narrate(send.message)); });
  if (trigger != Trigger::kTime) world_.Notice(trigger, index_, kNobody);
  if (!alive_ || !session_.has_value()) return;
  world_.network.SendUp(*session_, std::move(send.message));
}

bool WorkerProcess::Allows(const client::Action& action) {
  if (const auto* send = std::get_if<client::SendContribution>(&action)) return Allows(*send);
  const auto* keep = std::get_if<client::KeepResult>(&action);
  if (keep == nullptr || result_ == nullptr || !world_.PlantedNow(PlantedBug::kWrongResult)) {
    return true;
  }
  ResultFrame damaged = *result_;
  for (Chunk& chunk : damaged.chunks) chunk.content ^= 1;
  Require(shell_.Do(*keep, &damaged));
  return false;
}

bool WorkerProcess::Allows(const client::SendContribution& send) {
  Lane& lane = lanes_[send.lane];
  if (lane.phase == LanePhase::kIdle || (lane.round != 0 && lane.round != send.round)) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat("The client of ", name(), " pushes round ", send.round, " of ",
                                     world_.scenario.lanes[lane.model].name,
                                     " from buffers that belong to the trainer again."));
    return false;
  }
  lane.round = send.round;
  Record(lane);
  uint64_t places = 0;
  for (const ChunkRange& range : send.ranges) places |= BitsOf(range);
  if (send.ranges.size() > 1) world_.coverage.Saw(Sight::kManyTensors);
  if ((lane.pushed_chunks & places) != 0) world_.coverage.Saw(Sight::kPushResent);
  lane.pushed_chunks |= places;
  world_.Notice(Trigger::kPush, index_, kNobody);
  return alive_;
}

void WorkerProcess::Require(const absl::Status& status) {
  if (status.ok()) return;
  world_.checker.Fail(
      Invariant::kContract,
      absl::StrCat("The client of ", name(), " breaks the contract: ", status.message(), "."));
}

// ---- what the transport learns from messages

void WorkerProcess::Observe(const ToWorker& message) {
  world_.Narrate(Detail::kAll, name(), [&] { return absl::StrCat("<- ", Narrate(message)); });
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    incarnation_ = welcome->incarnation;
    term_ = welcome->term;
    for (Lane& lane : lanes_) {
      if (MayGo(lane)) lane.index.reset();  // It counts what this session says.
    }
    for (const LaneLayout& layout : welcome->layouts) ObserveLayout(layout);
    for (const LastVerdicts& last : welcome->verdicts) {
      for (const VerdictRecord& record : last.verdicts) ObserveVerdict(last.lane, record);
    }
    for (Lane& lane : lanes_) Record(lane);
  } else if (const auto* layout = std::get_if<LaneLayout>(&message)) {
    ObserveLayout(*layout);
  } else if (const auto* verdict = std::get_if<Verdict>(&message)) {
    ObserveVerdict(verdict->lane, verdict->record);
  } else if (const auto* prepared = std::get_if<Prepared>(&message)) {
    if (Lane* lane = LaneAt(prepared->lane); lane != nullptr) {
      lane->prepared = *prepared;
      world_.checker.PreparedFor(index_, lane->life, *prepared);
    }
  } else if (const auto* changed = std::get_if<MembershipChanged>(&message)) {
    const bool joins = changed->role == Role::kMember && core_.role() != Role::kMember;
    for (Lane& lane : lanes_) {
      if (!joins || !MayGo(lane)) continue;
      lane.placed = false;
      lane.enters = 0;
    }
    for (const StartRound& start : changed->start) {
      for (Lane& lane : lanes_) {
        if (MayGo(lane) || world_.scenario.lanes[lane.model].name != start.lane) continue;
        lane.start = {start.round, start.chain};
      }
    }
  } else if (const auto* asked = std::get_if<LetGo>(&message)) {
    ObserveQuestion(*asked);
  } else if (const auto* gone = std::get_if<LaneGone>(&message)) {
    if (Lane* lane = LaneAt(gone->lane); lane != nullptr) {
      if (lane->phase != LanePhase::kIdle) world_.coverage.Saw(Sight::kBegunAnew);
      LeaveLife(*lane);
    }
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    drained_ |= !drain->service;
    if (drained_ && phase_ == Phase::kJoining) ActAfter(0);
  }
}

void WorkerProcess::ObserveLayout(const LaneLayout& layout) {
  for (Lane& lane : lanes_) {
    const LaneModel& model = world_.scenario.lanes[lane.model];
    if (model.name != layout.name || lane.forgotten) continue;
    if (MayGo(lane)) EnterLife(lane, layout);
    lane.index = layout.lane;
    const size_t end = layout.first + layout.tensors.size();
    if (lane.layout.size() < end) lane.layout.resize(end);
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      const auto it =
          std::find_if(model.tensors.begin(), model.tensors.end(),
                       [&](const TensorSpec& spec) { return spec.name == layout.tensors[i].name; });
      lane.layout[layout.first + i] = static_cast<uint32_t>(it - model.tensors.begin());
    }
  }
}

void WorkerProcess::ObserveVerdict(LaneIndex index, const VerdictRecord& record) {
  Lane* lane = LaneAt(index);
  if (lane == nullptr || record.round <= lane->last) return;
  // A call that was open when the worker joined does not wait for it; see LeaveOutOfCalls.
  const bool call = world_.scenario.lanes[lane->model].kind == LaneKind::kCall;
  if (phase_ == Phase::kLoading && !call && record.value.outcome == Outcome::kCommitted) {
    world_.checker.Fail(
        Invariant::kSameBytes,
        absl::StrCat(name(), " is told the verdict of round ", record.round, " of ",
                     world_.scenario.lanes[lane->model].name,
                     " while it loads the state of before it, which its donor may have left."));
  }
  if (IsLate(record) && record.round == lane->last + 1 && lane->verdicts.count(record.round) == 0) {
    world_.coverage.Saw(lane->phase == LanePhase::kIdle ? Sight::kLateUnbegun : Sight::kLateBegun);
  }
  lane->verdicts[record.round] = record;
}

// ---- names that are let go

std::optional<Life> WorkerProcess::LifeOf(const std::string& name) const {
  for (const Lane& lane : lanes_) {
    if (lane.forgotten || !lane.knows_life) continue;
    if (world_.scenario.lanes[lane.model].name == name) return lane.life;
  }
  return std::nullopt;
}

void WorkerProcess::ObserveQuestion(const LetGo& asked) {
  Lane* lane = LaneAt(asked.lane);
  if (lane == nullptr) return;
  const auto handle = static_cast<client::LaneHandle>(lane - lanes_.data());
  if (!core_.lanes().Has(handle) || core_.lanes()[handle].IsIdle()) return;
  world_.coverage.Saw(Sight::kLetGoLater);
  lane->asked = asked.round;
}

void WorkerProcess::EnterLife(Lane& lane, const LaneLayout& layout) {
  const std::optional<Life> life = world_.checker.lives.At(*session_, layout.lane);
  if (!life.has_value() || (lane.knows_life && lane.life == *life)) return;
  LeaveLife(lane);
  lane.life = *life;
  lane.knows_life = true;
  lane.enters = layout.round;
}

// A call that is in flight is to be made in the next life.
void WorkerProcess::LeaveLife(Lane& lane) {
  lane.knows_life = lane.placed = false;
  lane.enters = 0;
  lane.asked.reset();
  lane.round = lane.last = lane.joined = lane.left_out = 0;
  lane.pushed_chunks = 0;
  lane.chain = 0;
  lane.state.reset();
  lane.states.clear();
  lane.late.reset();
  lane.counted.reset();
  lane.verdicts.clear();
  lane.prepared.reset();
  lane.index.reset();
  lane.layout.clear();
}

void WorkerProcess::PlaceLanes() {
  for (client::LaneHandle handle = 0; handle < lanes_.size(); ++handle) {
    Lane& lane = lanes_[handle];
    if (lane.placed || !lane.knows_life || !lane.index.has_value()) continue;
    if (!core_.has_history() || !core_.lanes().Has(handle)) continue;
    const client::Lane& core = core_.lanes()[handle];
    if (!core.started || core.index != lane.index) continue;
    if (lane.enters != 0 && core.next() != lane.enters) {
      world_.checker.Fail(
          Invariant::kOneLife,
          absl::StrCat(name(), " goes on with round ", core.next(), " in another life of ",
                       world_.scenario.lanes[lane.model].name, ", which is at round ", lane.enters,
                       "."));
    }
    lane.placed = true;
    lane.enters = 0;
    lane.last = core.last_verdict;
    lane.joined = core.next();
    lane.chain = core.chain.value_or(0);
    ProcessLane& known = world_.checker.LaneOf(index_, lane.life);
    known = ProcessLane{};
    known.last = lane.last;
    known.chain = lane.chain;
    known.knows_chain = core.chain.has_value();
    lane.state.reset();
    if (lane.last == 0) lane.state = 0;
    lane.verdicts.erase(lane.verdicts.begin(), lane.verdicts.upper_bound(lane.last));
  }
}

void WorkerProcess::Do(client::ForgetLane& forget) {
  Lane& lane = lanes_[forget.lane];
  if (lane.phase != LanePhase::kIdle) {
    world_.checker.Fail(Invariant::kOneLife,
                        absl::StrCat("The client of ", name(), " forgets a call of ",
                                     world_.scenario.lanes[lane.model].name, " in flight."));
  }
  LeaveLife(lane);
  lane.forgotten = true;
  lane.take = 0;
  handles_.erase(lane.model);
  world_.coverage.Saw(Sight::kNameLetGo);
}

}  // namespace basin::simulation
