// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/aggregator_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/memory.h"
#include "tests/simulation/narrate.h"
#include "tests/simulation/world.h"

namespace basin::simulation {
namespace {

using aggregator::Covers;
using aggregator::NoteKind;

constexpr uint64_t BitOf(NoteKind kind) { return uint64_t{1} << static_cast<uint32_t>(kind); }

// The notes of which one has to say why a session ends.
constexpr uint64_t kEndsSession =
    BitOf(NoteKind::kWorkerRefused) | BitOf(NoteKind::kWorkerLost) |
    BitOf(NoteKind::kWorkerSuperseded) | BitOf(NoteKind::kWorkerLeft) |
    BitOf(NoteKind::kWorkerReconnected) | BitOf(NoteKind::kJobRefused) |
    BitOf(NoteKind::kJobEnded) | BitOf(NoteKind::kSteppedDown);

// Data streams have the numbers of their connections, and none is 0.
aggregator::StreamId StreamOf(ConnectionId connection) {
  return aggregator::StreamId{connection} + 1;
}
ConnectionId ConnectionOf(aggregator::StreamId stream) {
  return static_cast<ConnectionId>(stream - 1);
}

}  // namespace

AggregatorProcess::AggregatorProcess(World& world, uint32_t index, aggregator::Config config)
    : world_(world),
      index_(index),
      core_(std::move(config), ToAbsl(world.queue.now())),
      timer_at_(kNever) {}

std::string AggregatorProcess::name() const { return absl::StrCat("agg", index_); }

const aggregator::Job* AggregatorProcess::job() const { return core().FindJob(kJobName); }

// ---- what happens to it

void AggregatorProcess::Arrive(ConnectionId connection, Item item) {
  if (auto* open = std::get_if<OpenRequest>(&item)) return TakeOpen(connection, *open);
  if (std::holds_alternative<Closing>(item)) return SeesClose(connection);
  if (auto* message = std::get_if<ToAggregator>(&item)) return TakeMessage(connection, *message);
  if (auto* frame = std::get_if<PushFrame>(&item)) return TakePush(connection, *frame);
  if (auto* frame = std::get_if<ValueFrame>(&item)) return TakeValue(connection, *frame);
}

void AggregatorProcess::TakeOpen(ConnectionId id, const OpenRequest& request) {
  Network::Connection& connection = world_.network[id];
  connection.aggregator_open = true;
  if (connection.stream == kSessionStream) {
    connection.session = ++next_session_;
    sessions_[connection.session] = id;
    world_.network.SendDown(id, OpenAccepted{});
    return Step(aggregator::SessionOpened{connection.session, world_.random.Next()});
  }
  Step(aggregator::StreamOpened{StreamOf(id), request.token});
}

void AggregatorProcess::SeesClose(ConnectionId id) {
  Network::Connection& connection = world_.network[id];
  if (!connection.aggregator_open) return;
  connection.aggregator_open = false;
  if (connection.stream == kSessionStream) {
    sessions_.erase(connection.session);
    return Step(aggregator::SessionClosed{connection.session});
  }
  const uint64_t before = core_.delivery().resent();
  Step(aggregator::StreamLost{StreamOf(id)});
  if (core_.delivery().resent() > before) world_.coverage.Saw(Sight::kResultResent);
}

void AggregatorProcess::TakeMessage(ConnectionId id, ToAggregator& message) {
  Network::Connection& connection = world_.network[id];
  ++world_.coverage.to_aggregator[message.index()];
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("<- p", connection.worker, " ", Narrate(message)); });
  const auto* hello = std::get_if<Hello>(&message);
  const bool remembers = hello != nullptr && aggregator::HasHistory(*hello);
  const auto recovering = [&] {
    return job() != nullptr && (job()->state() == aggregator::JobState::kRecovering ||
                                job()->state() == aggregator::JobState::kHalted);
  };
  const bool before = recovering();
  const WorkerId worker = hello != nullptr ? hello->worker : WorkerId();
  if (hello != nullptr) lists_[worker] = hello->membership;
  recovering_ = refused_ = false;
  if (hello != nullptr) world_.Notice(Trigger::kHello, connection.worker, index_);
  if (!alive_) return;
  Step(aggregator::MessageReceived{connection.session, std::move(message)});
  if (hello == nullptr || (refused_ && !remembers)) return;
  if (remembers && !before && (recovering_ || recovering())) {
    orphaned_ = Knowledge();
    heard_.clear();
  } else if (!before) {
    return;
  }
  // The last hello of a worker counts: who comes without memory speaks for it from then on.
  Knowledge& knowledge = heard_[worker];
  knowledge = Knowledge();
  if (remembers) world_.checker.AddKnowledge(connection.worker, knowledge);
}

