// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/aggregator_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/round_waits.h"
#include "tests/simulation/world.h"
#include "tests/world/receivers.h"

namespace basin::simulation {
namespace {

using aggregator::NoteCause;
using aggregator::NoteKind;

constexpr uint64_t BitOf(NoteKind kind) { return uint64_t{1} << static_cast<uint32_t>(kind); }

// A session may end only with one of these notes.
constexpr uint64_t kEndsSession =
    BitOf(NoteKind::kWorkerRefused) | BitOf(NoteKind::kLineageConflict) |
    BitOf(NoteKind::kWorkerLost) | BitOf(NoteKind::kWorkerSuperseded) |
    BitOf(NoteKind::kWorkerLeft) | BitOf(NoteKind::kWorkerReconnected) |
    BitOf(NoteKind::kJobRefused) | BitOf(NoteKind::kJobEnded) | BitOf(NoteKind::kSteppedDown);

// A data stream has the number of its connection + 1, because none may be 0.
aggregator::StreamId StreamOf(ConnectionId connection) {
  return aggregator::StreamId{connection} + 1;
}
ConnectionId ConnectionOf(aggregator::StreamId stream) {
  return static_cast<ConnectionId>(stream - 1);
}

}  // namespace

AggregatorProcess::AggregatorProcess(World& world, uint32_t index, aggregator::Config config)
    : Base(std::move(config), ToAbsl(world.queue.now())),
      world_(world),
      index_(index),
      ticker_(world.queue, Happening::kAggregatorTimer, index) {
  if (core().config().state_file && world.state_file.has_value()) {
    lists_[WorkerId()] = world.state_file->membership;
  }
}

std::string AggregatorProcess::name() const { return absl::StrCat("agg", index_); }

const aggregator::Job* AggregatorProcess::job() const { return core().FindJob(kJobName); }

// ---- events

void AggregatorProcess::Arrive(ConnectionId connection, Item item) {
  if (auto* open = std::get_if<OpenRequest>(&item)) return OnOpen(connection, *open);
  if (std::holds_alternative<Closing>(item)) return SeesClose(connection);
  if (auto* message = std::get_if<ToAggregator>(&item)) return OnMessage(connection, *message);
  if (auto* frame = std::get_if<PushFrame>(&item)) return OnPush(connection, *frame);
  if (auto* frame = std::get_if<BlobFrame>(&item)) {
    return Base::Arrive(world_.network[connection].session, *frame, *this);
  }
  if (auto* batched = std::get_if<BatchedFrame>(&item)) {
    if (!world_.network[batched->stream].aggregator_open) return;  // Lost with its stream.
    if (auto* frame = std::get_if<PushFrame>(&batched->frame)) OnPush(batched->stream, *frame);
  }
}

void AggregatorProcess::OnOpen(ConnectionId id, const OpenRequest& request) {
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
    waiting_.erase(connection.session);
    return Step(aggregator::SessionClosed{connection.session});
  }
  const uint64_t before = core_.delivery().resent();
  Step(aggregator::StreamLost{StreamOf(id)});
  if (core_.delivery().resent() > before) world_.coverage.Saw(Sight::kResultResent);
}

void AggregatorProcess::OnMessage(ConnectionId id, ToAggregator& message) {
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
  if (hello != nullptr && world_.scenario.calls > 0) {
    std::map<std::string, Remembered>& remembered = remembered_[worker];
    remembered.clear();
    for (const LaneHistory& lane : hello->lanes) {
      const std::optional<Life> life = world_.LifeIn(connection.worker, lane.name);
      if (!life.has_value()) continue;
      remembered[lane.name] = {lane.lane, lane.last_verdict, lane.chain, *life};
    }
  }
  recovering_ = refused_ = false;
  if (hello != nullptr) world_.Notice(Trigger::kHello, connection.worker, index_);
  if (!alive_) return;
  Step(aggregator::MessageReceived{connection.session, std::move(message)});
  if (hello == nullptr || (refused_ && !remembers)) return;
  if (remembers && !before && (recovering_ || recovering())) {
    orphaned_ = Knowledge();
    knowledge_.clear();
  } else if (!before) {
    return;
  }
  // The last hello of a worker counts: a process without memory replaces what the earlier one knew.
  Knowledge& knowledge = knowledge_[worker];
  knowledge = Knowledge();
  if (remembers) world_.checker.AddKnowledge(connection.worker, knowledge);
}