Knowledge AggregatorProcess::Recovered() const {
  Knowledge all = orphaned_;
  for (const auto& [id, knowledge] : heard_) all.Add(knowledge);
  return all;
}

// A worker that the newest list of members lacks has no say: another aggregator, which knew what
// that worker had staged, made the list without it.
void AggregatorProcess::ForgetUnlisted() {
  Membership newest;
  for (const auto& [id, membership] : lists_) {
    if (newest.generation < membership.generation) newest = membership;
  }
  for (auto it = heard_.begin(); it != heard_.end();) {
    const bool listed =
        std::find(newest.members.begin(), newest.members.end(), it->first) != newest.members.end();
    it = listed ? std::next(it) : heard_.erase(it);
  }
  lists_.clear();
}

void AggregatorProcess::TakePush(ConnectionId id, const PushFrame& frame) {
  Network::Connection& connection = world_.network[id];
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("<- p", connection.worker, " ", Narrate(frame)); });
  aggregator::FrameReceived event;
  event.session = connection.session;
  event.kind = frame.kind;
  event.lane = frame.lane;
  event.round = frame.round;
  event.ballot = frame.ballot;
  event.range = frame.range;
  event.bytes = frame.bytes;
  for (const Chunk& chunk : frame.chunks) event.digests.push_back(DigestOf(chunk));
  frame_ = &frame;
  Step(event);
  frame_ = nullptr;
}

void AggregatorProcess::TakeValue(ConnectionId id, const ValueFrame& frame) {
  Network::Connection& connection = world_.network[id];
  value_frame_ = &frame;
  const uint64_t end = (uint64_t{frame.first} + frame.count) * kChunkBytes;
  const uint64_t bytes = std::min<uint64_t>(kValueBytes, end) - frame.first * kChunkBytes;
  Step(aggregator::ValueReceived{connection.session, frame.key, frame.first, frame.count, bytes});
  value_frame_ = nullptr;
}

void AggregatorProcess::Timer() {
  if (world_.queue.now() >= timer_at_) timer_at_ = kNever;
  if (FromAbsl(core_.NextDeadline()) <= world_.queue.now()) {
    ticks_ = last_tick_ == world_.queue.now() ? ticks_ + 1 : 0;
    last_tick_ = world_.queue.now();
    if (ticks_ > 100) {
      world_.checker.Fail(Invariant::kContract,
                          absl::StrCat(name(),
                                       " asks for a tick at a time that has passed, again "
                                       "and again."));
      return;
    }
    Step(aggregator::Tick{});
    return;
  }
  ScheduleTimer();
}

void AggregatorProcess::Reduced(uint32_t number) {
  Reduction& reduction = reductions_[number];
  reduction.done = true;
  const aggregator::Reduce& what = reduction.what;
  aggregator::ReduceDone event;
  event.job = what.job;
  event.lane = what.lane;
  event.round = what.round;
  event.ballot = what.ballot;
  event.range = what.range;
  for (const Chunk& chunk : reduction.chunks) event.digests.push_back(DigestOf(chunk));
  const RoundKey key{what.job, what.lane, what.round};
  const auto it = rounds_.find(key);
  if (it != rounds_.end() && it->second.ballot == what.ballot) {
    RoundStore& store = it->second;
    const uint64_t places = PlacesOf(what.range);
    for (Parked& parked : store.parked) {
      parked_bytes_ -= BytesOf(store, parked.reducing & places);
      parked.present &= ~(parked.reducing & places);
      parked.reducing &= ~places;
    }
    for (uint32_t i = 0; i < what.range.count; ++i) {
      store.values[PlaceOf(what.range.tensor, what.range.first + i)] = reduction.chunks[i];
    }
    store.results |= places;
    result_bytes_ += BytesOf(store, places);
    --reducing_;
  } else {
    world_.coverage.Saw(Sight::kStaleReduction);
  }
  Step(event);
}

void AggregatorProcess::Saved(uint32_t number) {
  const aggregator::SaveState& save = saves_[number];
  const bool ok = !world_.TakeStateFileFailure();
  if (ok) world_.state_file = {save.run, save.term, save.membership};
  Step(aggregator::StateSaved{save.job, save.membership.generation, ok});
}

void AggregatorProcess::Command(const aggregator::Event& event) { Step(event); }

void AggregatorProcess::Crash(bool reset) {
  alive_ = false;
  deferred.clear();
  sessions_.clear();
  for (ConnectionId id = 0; id < world_.network.size(); ++id) {
    const Network::Connection& connection = world_.network[id];
    if (connection.aggregator != index_) continue;
    if (!connection.aggregator_open) {
      // The kernel also closes what it had accepted and the stopped process had not.
      if (connection.worker_open) world_.network.Refuse(id);
    } else if (reset) {
      world_.network.Reset(id);
    } else {
      world_.network.CloseByAggregator(id);
    }
  }
  if (verdicts_in_step_ > 0) world_.coverage.Saw(Sight::kCrashBetweenVerdicts);
}

// ---- the core and its actions

void AggregatorProcess::Step(const aggregator::Event& event) {
  if (world_.checker.failed()) return;
  ++world_.coverage.steps;
  actions_.clear();
  verdicts_in_step_ = 0;
  core_.Step(event, ToAbsl(world_.queue.now()), actions_);
  if (actions_.empty()) {
    ScheduleTimer();
    return;
  }
  // Taken out, because a fault that strikes between two actions may end this process.
  std::vector<aggregator::Action> actions = std::move(actions_);
  Check(actions);
  for (aggregator::Action& action : actions) {
    if (!alive_ || world_.checker.failed()) return;
    world_.trace.Fold(action.index());
    Execute(action);
  }
  const uint64_t accumulator =
      reducing_ > 0 ? aggregator::kWidening * core().config().frame_bytes : 0;
  const uint64_t held = held_bytes() + accumulator;
  if (held > core().config().memory_bytes) {
    world_.checker.Fail(
        Invariant::kBoundedBytes,
        absl::StrCat(name(), " holds ", held, " bytes (", parked_bytes_, " parked, ", result_bytes_,
                     " of results, ", accumulator, " accumulating), and its budget is ",
                     core().config().memory_bytes, "."));
  }
  if (alive_ && kept_.size() != core_.delivery().frames()) {
    world_.checker.Fail(Invariant::kBoundedBytes,
                        absl::StrCat(name(), " keeps ", kept_.size(), " frames, and ",
                                     core_.delivery().frames(), " may still be asked of it."));
  }
  actions_ = std::move(actions);
  ScheduleTimer();
}

void AggregatorProcess::ScheduleTimer() {
  const SimTime next = FromAbsl(core_.NextDeadline());
  if (next >= timer_at_ || next >= kNever) return;
  timer_at_ = std::max(next, world_.queue.now());
  world_.queue.At(timer_at_, Happening::kAggregatorTimer, index_);
}