Knowledge AggregatorProcess::Recovered() const {
  Knowledge all = orphaned_;
  for (const auto& [id, knowledge] : knowledge_) all.Add(knowledge);
  return all;
}

// Removes the knowledge that cannot decide a recovery. A worker that is not in the newest list of
// members does not count: another aggregator knew what it had staged and made the list without it.
// Neither do the staged values of a worker that staged another value for a round whose verdict was
// received: it belongs to a lineage that has lost, and joins anew.
void AggregatorProcess::ForgetOutvoted() {
  Membership newest;
  for (const auto& [id, membership] : lists_) {
    if (newest.generation < membership.generation) newest = membership;
  }
  for (auto it = knowledge_.begin(); it != knowledge_.end();) {
    const bool listed =
        std::find(newest.members.begin(), newest.members.end(), it->first) != newest.members.end();
    it = listed ? std::next(it) : knowledge_.erase(it);
  }
  lists_.clear();
  Knowledge all;
  for (const auto& [id, knowledge] : knowledge_) all.Add(knowledge);
  for (auto& [id, knowledge] : knowledge_) {
    if (world_.checker.Contradicts(all, knowledge)) knowledge.staged.clear();
  }
}

void AggregatorProcess::OnPush(ConnectionId id, const PushFrame& frame) {
  Network::Connection& connection = world_.network[id];
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("<- p", connection.worker, " ", Narrate(frame)); });
  Base::Arrive(connection.session, frame, *this);
}

void AggregatorProcess::Timer() {
  if (!ticker_.Comes(core_.NextDeadline())) return;
  if (!ticker_.spins()) return Step(aggregator::Tick{});
  world_.checker.Fail(Invariant::kContract,
                      absl::StrCat(name(),
                                   " asks for a tick at a time that has passed, again "
                                   "and again."));
}

void AggregatorProcess::Reduced(uint32_t number) {
  const auto reduction = reductions_.extract(number);
  if (!shell_.IsLive(reduction.mapped())) world_.coverage.Saw(Sight::kStaleReduction);
  Step(shell_.Finish(reduction.mapped()));
}

void AggregatorProcess::Saved(uint32_t number) {
  const aggregator::SaveState& save = saves_[number];
  const bool ok = !world_.TakeStateFileFailure();
  if (ok) world_.state_file = {save.run, save.term, save.membership};
  Step(aggregator::StateSaved{save.job, save.membership.generation, ok});
}

// ---- shards

bool AggregatorProcess::HasShard(uint32_t index, uint32_t generation) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const auto& entry) {
    return entry.second.index == index && entry.second.generation == generation;
  });
}

void AggregatorProcess::TakeShard(ShardProcess& shard) {
  LoseShard(shard.index());
  if (!alive_) return;
  const ShardId id = ++last_shard_;
  shard.Linked(index_, id);
  shards_[id] = LinkedShard{shard.index(), shard.generation(), {}};
  Step(aggregator::ShardUp{id, shard.name(), ShardProcess::EndpointOf(shard.index()),
                           world_.scenario.shard_memory.at(shard.index())});
}