// I7: whoever is refused or thrown out, and every abort, leaves a note with a reason.
void AggregatorProcess::Check(const std::vector<aggregator::Action>& actions) {
  uint64_t noted = 0;
  for (const aggregator::Action& action : actions) {
    const auto* note = std::get_if<aggregator::Note>(&action);
    if (note == nullptr) continue;
    if (note->text.empty()) {
      world_.checker.Fail(
          Invariant::kNoted,
          absl::StrCat("A note of kind ", aggregator::NoteKindName(note->kind), " has no reason."));
    }
    if (note->kind == NoteKind::kWorkerLost && world_.PlantedNow(PlantedBug::kSilentEviction)) {
      continue;
    }
    noted |= BitOf(note->kind);
  }
  const auto require = [&](uint64_t kinds, const std::string& what) {
    if ((noted & kinds) != 0) return;
    world_.checker.Fail(Invariant::kNoted, absl::StrCat(name(), " ", what, " without a note."));
  };
  for (const aggregator::Action& action : actions) {
    if (const auto* end = std::get_if<aggregator::EndSession>(&action)) {
      if (end->error.code != ErrorCode::kUnavailable) {  // That refuses nobody: it comes back.
        require(kEndsSession, absl::StrCat("ended a session (", ErrorCodeName(end->error.code),
                                           ": ", end->error.text, ")"));
      }
      if (end->error.code != ErrorCode::kOk && end->error.text.empty()) {
        world_.checker.Fail(Invariant::kNoted, "A session was ended without a reason.");
      }
    }
    const auto* send = std::get_if<aggregator::Send>(&action);
    const auto* send_all = std::get_if<aggregator::SendAll>(&action);
    if (send == nullptr && send_all == nullptr) continue;
    const ToWorker& message = send != nullptr ? send->message : send_all->message;
    if (const auto* rejected = std::get_if<Rejected>(&message)) {
      if (rejected->error.code != ErrorCode::kPaused) {  // That only ends a wait.
        // On a new session it repeats what was noted before.
        require(BitOf(NoteKind::kContributionRejected) | BitOf(NoteKind::kWorkerRefused) |
                    BitOf(NoteKind::kWorkerReconnected),
                absl::StrCat("rejected a request (", rejected->error.text, ")"));
      }
      if (rejected->error.text.empty() || rejected->error.code == ErrorCode::kOk) {
        world_.checker.Fail(Invariant::kNoted, "A request was rejected without a reason.");
      }
    }
    if (std::holds_alternative<AttemptRestarted>(message)) {
      require(BitOf(NoteKind::kAttemptRestarted), "restarted an attempt");
    }
    if (const auto* verdict = std::get_if<Verdict>(&message);
        verdict != nullptr && verdict->record.value.outcome == Outcome::kAborted) {
      if (verdict->record.value.reason.empty()) {
        world_.checker.Fail(Invariant::kNoted, "A round was aborted without a reason.");
      }
    }
  }
}

void AggregatorProcess::Execute(aggregator::Action& action) {
  std::visit([this](auto& what) { Do(what); }, action);
}

void AggregatorProcess::Do(aggregator::Send& send) {
  const auto it = sessions_.find(send.session);
  if (it == sessions_.end()) return;
  const uint32_t worker = world_.network[it->second].worker;
  ++world_.coverage.to_worker[send.message.index()];
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("-> p", worker, " ", Narrate(send.message)); });
  if (auto* verdict = std::get_if<Verdict>(&send.message)) {
    if (const auto lane = ModelOf(verdict->lane); lane.has_value()) {
      world_.checker.VerdictTold(index_, recoveries_, *lane, verdict->record, Recovered());
    }
    ++verdicts_in_step_;
    world_.Notice(Trigger::kVerdict, worker, index_);
  } else if (auto* welcome = std::get_if<Welcome>(&send.message)) {
    for (const LaneLayout& layout : welcome->layouts) models_[layout.lane] = layout.name;
    for (const LastVerdicts& last : welcome->verdicts) {
      const auto lane = ModelOf(last.lane);
      if (!lane.has_value()) continue;
      for (const VerdictRecord& record : last.verdicts) {
        world_.checker.VerdictTold(index_, recoveries_, *lane, record, Recovered());
      }
    }
    world_.Notice(Trigger::kWelcome, worker, index_);
  } else if (auto* layout = std::get_if<LaneLayout>(&send.message)) {
    models_[layout->lane] = layout->name;
  } else if (auto* prepared = std::get_if<Prepared>(&send.message)) {
    if (prepared->ballot != prepared->value_ballot) {
      world_.coverage.Saw(prepared->value.outcome == Outcome::kCommitted ? Sight::kAdoptedCommitted
                                                                         : Sight::kAdoptedAborted);
    }
    world_.Notice(Trigger::kPrepared, worker, index_);
  } else if (std::holds_alternative<Credit>(send.message) &&
             world_.PlantedNow(PlantedBug::kLoseAck)) {
    return;
  }
  if (!alive_) return;
  const auto again = sessions_.find(send.session);
  if (again == sessions_.end()) return;
  world_.network.SendDown(again->second, std::move(send.message));
}

void AggregatorProcess::Do(aggregator::SendAll& send) {
  for (const aggregator::SessionId session : send.sessions) {
    if (!alive_) return;  // Some were told, others were not.
    aggregator::Send one{session, send.message};
    Do(one);
  }
}

void AggregatorProcess::Do(aggregator::EndSession& end) {
  const auto it = sessions_.find(end.session);
  if (it == sessions_.end()) return;
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat("ends the session of p", world_.network[it->second].worker, ": ",
                        ErrorCodeName(end.error.code), ": ", end.error.text);
  });
  if (end.error.code == ErrorCode::kLineageConflict) world_.coverage.Saw(Sight::kForkFenced);
  if (end.error.code == ErrorCode::kSuperseded) world_.coverage.Saw(Sight::kSuperseded);
  ++world_.coverage.to_worker[ToWorker(Ended{}).index()];
  world_.network.SendDown(it->second, ToWorker(Ended{std::move(end.error)}));
  world_.network.CloseByAggregator(it->second);
  sessions_.erase(it);
}

uint64_t AggregatorProcess::BytesOf(const RoundStore& store, uint64_t places) {
  uint64_t bytes = 0;
  for (; places != 0; places &= places - 1) bytes += store.sizes[__builtin_ctzll(places)];
  return bytes;
}

void AggregatorProcess::Do(aggregator::NameTensors& names) {
  uint32_t& count = tensors_[{names.job, names.lane}];
  if (names.first > count) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was given tensors from index ", names.first,
                                     " of a lane that has ", count, "."));
  }
  count = names.first + static_cast<uint32_t>(names.tensors.size());
}

void AggregatorProcess::Do(aggregator::EndJob& end) {
  const auto first = tensors_.lower_bound({end.job, 0});
  tensors_.erase(first, tensors_.lower_bound({end.job + 1, 0}));
}

void AggregatorProcess::Do(aggregator::KeepChunks& keep) {
  if (frame_ == nullptr || frame_->kind != aggregator::FrameKind::kContribution ||
      frame_->round != keep.round || frame_->lane != keep.lane ||
      !Covers(frame_->range, keep.range)) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to keep chunks that did not arrive."));
    return;
  }
  const RoundKey key{keep.job, keep.lane, keep.round};
  RoundStore& store = rounds_[key];
  auto parked = std::find_if(store.parked.begin(), store.parked.end(),
                             [&](const Parked& p) { return p.contributor == keep.contributor; });
  if (parked == store.parked.end()) {
    store.parked.emplace_back();
    parked = std::prev(store.parked.end());
    parked->contributor = keep.contributor;
  }
  const uint64_t places = PlacesOf(keep.range);
  if ((parked->present & places) != 0) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to keep chunks that it already has."));
    return;
  }
  for (uint32_t i = 0; i < keep.range.count; ++i) {
    const uint32_t place = PlaceOf(keep.range.tensor, keep.range.first + i);
    const uint32_t in_frame = keep.range.first + i - frame_->range.first;
    parked->chunks[place] = frame_->chunks[in_frame];
    // All chunks of a frame are whole but, at most, the last.
    store.sizes[place] =
        static_cast<uint32_t>(std::min(kChunkBytes, frame_->bytes - in_frame * kChunkBytes));
  }
  parked->present |= places;
  parked_bytes_ += BytesOf(store, places);
}

void AggregatorProcess::Do(aggregator::DiscardChunks& discard) {
  const RoundKey key{discard.job, discard.lane, discard.round};
  RoundStore& store = rounds_[key];
  for (Parked& parked : store.parked) {
    if (!(parked.contributor == discard.contributor)) continue;
    for (const ChunkRange& range : discard.ranges) {
      const uint64_t places = PlacesOf(range);
      if ((parked.present & places) != places || (parked.reducing & places) != 0) {
        world_.checker.Fail(Invariant::kContract,
                            absl::StrCat(name(), " was asked to discard chunks that it lacks."));
        return;
      }
      parked.present &= ~places;
      parked_bytes_ -= BytesOf(store, places);
    }
    return;
  }
  world_.checker.Fail(Invariant::kContract,
                      absl::StrCat(name(), " was asked to discard a contribution that it lacks."));
}