void AggregatorProcess::LoseShard(uint32_t index) {
  const auto found = std::find_if(shards_.begin(), shards_.end(), [index](const auto& entry) {
    return entry.second.index == index;
  });
  if (found == shards_.end()) return;
  const ShardId id = found->first;
  shards_.erase(found);
  const auto known = core().shards().find(id);
  if (known != core().shards().end() && known->second.drains_since.has_value()) {
    world_.coverage.Saw(Sight::kDrainOverdue);
  }
  struct Before {
    RoundPhase phase;
    uint64_t attempt;
    uint64_t parked;
  };
  std::map<LaneIndex, Before> before;
  if (job() != nullptr) {
    for (const aggregator::Lane& lane : job()->lanes) {
      if (!lane.round.has_value()) continue;
      before[lane.index] = {lane.round->phase(), lane.round->ballot.attempt,
                            lane.round->parked_bytes()};
    }
  }
  Step(aggregator::ShardLost{id, "its connection was lost."});
  if (!alive_ || job() == nullptr) return;
  for (const auto& [index, was] : before) {
    if (!job()->lanes.Has(index) || !job()->lanes[index].round.has_value()) continue;
    const aggregator::Round& round = *job()->lanes[index].round;
    const bool prepared = was.phase == RoundPhase::kPrepared;
    const bool restarted = round.ballot.attempt > was.attempt;
    if (prepared && restarted) world_.coverage.Saw(Sight::kValueLost);
    if (prepared && !restarted && !round.supplies.empty()) {
      world_.coverage.Saw(Sight::kPreparedLost);
    }
    if (!prepared && restarted) world_.coverage.Saw(Sight::kContributorLost);
    if (round.attempt.AnyRedone()) world_.coverage.Saw(Sight::kResultsLost);
    if (!prepared && round.parked_bytes() < was.parked) world_.coverage.Saw(Sight::kParkedLost);
  }
}

void AggregatorProcess::EndReleased(ShardId id) {
  world_.coverage.Saw(Sight::kShardReleased);
  shards_.erase(id);
  Step(aggregator::ShardLost{id, "It was released."});
  for (const aggregator::Action& action : actions_) {
    if (std::holds_alternative<aggregator::Note>(action)) continue;
    world_.checker.Fail(Invariant::kContract,
                        absl::StrCat(name(), " released shard ", id, ", and it was needed."));
  }
}

void AggregatorProcess::FromShard(ShardProcess& shard, uint32_t generation) {
  std::optional<simulation::FromShard> what = shard.Take(generation);
  if (!what.has_value()) return;
  if (auto* frame = std::get_if<ShardFrame>(&*what)) {
    world_.coverage.Saw(Sight::kPlaced);
    answers_ = {frame->event.shard, frame->number};
    const ShardId id = frame->event.shard;
    Step(std::move(frame->event));
    // The frame is answered, even if nothing becomes of it.
    if (answers_.has_value() && alive_) {
      const auto found = shards_.find(id);
      if (found != shards_.end()) shard.SendDown(generation, ToShard{answers_->second, {}});
    }
    answers_.reset();
  } else if (auto* done = std::get_if<aggregator::ReduceDone>(&*what)) {
    Step(std::move(*done));
  } else if (auto* opened = std::get_if<aggregator::StreamOpened>(&*what)) {
    Step(*opened);
  } else if (auto* draining = std::get_if<aggregator::ShardDraining>(&*what)) {
    Step(*draining);
  } else {
    Step(std::get<aggregator::StreamLost>(*what));
  }
}

void AggregatorProcess::Route(aggregator::Action& action) {
  const world::Receivers receivers = world::ReceiversOf(action);
  for (auto& [id, shard] : shards_) {
    if (receivers.Has(id)) shard.batch.actions.push_back(action);
  }
  if (receivers.Has(kCoordinatorShard)) CarryOut(action, *this);
}

void AggregatorProcess::SendToShards() {
  for (auto& [id, shard] : shards_) {
    if (answers_.has_value() && answers_->first == id) {
      shard.batch.frame = answers_->second;
      answers_.reset();
    } else if (shard.batch.actions.empty()) {
      continue;
    }
    world_.shard(shard.index).SendDown(shard.generation, std::exchange(shard.batch, ToShard{}));
  }
}

void AggregatorProcess::Command(const aggregator::Event& event) { Step(event); }

void AggregatorProcess::HearsNothing(aggregator::SessionId session, SimTime unheard) {
  constexpr uint32_t kMany = 100;
  const bool open = sessions_.count(session) > 0;
  Step(aggregator::SessionsUnheard{{{session, absl::Microseconds(unheard), kMany}}});
  if (open && sessions_.count(session) == 0) world_.coverage.Saw(Sight::kUnreachable);
}

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
  for (const auto& [id, shard] : shards_) {
    if (world_.shard(shard.index).generation() == shard.generation) {
      world_.shard(shard.index).CutLink();
    }
  }
  shards_.clear();
  if (verdicts_in_step_ > 0) world_.coverage.Saw(Sight::kCrashBetweenVerdicts);
}

// ---- the core and its actions

void AggregatorProcess::Step(const aggregator::Event& event) {
  if (world_.checker.failed()) return;
  ++world_.coverage.steps;
  actions_.clear();
  verdicts_in_step_ = 0;
  const absl::Time now = ToAbsl(world_.queue.now());
  Decide(event, now, actions_);
  if (world_.scenario.calls > 0) FollowLives();
  if (job() != nullptr) world_.table_rows.See(*job());
  if (const char* table = world_.table_rows.Refused(); table != nullptr) {
    return Require(absl::InternalError(
        absl::StrCat("a machine was given an input that the table of a ", table, " lacks")));
  }
  if (const std::string wrong = Wrong(actions_, now); !wrong.empty()) {
    return Require(absl::InternalError(wrong));
  }
  if (actions_.empty()) {
    ticker_.Plan(core_.NextDeadline());
    return;
  }
  // The list is local, because a fault between two actions may end this process.
  std::vector<aggregator::Action> actions = std::exchange(actions_, {});
  Check(actions);
  for (aggregator::Action& action : actions) {
    if (!alive_ || world_.checker.failed()) return;
    world_.trace.Fold(action.index());
    if (Allows(action)) Route(action);
  }
  if (alive_) SendToShards();
  std::vector<ShardId> released;
  for (const aggregator::Action& action : actions) {
    const auto* release = std::get_if<aggregator::ReleaseShard>(&action);
    if (release == nullptr) continue;
    released.push_back(release->shard);
    const auto linked = shards_.find(release->shard);
    if (linked == shards_.end() || job() == nullptr) continue;
    world_.shard(linked->second.index).given_up =
        job()->placements.Excludes(release->shard) ||
        !core().shards().at(release->shard).too_small.empty();
  }
  const bool reducing =
      std::any_of(reductions_.begin(), reductions_.end(),
                  [this](const auto& reduction) { return shell_.IsLive(reduction.second); });
  const uint64_t accumulator = reducing ? aggregator::kWidening * core().config().frame_bytes : 0;
  const uint64_t held = held_bytes() + accumulator;
  if (held > core().config().memory_bytes) {
    world_.checker.Fail(
        Invariant::kBoundedBytes,
        absl::StrCat(name(), " holds ", held, " bytes (", shell_.parked_bytes(), " parked, ",
                     shell_.result_bytes(), " of results, ", accumulator,
                     " accumulating), and its budget is ", core().config().memory_bytes, "."));
  }
  // Those of shards are on their way.
  if (alive_ && shards_.empty() && shell_.frames() != core_.delivery().frames()) {
    world_.checker.Fail(Invariant::kBoundedBytes,
                        absl::StrCat(name(), " keeps ", shell_.frames(), " frames, and ",
                                     core_.delivery().frames(), " may still be asked of it."));
  }
  if (alive_) CheckLedgers();
  if (alive_ && verdicts_in_step_ > 0) CheckSamples();
  actions_ = std::move(actions);
  ticker_.Plan(core_.NextDeadline());
  for (const ShardId shard : released) {
    if (alive_) EndReleased(shard);
  }
}

void AggregatorProcess::CheckLedgers() {
  if (job() == nullptr) return;
  for (const aggregator::Lane& lane : job()->lanes) {
    if (lane.ledger.held_bytes() <= lane.ledger_bytes) continue;
    world_.checker.Fail(
        Invariant::kBoundedBytes,
        absl::StrCat(name(), ", lane ", lane.name, ": the ledger of samples takes ",
                     lane.ledger.held_bytes(), " bytes, and is charged ", lane.ledger_bytes, "."));
  }
}