void AggregatorProcess::Do(aggregator::StartAttempt& start) {
  const RoundKey key{start.job, start.lane, start.round};
  RoundStore& store = rounds_[key];
  if (start.ballot < store.ballot) {
    world_.checker.Fail(Invariant::kOneVerdict,
                        absl::StrCat(name(), " went back to ballot ", ToString(start.ballot), "."));
  }
  if (!(store.ballot == start.ballot)) {
    // Reductions of the attempt before are cancelled, and its results are of no use.
    for (Parked& parked : store.parked) {
      parked_bytes_ -= BytesOf(store, parked.reducing);
      parked.present &= ~parked.reducing;
      parked.reducing = 0;
    }
    for (Reduction& reduction : reductions_) {
      const aggregator::Reduce& what = reduction.what;
      if (reduction.done || RoundKey{what.job, what.lane, what.round} != key) continue;
      if (what.ballot == store.ballot) --reducing_;
    }
    result_bytes_ -= BytesOf(store, store.results);
    store.results = 0;
  }
  store.ballot = start.ballot;
  store.spec = start.spec;
  store.contributors = std::move(start.contributors);
}

uint64_t AggregatorProcess::DivisorOf(const RoundStore& store, size_t skipped) const {
  if (store.spec.op != ReduceOp::kAverage) return 1;
  const bool present = store.spec.denominator == Denominator::kPresent;
  return store.contributors.size() - (present ? skipped : 0);
}

void AggregatorProcess::Do(aggregator::Reduce& reduce) {
  world_.Notice(Trigger::kReduce, kNobody, index_);
  if (!alive_) return;
  const RoundKey key{reduce.job, reduce.lane, reduce.round};
  RoundStore& store = rounds_[key];
  const uint64_t places = PlacesOf(reduce.range);
  if (!(store.ballot == reduce.ballot) || (store.results & places) != 0) {
    world_.checker.Fail(
        Invariant::kContract,
        absl::StrCat(name(), " was asked to reduce chunks of ballot ", ToString(reduce.ballot),
                     " in attempt ", ToString(store.ballot), ", or twice."));
    return;
  }
  const auto tensors = tensors_.find({reduce.job, reduce.lane});
  if (tensors == tensors_.end() || reduce.range.tensor >= tensors->second) {
    world_.checker.Fail(
        Invariant::kContract,
        absl::StrCat(name(), " was asked to reduce a tensor that it was not given."));
    return;
  }
  if (reduce.divisor != DivisorOf(store, reduce.skipped.size())) {
    world_.checker.Fail(Invariant::kOneSet,
                        absl::StrCat(name(), " was asked to divide by ", reduce.divisor, " for ",
                                     store.contributors.size(), " contributors of which ",
                                     reduce.skipped.size(), " skip."));
    return;
  }
  Reduction reduction;
  reduction.chunks.resize(reduce.range.count);
  size_t skip = 0;
  for (uint32_t position = 0; position < store.contributors.size(); ++position) {
    if (skip < reduce.skipped.size() && reduce.skipped[skip] == position) {
      ++skip;
      continue;
    }
    const Contributor& contributor = store.contributors[position];
    const auto parked =
        std::find_if(store.parked.begin(), store.parked.end(),
                     [&](const Parked& p) { return p.contributor == contributor.incarnation; });
    if (parked == store.parked.end() || (parked->present & places) != places ||
        (parked->reducing & places) != 0) {
      world_.checker.Fail(Invariant::kContract,
                          absl::StrCat(name(), " was asked to reduce chunks of ",
                                       contributor.worker, " that it lacks."));
      return;
    }
    parked->reducing |= places;
    const uint64_t times = world_.PlantedNow(PlantedBug::kCountTwice) ? 2
                           : world_.PlantedNow(PlantedBug::kLeaveOut) ? 0
                                                                      : 1;
    const uint64_t other = world_.PlantedNow(PlantedBug::kStaleBytes) ? 1 : 0;
    for (uint32_t i = 0; i < reduce.range.count; ++i) {
      const Chunk& chunk = parked->chunks[PlaceOf(reduce.range.tensor, reduce.range.first + i)];
      reduction.chunks[i].mask += times * chunk.mask;
      reduction.chunks[i].content += times * chunk.content + other;
    }
  }
  reduction.what = std::move(reduce);
  const uint32_t number = static_cast<uint32_t>(reductions_.size());
  reductions_.push_back(std::move(reduction));
  ++reducing_;
  const SimTime delay = world_.scenario.slow_reducer ? world_.random.Between(1, 30) * kMillisecond
                                                     : world_.random.Between(20, 400);
  world_.queue.After(delay, Happening::kReduced, index_, number);
}