void AggregatorProcess::CheckSamples() {
  if (job() == nullptr) return;
  for (const aggregator::Lane& lane : job()->lanes) {
    const aggregator::SampleLedger& ledger = lane.ledger;
    // An open round may still count what a lost worker held.
    if (!ledger.epoch().exists() || lane.round.has_value()) continue;
    uint64_t known = ledger.committed() + ledger.free();
    for (aggregator::Slot slot = 0; slot < job()->workers.size(); ++slot) {
      const aggregator::Worker& worker = job()->workers[slot];
      if (worker.state != aggregator::WorkerState::kMember) continue;
      known += ledger.HeldBy(worker.incarnation).count();
    }
    if (known == ledger.epoch().samples) continue;
    world_.checker.Fail(Invariant::kSamples,
                        absl::StrCat(name(), ", lane ", lane.name, ": of ", ledger.epoch().samples,
                                     " samples of epoch ", ledger.epoch().number, ", ", known,
                                     " are committed, held by a live worker, or free."));
  }
}

// I7: every refusal, every removal and every abort has a note with a reason.
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
    const Scenario& scenario = world_.scenario;
    const bool full = scenario.calls == 0 && scenario.config.max_lanes < scenario.lanes.size();
    if (full && std::holds_alternative<aggregator::IdleLane>(action)) {
      world_.coverage.Saw(Sight::kMadeRoom);
    }
    if (const auto* end = std::get_if<aggregator::EndSession>(&action)) {
      if (end->error.code != ErrorCode::kUnavailable) {  // It refuses nobody: the client returns.
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
      if (rejected->error.code != ErrorCode::kPaused) {  // It only ends a wait.
        // On a new session it repeats what was noted earlier.
        require(BitOf(NoteKind::kContributionRejected) | BitOf(NoteKind::kWorkerRefused) |
                    BitOf(NoteKind::kLineageConflict) | BitOf(NoteKind::kWorkerReconnected),
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
    const auto* told = send_all == nullptr ? nullptr : std::get_if<Verdict>(&message);
    if (told == nullptr) continue;
    for (const Contributor& contributor : told->record.value.contributors) {
      if (contributor.deferred == 0) continue;
      require(BitOf(NoteKind::kContributionDeferred), "has counted what was late");
    }
  }
}

bool AggregatorProcess::Allows(const aggregator::Action& action) {
  if (const auto* reduce = std::get_if<aggregator::Reduce>(&action)) return Allows(*reduce);
  const bool frees = std::holds_alternative<aggregator::ReleaseResult>(action) ||
                     std::holds_alternative<aggregator::EndRound>(action);
  return !frees || !world_.PlantedNow(PlantedBug::kForgetToFree);
}

bool AggregatorProcess::Allows(const aggregator::Reduce& reduce) {
  world_.Notice(Trigger::kReduce, kNobody, index_);
  const auto* attempt = shell_.AttemptOf(reduce.job, reduce.lane, reduce.round);
  if (!alive_ || attempt == nullptr) return alive_;
  const bool present = attempt->spec.denominator == Denominator::kPresent;
  uint64_t counted = 0;
  for (const Contributor& contributor : attempt->contributors) {
    counted += contributor.ranks + contributor.deferred;
  }
  for (const uint32_t position : reduce.skipped) {
    const Contributor& skips = attempt->contributors[position];
    if (present) counted -= skips.ranks + skips.deferred;
  }
  if (reduce.divisor == (attempt->spec.op == ReduceOp::kAverage ? counted : 1)) return true;
  world_.checker.Fail(Invariant::kOneSet,
                      absl::StrCat(name(), " was asked to divide by ", reduce.divisor, " for ",
                                   attempt->contributors.size(), " contributors of which ",
                                   reduce.skipped.size(), " skip."));
  return false;
}

void AggregatorProcess::Do(aggregator::Send& send) {
  const auto it = sessions_.find(send.session);
  if (it == sessions_.end()) return;
  const uint32_t worker = world_.network[it->second].worker;
  ++world_.coverage.to_worker[send.message.index()];
  world_.Narrate(Detail::kAll, name(),
                 [&] { return absl::StrCat("-> p", worker, " ", Narrate(send.message)); });
  if (auto* verdict = std::get_if<Verdict>(&send.message)) {
    if (const auto lane = LifeAt(verdict->lane); lane.has_value()) {
      world_.checker.OnVerdictSent(index_, recoveries_, *lane, verdict->record, Recovered());
    }
    ++verdicts_in_step_;
    world_.Notice(Trigger::kVerdict, worker, index_);
  } else if (auto* welcome = std::get_if<Welcome>(&send.message)) {
    for (const LaneLayout& layout : welcome->layouts) Tell(it->second, layout);
    for (const LastVerdicts& last : welcome->verdicts) {
      const auto lane = LifeAt(last.lane);
      if (!lane.has_value()) continue;
      for (const VerdictRecord& record : last.verdicts) {
        world_.checker.OnVerdictSent(index_, recoveries_, *lane, record, Recovered());
      }
    }
    world_.Notice(Trigger::kWelcome, worker, index_);
  } else if (auto* layout = std::get_if<LaneLayout>(&send.message)) {
    Tell(it->second, *layout);
  } else if (auto* prepared = std::get_if<Prepared>(&send.message)) {
    if (prepared->ballot != prepared->value_ballot) {
      world_.coverage.Saw(prepared->value.outcome == Outcome::kCommitted ? Sight::kAdoptedCommitted
                                                                         : Sight::kAdoptedAborted);
    }
    world_.Notice(Trigger::kPrepared, worker, index_);
  } else if (const auto* leased = std::get_if<SamplesLeased>(&send.message)) {
    for (aggregator::Slot slot = 0; slot < job()->workers.size(); ++slot) {
      const aggregator::Worker& lessee = job()->workers[slot];
      if (lessee.session != send.session) continue;
      const aggregator::Lane& lane = job()->lanes[leased->lane];
      if (const auto life = LifeAt(leased->lane); life.has_value()) {
        world_.checker.LeaseSent(
            worker, *life,
            {lane.next, lane.ledger.epoch().number, lane.ledger.HeldBy(lessee.incarnation).Runs()});
      }
    }
  } else if (std::holds_alternative<Credit>(send.message) &&
             world_.PlantedNow(PlantedBug::kLoseAck)) {
    return;
  }
  if (!alive_) return;
  const auto again = sessions_.find(send.session);
  if (again == sessions_.end()) return;
  if (send.can_wait) {
    waiting_[send.session].push_back(std::move(send.message));
    return;
  }
  Flush(send.session);
  world_.network.SendDown(again->second, std::move(send.message));
}

void AggregatorProcess::Do(aggregator::SendAll& send) {
  for (const aggregator::SessionId session : send.sessions) {
    if (!alive_) return;  // The verdict was sent to only some.
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
  Flush(end.session);
  world_.network.SendDown(it->second, ToWorker(Ended{std::move(end.error)}));
  world_.network.CloseByAggregator(it->second);
  sessions_.erase(it);
}

void AggregatorProcess::Require(const absl::Status& status) {
  if (status.ok()) return;
  world_.checker.Fail(Invariant::kContract,
                      absl::StrCat(name(), " breaks the contract: ", status.message(), "."));
}

void AggregatorProcess::Started(Reduction reduction) {
  PlantIn(reduction);
  const uint32_t number = ++last_reduction_;
  reductions_.emplace(number, std::move(reduction));
  const SimTime delay = world_.scenario.slow_reducer ? world_.random.Between(1, 30) * kMillisecond
                                                     : world_.random.Between(20, 400);
  world_.queue.After(delay, Happening::kReduced, index_, number);
}

void AggregatorProcess::PlantIn(Reduction& reduction) {
  const uint64_t times = world_.PlantedNow(PlantedBug::kCountTwice) ? 2
                         : world_.PlantedNow(PlantedBug::kLeaveOut) ? 0
                                                                    : 1;
  const uint64_t other = world_.PlantedNow(PlantedBug::kStaleBytes) ? 1 : 0;
  for (Chunk& chunk : reduction.result) {
    chunk.mask *= times;
    chunk.content = times * chunk.content + other;
  }
}

// A fault between two frames may end this process.
void AggregatorProcess::SendOn(aggregator::StreamId stream, const Frame& frame) {
  if (!alive_) return;
  const ConnectionId connection = ConnectionOf(stream);
  if (const auto* result = std::get_if<ResultFrame>(&frame)) {
    world_.Notice(Trigger::kResult, world_.network[connection].worker, index_);
    if (!alive_) return;
    world_.Narrate(Detail::kAll, name(), [&] {
      return absl::StrCat("-> p", world_.network[connection].worker, " ", Narrate(*result),
                          " session ", world_.network[connection].session);
    });
  }
  const auto session = sessions_.find(world_.network[connection].session);
  const auto* result = std::get_if<ResultFrame>(&frame);
  if (result != nullptr && session != sessions_.end() && world_.DrawBatched()) {
    Flush(session->first);
    world_.network.SendDown(session->second, BatchedFrame{connection, *result});
  } else {
    std::visit([&](const auto& what) { world_.network.SendDown(connection, what); }, frame);
  }
}

void AggregatorProcess::Flush(aggregator::SessionId session) {
  const auto found = waiting_.find(session);
  if (found == waiting_.end()) return;
  for (ToWorker& message : found->second) {
    world_.network.SendDown(sessions_.at(session), std::move(message));
  }
  waiting_.erase(found);
}

void AggregatorProcess::Do(aggregator::AcceptStream& accept) {
  const ConnectionId connection = ConnectionOf(accept.stream);
  world_.network[connection].session = accept.session;
  world_.network.SendDown(connection, OpenAccepted{});
}

void AggregatorProcess::Do(aggregator::CloseStream& close) {
  world_.network.CloseByAggregator(ConnectionOf(close.stream));
}

void AggregatorProcess::Do(aggregator::SaveState& save) {
  const uint32_t number = static_cast<uint32_t>(saves_.size());
  saves_.push_back(std::move(save));
  world_.queue.After(world_.random.Between(100, 5000), Happening::kSaved, index_, number);
}

void AggregatorProcess::Do(aggregator::Note& note) {
  ++world_.coverage.notes[static_cast<uint32_t>(note.kind)];
  if (note.kind == NoteKind::kFrameRefused && absl::StartsWith(note.text, "Chunks arrived at a")) {
    world_.coverage.Saw(Sight::kMisplaced);
  }
  world_.Narrate(Detail::kNotable, name(), [&] {
    return absl::StrCat(aggregator::NoteKindName(note.kind),
                        note.worker.empty() ? "" : absl::StrCat(" ", note.worker),
                        note.lane.empty() ? "" : absl::StrCat(" ", note.lane), ": ", note.text);
  });
  recovering_ |= note.kind == NoteKind::kRecovering || note.kind == NoteKind::kRecovered;
  refused_ |= note.kind == NoteKind::kWorkerRefused || note.kind == NoteKind::kLineageConflict;
  if (note.kind == NoteKind::kRecovered) ForgetOutvoted();
  if (note.kind == NoteKind::kRecovering) {  // The recovery must explain what it knew.
    ++recoveries_;
    orphaned_ = Recovered();
    knowledge_.clear();
  }
  // An operator or the policy went on without the missing workers, or no worker remembered the run.
  if (note.cause == NoteCause::kGoesOnWithoutMissing || note.cause == NoteCause::kNewRun) {
    orphaned_ = Knowledge();
  }
  const aggregator::Job* job = core().FindJob(kJobName);
  world_.Noted(note, LifeNamed(note.lane), job == nullptr ? core().config().term : job->term);
}

void AggregatorProcess::Do(aggregator::Drained&) { world_.ServiceDrained(*this); }

// ---- the lives of lanes. The core names lanes by index, the checker by their lives.

void AggregatorProcess::FollowLives() {
  bool recovers = job() != nullptr && (job()->state() == aggregator::JobState::kRecovering ||
                                       job()->state() == aggregator::JobState::kHalted);
  for (const aggregator::Action& action : actions_) {
    const auto* note = std::get_if<aggregator::Note>(&action);
    if (note == nullptr) continue;
    recovers |= note->kind == NoteKind::kRecovering || note->kind == NoteKind::kRecovered;
  }
  if (recovers || job() == nullptr) {
    lives_.clear();
    let_go_.clear();
  }
  for (auto it = lives_.begin(); it != lives_.end();) {
    const auto& [index, followed] = *it;
    if (job()->lanes.Has(index)) {
      ++it;
      continue;
    }
    world_.checker.lives.LetGo(followed.life);
    let_go_.insert(world_.checker.lives.ModelOf(followed.life));
    it = lives_.erase(it);
  }
  if (job() == nullptr) return;
  for (const aggregator::Lane& lane : job()->lanes) {
    const auto [it, fresh] = lives_.emplace(lane.index, Followed{0, lane.next});
    Followed& followed = it->second;
    if (fresh) {
      const uint32_t model = *world_.LaneByName(lane.name);
      if (recovers) {
        followed.life = RecoveredLife(lane, model);
        world_.checker.lives.Recovered(followed.life);
      } else {
        followed.life = world_.checker.lives.Registered(model, let_go_.count(model) > 0);
      }
    }
    if (lane.next != followed.next && lane.next != followed.next + 1) {
      world_.checker.Fail(Invariant::kOneLife,
                          absl::StrCat(name(), ", lane ", lane.name, ": round ", lane.next,
                                       " comes after round ", followed.next, "."));
    }
    followed.next = lane.next;
  }
  if (!recovers) return;
  // It forgets the calls that only lost workers remember, so these names begin anew.
  for (const auto& [worker, lanes] : remembered_) {
    for (const auto& [lane, known] : lanes) {
      const uint32_t model = *world_.LaneByName(lane);
      const bool is_call = world_.scenario.lanes[model].kind == LaneKind::kCall;
      if (is_call && !job()->lanes.IndexOf(lane).has_value()) let_go_.insert(model);
    }
  }
}

Life AggregatorProcess::RecoveredLife(const aggregator::Lane& lane, uint32_t model) const {
  std::optional<Life> life;
  for (const auto& [worker, lanes] : remembered_) {
    const auto found = lanes.find(lane.name);
    if (found == lanes.end()) continue;
    const Remembered& known = found->second;
    if (known.last + 1 != lane.next || known.chain != lane.chain) continue;
    if (known.lane == lane.index) return known.life;
    life = known.life;  // Aggregators that did not know of each other gave it two indexes.
  }
  return life.value_or(world_.checker.lives.Latest(model));
}

Life AggregatorProcess::LifeOf(const LaneLayout& layout) const {
  if (const auto followed = lives_.find(layout.lane); followed != lives_.end()) {
    return followed->second.life;
  }
  return *world_.LaneByName(layout.name);
}

std::optional<Life> AggregatorProcess::LifeNamed(const std::string& name) const {
  const std::optional<uint32_t> model = world_.LaneByName(name);
  if (!model.has_value() || world_.scenario.calls == 0) return model;
  if (job() != nullptr) {
    const std::optional<LaneIndex> index = job()->lanes.IndexOf(name);
    if (index.has_value() && lives_.count(*index) > 0) return lives_.at(*index).life;
  }
  return world_.checker.lives.Latest(*model);
}

std::optional<Life> AggregatorProcess::LifeAt(LaneIndex lane) const {
  const auto found = told_.find(lane);
  return found == told_.end() ? std::nullopt : std::optional<Life>(found->second);
}

void AggregatorProcess::Tell(ConnectionId session, const LaneLayout& layout) {
  const Life life = LifeOf(layout);
  told_[layout.lane] = life;
  if (world_.scenario.calls > 0) world_.checker.lives.LaidOut(session, layout.lane, life);
}

std::string AggregatorProcess::Explain() const {
  if (job() == nullptr) return absl::StrCat(name(), " knows no job");
  std::string text = absl::StrCat(name(), ": job is ", aggregator::JobStateName(job()->state()),
                                  " (", job()->reason, ")", job()->Paused() ? ", paused" : "");
  const aggregator::Workers& workers = job()->workers;
  for (aggregator::Slot slot = 0; slot < workers.size(); ++slot) {
    absl::StrAppend(&text, slot == 0 ? "; workers: " : ", ", workers[slot].id, " ",
                    aggregator::WorkerStateName(workers[slot].state),
                    workers[slot].connected() ? "" : " disconnected");
  }
  for (const aggregator::Lane& lane : job()->lanes) {
    absl::StrAppend(&text, "; ", lane.name, " round ", lane.next, " ");
    if (!lane.round.has_value()) {
      absl::StrAppend(&text, "is not open");
    } else {
      absl::StrAppend(&text, "waits for ", aggregator::WaitsFor(*lane.round, lane.layout));
    }
  }
  return text;
}

}  // namespace basin::simulation