void AggregatorProcess::Do(aggregator::Publish& publish) {
  const RoundKey key{publish.job, publish.lane, publish.round};
  const auto it = rounds_.find(key);
  const uint64_t places = PlacesOf(publish.range);
  if (it == rounds_.end() || (it->second.results & places) != places ||
      !(it->second.ballot == publish.ballot)) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to publish a result that it lacks."));
    return;
  }
  for (const aggregator::Route& route : publish.routes) {
    ResultFrame frame{publish.lane, publish.round, publish.ballot, route.range, {}};
    for (uint32_t i = 0; i < frame.range.count; ++i) {
      frame.chunks.push_back(it->second.values[PlaceOf(frame.range.tensor, frame.range.first + i)]);
    }
    Send(route, std::move(frame));
    if (!alive_) return;
  }
}

void AggregatorProcess::Send(const aggregator::Route& route, Frame frame) {
  for (const aggregator::StreamId stream : route.streams) {
    if (std::holds_alternative<ResultFrame>(frame)) {
      world_.Notice(Trigger::kResult, world_.network[ConnectionOf(stream)].worker, index_);
    }
    if (!alive_) return;
    SendOn(stream, frame);
  }
  if (route.frame != 0) kept_.emplace(route.frame, std::move(frame));
}

void AggregatorProcess::SendOn(aggregator::StreamId stream, const Frame& frame) {
  const ConnectionId connection = ConnectionOf(stream);
  if (const auto* result = std::get_if<ResultFrame>(&frame)) {
    world_.Narrate(Detail::kAll, name(), [&] {
      return absl::StrCat("-> p", world_.network[connection].worker, " ", Narrate(*result),
                          " session ", world_.network[connection].session);
    });
  }
  std::visit([&](const auto& what) { world_.network.SendDown(connection, what); }, frame);
}

void AggregatorProcess::Do(aggregator::AcceptStream& accept) {
  const ConnectionId connection = ConnectionOf(accept.stream);
  world_.network[connection].session = accept.session;
  world_.network.SendDown(connection, OpenAccepted{});
}

void AggregatorProcess::Do(aggregator::CloseStream& close) {
  world_.network.CloseByAggregator(ConnectionOf(close.stream));
}

void AggregatorProcess::Do(aggregator::SendFrame& send) {
  const auto kept = kept_.find(send.frame);
  if (kept == kept_.end()) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to send a frame that it does not keep."));
    return;
  }
  SendOn(send.stream, kept->second);
}

void AggregatorProcess::Do(aggregator::ForgetFrames& forget) {
  for (const aggregator::FrameId frame : forget.frames) kept_.erase(frame);
}

void AggregatorProcess::Do(aggregator::ReleaseResult& release) {
  if (world_.PlantedNow(PlantedBug::kForgetToFree)) return;
  const RoundKey key{release.job, release.lane, release.round};
  const auto it = rounds_.find(key);
  const uint64_t places = PlacesOf(release.range);
  if (it == rounds_.end() || (it->second.results & places) != places) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to free a result that it lacks."));
    return;
  }
  result_bytes_ -= BytesOf(it->second, places);
  it->second.results &= ~places;
}

void AggregatorProcess::Do(aggregator::RelayResult& relay) {
  if (frame_ == nullptr || frame_->kind != aggregator::FrameKind::kSupply ||
      !Covers(frame_->range, relay.range)) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to relay a result that did not arrive."));
    return;
  }
  ResultFrame frame{relay.lane, relay.round, relay.ballot, relay.range, {}};
  for (uint32_t i = 0; i < relay.range.count; ++i) {
    frame.chunks.push_back(frame_->chunks[relay.range.first + i - frame_->range.first]);
  }
  Send(relay.route, std::move(frame));
}

void AggregatorProcess::Do(aggregator::EndRound& end) {
  const RoundKey key{end.job, end.lane, end.round};
  const auto it = rounds_.find(key);
  if (it == rounds_.end() || world_.PlantedNow(PlantedBug::kForgetToFree)) return;
  for (const Parked& parked : it->second.parked) {
    parked_bytes_ -= BytesOf(it->second, parked.present);
  }
  result_bytes_ -= BytesOf(it->second, it->second.results);
  for (Reduction& reduction : reductions_) {
    const aggregator::Reduce& what = reduction.what;
    if (reduction.done || RoundKey{what.job, what.lane, what.round} != key) continue;
    if (what.ballot == it->second.ballot) --reducing_;
  }
  rounds_.erase(it);
}

void AggregatorProcess::Do(aggregator::RelayValue& relay) {
  if (value_frame_ == nullptr) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to relay a value that did not arrive."));
    return;
  }
  if (relay.cache) {
    cache_[{relay.key.lane, relay.key.tensor, relay.key.version}] = value_frame_->content;
  }
  ValueFrame frame{relay.key, relay.first, relay.count, value_frame_->content};
  Send(relay.route, std::move(frame));
}

void AggregatorProcess::Do(aggregator::SendValue& send) {
  const auto cached = cache_.find({send.key.lane, send.key.tensor, send.key.version});
  if (cached == cache_.end()) {
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " was asked to send a value that it lacks."));
    return;
  }
  Send(send.route, ValueFrame{send.key, send.first, send.count, cached->second});
}

void AggregatorProcess::Do(aggregator::DropValue& drop) {
  cache_.erase({drop.key.lane, drop.key.tensor, drop.key.version});
}

void AggregatorProcess::Do(aggregator::SaveState& save) {
  const uint32_t number = static_cast<uint32_t>(saves_.size());
  saves_.push_back(std::move(save));
  world_.queue.After(world_.random.Between(100, 5000), Happening::kSaved, index_, number);
}

void AggregatorProcess::Do(aggregator::Note& note) {
  ++world_.coverage.notes[static_cast<uint32_t>(note.kind)];
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat(aggregator::NoteKindName(note.kind),
                        note.worker.empty() ? "" : absl::StrCat(" ", note.worker),
                        note.lane.empty() ? "" : absl::StrCat(" ", note.lane), ": ", note.text);
  });
  recovering_ |= note.kind == NoteKind::kRecovering || note.kind == NoteKind::kRecovered;
  refused_ |= note.kind == NoteKind::kWorkerRefused;
  if (note.kind == NoteKind::kRecovered) ForgetUnlisted();
  if (note.kind == NoteKind::kRecovering) {  // What it knew before has to be explained.
    ++recoveries_;
    orphaned_ = Recovered();
    heard_.clear();
  }
  // An operator or the policy said to go on without, or nobody was left who remembers.
  const auto says = [&](const char* words) { return note.text.find(words) != std::string::npos; };
  if (note.kind == NoteKind::kRecovered &&
      (says("without the missing workers") || says("The run is new"))) {
    orphaned_ = Knowledge();
  }
  const aggregator::Job* job = core().FindJob(kJobName);
  world_.Noted(note, job == nullptr ? core().config().term : job->term());
}

void AggregatorProcess::Do(aggregator::Drained&) { world_.ServiceDrained(*this); }

// The core names lanes by index; the checker by their place in the model. As the workers were told.
// The core may have given the number to another lane in the same step.
std::optional<uint32_t> AggregatorProcess::ModelOf(LaneIndex lane) const {
  const auto name = models_.find(lane);
  if (name == models_.end()) return std::nullopt;
  return world_.LaneByName(name->second);
}

std::string AggregatorProcess::Explain() const {
  if (job() == nullptr) return absl::StrCat(name(), " knows no job");
  std::string text = absl::StrCat(name(), ": job is ", aggregator::JobStateName(job()->state()),
                                  " (", job()->reason(), ")", job()->Paused() ? ", paused" : "");
  const aggregator::Workers& workers = job()->workers();
  for (aggregator::Slot slot = 0; slot < workers.size(); ++slot) {
    absl::StrAppend(&text, slot == 0 ? "; workers: " : ", ", workers[slot].id, " ",
                    aggregator::WorkerStateName(workers[slot].state),
                    workers[slot].connected() ? "" : " disconnected");
  }
  for (const aggregator::Lane& lane : job()->lanes()) {
    absl::StrAppend(&text, "; ", lane.name, " round ", lane.next, " ");
    if (!lane.round.has_value()) {
      absl::StrAppend(&text, "is not open");
    } else {
      absl::StrAppend(&text, "waits for ", lane.round->WaitsFor(lane.layout));
    }
  }
  return text;
}

}  // namespace basin::simulation
