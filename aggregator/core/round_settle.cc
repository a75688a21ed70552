// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round is settled: results are published, the value is prepared and staged, and members that
// lack bytes of it get them. The job sends the verdict.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round.h"
#include "aggregator/core/spec.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

void Add(std::optional<uint64_t>& total, const std::optional<uint64_t>& count) {
  if (!count.has_value() || !total.has_value()) {
    total.reset();
  } else {
    *total += *count;
  }
}

}  // namespace

// Sends reduced chunks to the receivers that know their tensors: in one frame to those that can
// take it, else in one frame for each tensor.
void Round::Publish(const RoundScope& scope, const ChunkRanges& ranges) {
  aggregator::Publish publish{
      scope.job, scope.lane, number_, ballot_, ranges, scope.layout.RangeBytes(ranges), {}};
  publish.sessions.reserve(roster_.receivers());
  std::vector<const Worker*> others;
  for (const RoundMember& member : roster_) {
    if (!member.is_sent_results()) continue;
    const Worker& worker = scope.workers[member.slot];
    if (!worker.connected()) continue;
    if (ranges.size() <= worker.frame_tensors &&
        worker.LayoutSeen(scope.lane) > ranges.back().tensor) {
      publish.sessions.push_back(*worker.session);
    } else if (ranges.size() > 1) {
      others.push_back(&worker);
    }
  }
  if (!publish.sessions.empty()) scope.actions.push_back(std::move(publish));
  if (others.empty()) return;
  for (const ChunkRange& range : ranges) {
    aggregator::Publish part{
        scope.job, scope.lane, number_, ballot_, {range}, scope.layout.RangeBytes(range), {}};
    for (const Worker* worker : others) {
      if (worker->LayoutSeen(scope.lane) > range.tensor) part.sessions.push_back(*worker->session);
    }
    if (!part.sessions.empty()) scope.actions.push_back(std::move(part));
  }
}

// REQUIRES: the worker is connected and knows the tensors, and `ranges` is in layout order.
void Round::PublishTo(const Worker& worker, const RoundScope& scope,
                      const std::vector<ChunkRange>& ranges) const {
  for (ChunkRanges& frame :
       scope.layout.Frames(ranges, scope.config.frame_bytes, worker.frame_tensors)) {
    const uint64_t bytes = scope.layout.RangeBytes(frame);
    scope.actions.push_back(aggregator::Publish{scope.job,
                                                scope.lane,
                                                number_,
                                                value_ballot_,
                                                std::move(frame),
                                                bytes,
                                                {*worker.session},
                                                true});
  }
}

// Sends a member the reduced chunks that it has not acknowledged.
void Round::PublishMissing(const RoundScope& scope, RoundMember& member) {
  const Worker& worker = scope.workers[member.slot];
  if (!worker.connected() || !member.is_sent_results()) return;
  RangeBuilder missing(scope.layout);
  const uint32_t seen = worker.LayoutSeen(scope.lane);
  for (uint32_t flat = 0; flat < attempt_.chunks(); ++flat) {
    if (!attempt_.IsReduced(flat) || member.reception.Has(flat)) continue;
    if (scope.layout.TensorOf(flat) < seen) missing.Add(flat);
  }
  PublishTo(worker, scope, missing.Take());
}

// The results reach the member another way: it is sent none, and none are held for it. Somebody
// must be sent them, or they would be lost as they are reduced.
void Round::SendNoResults(const RoundScope& scope, RoundMember& member) {
  if (!member.is_sent_results() || roster_.receivers() == 1) return;
  AcknowledgeAll(scope, member);
  member.reception.ForgetAll();  // It need not have them.
  roster_.SetWithoutResults(member, true);
}

// The member is sent results from now on. It gets those that are held for others; what it lacks of
// the rest it requests when the value is prepared.
void Round::SendResults(const RoundScope& scope, RoundMember& member) {
  if (!member.without_results) return;
  roster_.SetWithoutResults(member, false);
  uint32_t owed = 0;
  for (uint32_t flat = 0; flat < attempt_.chunks(); ++flat) {
    if (!attempt_.IsReduced(flat) || member.reception.Has(flat)) continue;
    if (held_.HoldForOneMore(flat)) {
      ++owed;
    } else {
      member.reception.HoldNot(flat);
    }
  }
  if (owed > 0) member.reception.Owe(owed, scope.now);
  PublishMissing(scope, member);
}

// If nobody else is sent results, the members that go without are sent them.
void Round::KeepAReceiver(const RoundScope& scope, const RoundMember& leaving) {
  if (roster_.receivers() != 1 || !leaving.is_sent_results()) return;
  for (RoundMember& member : roster_) {
    if (member.receives()) SendResults(scope, member);
  }
}

void Round::LayoutSeen(const RoundScope& scope, Slot slot, uint32_t before) {
  RoundMember& member = roster_.At(slot);
  if (!member.receives()) return;
  const Worker& worker = scope.workers[slot];
  RangeBuilder missing(scope.layout);
  for (uint32_t flat = scope.layout.FirstChunk(before);
       flat < scope.layout.FirstChunk(worker.LayoutSeen(scope.lane)); ++flat) {
    if (!member.is_sent_results()) break;
    if (attempt_.IsReduced(flat) && !member.reception.Has(flat)) missing.Add(flat);
  }
  PublishTo(worker, scope, missing.Take());
  if (phase() != RoundPhase::kPrepared || member.sent_prepared()) return;
  member.reception.NoteProgress(scope.now);
  TellPrepared(scope, member);
}

// A member has a result chunk, or will never need it.
void Round::Acknowledge(const RoundScope& scope, RoundMember& member, uint32_t flat) {
  // Otherwise an acknowledgement of a chunk that is not reduced yet would count later.
  if (!attempt_.IsReduced(flat) || !member.receives()) return;
  const bool collects = phase() == RoundPhase::kCollect;
  if (!member.reception.Take(flat, scope.now, collects)) return;
  if (!member.is_sent_results() || !held_.Take(flat)) return;
  held_.Release(scope.layout.SizeOf(flat));
  const TensorIndex tensor = scope.layout.TensorOf(flat);
  const ChunkRange range{tensor, flat - scope.layout.FirstChunk(tensor), 1};
  scope.actions.push_back(ReleaseResult{scope.job, scope.lane, number_, value_ballot_, range});
}

// The member has all results, or will never need them.
void Round::AcknowledgeAll(const RoundScope& scope, RoundMember& member) {
  for (uint32_t flat = 0; flat < attempt_.chunks(); ++flat) Acknowledge(scope, member, flat);
}

void Round::OnResultAck(const RoundScope& scope, Slot slot, const ResultAck& ack) {
  if (!(ack.ballot == value_ballot_)) return;  // An older attempt.
  RoundMember& member = roster_.At(slot);
  for (const ChunkRange& range : ack.ranges) {
    const uint32_t base = scope.layout.FirstChunk(range.tensor) + range.first;
    for (uint32_t i = 0; i < range.count; ++i) {
      Acknowledge(scope, member, base + i);
      // A client fetches a chunk once, and once more when the digest was wrong.
      if (supplies_.Got(base + i, slot)) {
        member.reception.Fetched(2 * attempt_.chunks(), scope.now);
      }
    }
  }
  Advance(scope);
}

RoundFacts Round::Facts(const RoundScope& scope) const {
  RoundFacts facts = attempt_.Facts(scope.layout);
  facts.totals = Counts{0, 0, 0};
  for (const RoundMember& member : roster_) {
    if (!member.contribution.counts()) continue;
    Add(facts.totals.samples, member.contribution.begin().counts.samples);
    Add(facts.totals.tokens, member.contribution.begin().counts.tokens);
    Add(facts.totals.micro_batches, member.contribution.begin().counts.micro_batches);
  }
  return facts;
}

void Round::TryPrepare(const RoundScope& scope) {
  if (phase() != RoundPhase::kCollect || !AnyoneAlive()) return;
  // In a pause, the next worker that joins would otherwise make this call alone.
  if (roster_.there() == 0) {
    PrepareAborted(scope, AbortCause::kNoContributor,
                   "no worker that takes part in the call is left");
    return;
  }
  if (scope.paused) return;
  if (roster_.contributors() == 0) {
    PrepareAborted(scope, AbortCause::kNoContributor, "no contributor is left");
    return;
  }
  if (!agreement_.made() || roster_.effective() < roster_.contributors() || !attempt_.idle())
    return;
  PrepareCommitted(scope);
}

// Each worker is in one contribution, so that the plan is no longer than the list of members; what
// claims otherwise is left out.
void Round::ReportPlan(const RoundScope& scope) {
  size_t named = value_.contributors.size();
  for (const RoundMember& member : roster_) {
    if (member.contribution.counts()) named += member.contribution.begin().reduced_with.size();
  }
  if (named > scope.config.max_workers) return;
  auto contributor = value_.contributors.begin();
  for (const RoundMember& member : roster_) {
    if (!member.contribution.counts()) continue;
    contributor->local_reduction = member.contribution.begin().local_reduction;
    contributor->reduced_with = member.contribution.begin().reduced_with;
    ++contributor;
  }
}

void Round::PrepareCommitted(const RoundScope& scope) {
  value_ = RoundValue{};
  value_.outcome = Outcome::kCommitted;
  value_.spec = Resolve(agreement_.spec(), roster_.trainers());
  value_.dropped = dropped_;
  value_.layout_version = scope.layout.version();
  value_.generation = scope.membership.generation;
  value_.world_size = scope.membership.members.trainers();
  value_.contract_version = kContractVersion;
  for (const RoundMember& member : roster_) {
    if (!member.contribution.counts()) continue;
    value_.contributors.push_back({member.id, member.incarnation, agreement_.WeightOf(member),
                                   member.contribution.commit().squared_norm,
                                   member.contribution.begin().trainers()});
  }
  ReportPlan(scope);
  value_.divisor = agreement_.Divisor(roster_);
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    const uint64_t divisor =
        agreement_.DivisorOf(roster_, tensor, attempt_.Skips(tensor), value_.divisor);
    if (divisor != value_.divisor) value_.tensor_divisors.push_back({tensor, divisor});
    if (divisor == 0) continue;
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      value_.digest += attempt_.DigestOf(flat);
    }
  }
  value_.facts = Facts(scope);
  value_.decision = DecisionOf(value_);
  Note prepared{NoteKind::kRoundPrepared,
                scope.job_name,
                "",
                scope.lane_name,
                number_,
                absl::StrCat("Round ", number_, " was reduced over ", DescribeContributors(value_),
                             ", ballot ", ToString(ballot_), ".")};
  if (straggler_.waited()) {
    prepared.waited_for = straggler_.worker;
    prepared.waited = straggler_.until - straggler_.since;
  }
  scope.actions.push_back(std::move(prepared));
  SendPrepared(scope, RoundInput::kReduced);
}

// Aborts the round. Only Job::EndLineage aborts rounds without this function, because no member is
// left to stage.
void Round::PrepareAborted(const RoundScope& scope, AbortCause cause, const std::string& reason) {
  value_ = RoundValue{};
  value_.outcome = Outcome::kAborted;
  value_.reason = reason;
  value_.abort_cause = cause;
  value_.layout_version = scope.layout.version();
  value_.decision = DecisionOf(value_);
  attempt_.Stop();
  held_.Clear();
  for (RoundMember& member : roster_) member.contribution.ForgetParked();
  AddNote(scope, NoteKind::kRoundPrepared, "",
          absl::StrCat("Round ", number_, " will be aborted: ", reason, "."));
  SendPrepared(scope, RoundInput::kAbort);
}

void Round::EndDeadlock(const RoundScope& scope, const std::string& reason) {
  for (RoundMember& member : roster_) {
    // Its trainer waits elsewhere and may never register this lane.
    const bool knows =
        member.contribution.begun() || scope.workers[member.slot].HasRegistered(scope.lane);
    if (knows || member.presence.state() == Presence::kAway) continue;
    roster_.Apply(member, PresenceInput::kLeaveOut);
  }
  PrepareAborted(scope, AbortCause::kDeadlock, reason);
}

// Returns whether the member may be asked to stage. A joiner that lacks the state must load the
// state before this round. If it staged first, the others could get the verdict, and the joiner
// would load a state that includes this round.
bool Round::MayStage(const RoundScope& scope, const RoundMember& member) const {
  if (!member.there() || !scope.stands) return false;
  const Worker& worker = scope.workers[member.slot];
  // Its client ignores messages about a lane that it has not registered.
  if (!worker.HasRegistered(scope.lane)) return false;
  const bool loads = !worker.holds_state && !worker.finishing;
  return !loads || value_.outcome != Outcome::kCommitted || scope.config.rules.stages_without_state;
}

// Sends Prepared at the current ballot to every member that may stage. The value's bytes are those
// of value_ballot_.
void Round::SendPrepared(const RoundScope& scope, RoundInput input) {
  if (!Apply(scope, input)) return;
  held_.NoteRoom();
  SendAll all;
  const bool aborted = value_.outcome == Outcome::kAborted;
  for (RoundMember& member : roster_) {
    // An aborted round has nothing left to take part in.
    if (aborted && member.presence.state() == Presence::kUndecided) {
      roster_.Apply(member, PresenceInput::kLeaveOut);
    }
    roster_.Apply(member, StagingInput::kPrepare);
    member.StartClock(scope.now);
    member.reception.ForgetFetched();
    member.named_late = false;
    if (!MayStage(scope, member)) continue;
    roster_.Apply(member, StagingInput::kAsk);
    const Worker& worker = scope.workers[member.slot];
    if (!member.alive() || !worker.connected()) continue;
    all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  all.message = Prepared{scope.lane, number_, ballot_, value_ballot_, value_};
  scope.actions.push_back(std::move(all));
}

void Round::TellPrepared(const RoundScope& scope, RoundMember& member) {
  if (!MayStage(scope, member)) return;
  roster_.Apply(member, StagingInput::kAsk);
  SendTo(scope, member, Prepared{scope.lane, number_, ballot_, value_ballot_, value_});
}

void Round::OnRegistered(const RoundScope& scope, Slot slot) {
  if (phase() != RoundPhase::kPrepared) return;
  RoundMember& member = roster_.At(slot);
  member.reception.StartClock(scope.now);
  member.named_late = false;
  TellPrepared(scope, member);
}

void Round::OnState(const RoundScope& scope, Slot slot) { MayStageNow(scope, roster_.At(slot)); }

void Round::OnStanding(const RoundScope& scope) {
  for (RoundMember& member : roster_) {
    if (member.alive()) MayStageNow(scope, member);
  }
}

// Asks the member to stage if nothing prevents it any more.
void Round::MayStageNow(const RoundScope& scope, RoundMember& member) {
  if (phase() != RoundPhase::kPrepared || member.sent_prepared()) return;
  member.reception.StartClock(scope.now);
  member.named_late = false;
  TellPrepared(scope, member);
}

void Round::OnStaged(const RoundScope& scope, Slot slot, const Staged& staged) {
  if (phase() != RoundPhase::kPrepared || !(staged.ballot == ballot_)) return;
  RoundMember& member = roster_.At(slot);
  roster_.Apply(member, StagingInput::kStage);
  member.holds = true;
  member.reception.ForgetFetched();
  member.StartClock(scope.now);
  if (!member.reception.HasAll()) AcknowledgeAll(scope, member);
  AskSupply(scope);
}

void Round::OnNeed(const RoundScope& scope, Slot slot, const Need& need) {
  if (phase() != RoundPhase::kPrepared || !(need.ballot == value_ballot_)) return;
  if (!TakesPart(slot)) return;
  const Worker& worker = scope.workers[slot];
  RangeBuilder held(scope.layout);
  std::set<uint32_t> flats;
  for (const ChunkRange& range : need.ranges) {
    const uint32_t base = scope.layout.FirstChunk(range.tensor) + range.first;
    for (uint32_t i = 0; i < range.count; ++i) flats.insert(base + i);
  }
  for (const uint32_t flat : flats) {
    if (attempt_.IsReduced(flat) && held_.Holds(flat)) {
      held.Add(flat);
    } else {
      supplies_.Want(flat, slot);
    }
  }
  PublishTo(worker, scope, held.Take());
  AskSupply(scope);
}

// Returns whether no live member can have all bytes of the value. The holders of an adopted value
// are known. The holders of another value are not, because a member may have staged it without
// having reported that; but all members that request a chunk lack it, and so does the aggregator.
bool Round::ValueIsLost() const {
  if (value_.outcome != Outcome::kCommitted) return false;
  if (adopted_.has_value()) {
    return std::none_of(roster_.begin(), roster_.end(),
                        [](const RoundMember& member) { return member.alive() && member.holds; });
  }
  return supplies_.SomethingIsLost(roster_);
}

bool Round::Orphaned() const {
  return adopted_.has_value() && phase() == RoundPhase::kPrepared && roster_.there() > 0 &&
         ValueIsLost();
}

// Requests the chunks that members lack from the first connected member that holds the value.
void Round::AskSupply(const RoundScope& scope) {
  if (phase() != RoundPhase::kPrepared || supplies_.empty()) return;
  if (!adopted_.has_value() && ValueIsLost()) {
    // Not every member has staged it, so its verdict was not sent.
    RunAgain(scope, "no worker with the prepared value is left");
    return;
  }
  for (const RoundMember& member : roster_) {
    if (!member.alive() || !member.holds || !scope.workers[member.slot].connected()) continue;
    RangeBuilder ranges(scope.layout);
    for (const uint32_t flat : supplies_.Ask(member.slot)) ranges.Add(flat);
    Supply supply{scope.lane, number_, value_ballot_, ranges.Take()};
    if (!supply.ranges.empty()) SendTo(scope, member, std::move(supply));
    return;
  }
}

void Round::OnSupply(const RoundScope& scope, Slot slot, const FrameReceived& frame) {
  if (phase() != RoundPhase::kPrepared || !(frame.ballot == value_ballot_)) return;
  if (!roster_.At(slot).holds) return;  // The chunks were not requested from it.
  std::set<Slot> wanting;
  for (const ChunkRange& range : frame.ranges) {
    const uint32_t base = scope.layout.FirstChunk(range.tensor) + range.first;
    for (uint32_t i = 0; i < range.count; ++i) {
      supplies_.Relay(base + i, wanting);
    }
  }
  const auto relay = [&](const ChunkRanges& ranges, uint64_t bytes, bool lists) {
    RelayResult whole{scope.job, scope.lane, number_, value_ballot_, ranges, bytes, {}};
    for (const Slot to : wanting) {
      const Worker& worker = scope.workers[to];
      if (!worker.connected() || (worker.frame_tensors >= frame.ranges.size()) != lists) continue;
      whole.sessions.push_back(*worker.session);
    }
    if (!whole.sessions.empty()) scope.actions.push_back(std::move(whole));
  };
  relay(frame.ranges, frame.bytes, true);
  if (frame.ranges.size() == 1) return;
  for (const ChunkRange& range : frame.ranges) {
    relay({range}, scope.layout.RangeBytes(range), false);
  }
}

void Round::Adopt(const RoundScope& scope, const StagedValue& staged,
                  const std::set<Slot>& holders) {
  if (!Apply(scope, RoundInput::kAdopt)) return;
  adopted_ = staged.ballot;
  value_ballot_ = staged.value_ballot;
  value_ = staged.value;
  for (RoundMember& member : roster_) {
    member.holds = holders.count(member.slot) > 0;
    // Resume sends Prepared on its next session.
    if (MayStage(scope, member)) roster_.Apply(member, StagingInput::kAsk);
  }
  AddNote(scope, NoteKind::kRoundPrepared, "",
          absl::StrCat("Round ", number_, " was staged at ballot ", ToString(staged.ballot),
                       " and is prepared again at ", ToString(ballot_), "."));
}

// Runs the round again after all holders of the value were lost. The other members push their
// contributions again. Their clients consider the round prepared, so they report everything again
// on a new session.
void Round::RunAgain(const RoundScope& scope, const std::string& reason) {
  if (!Apply(scope, RoundInput::kRunAgain)) return;
  supplies_.Clear();
  value_ = RoundValue{};
  agreement_.Reopen();
  for (RoundMember& member : roster_) {
    roster_.Apply(member, StagingInput::kPrepare);
    member.holds = false;
    if (!member.alive()) {
      // Restart drops an effective contribution whose bytes are gone. One without bytes stays, and
      // skips the tensors that were registered after the value was prepared.
      if (member.contribution.effective()) {
        SkipWhatIsNotCommitted(scope, member);
      } else {
        RemoveContribution(scope, member, ContributionInput::kDrop);
      }
      continue;
    }
    // An undecided worker that does not contribute joined after the value was fixed.
    const bool joins =
        member.presence.state() == Presence::kUndecided && !member.contribution.counts();
    if (member.contribution.effective() || joins)
      roster_.Apply(member, ContributionInput::kRunAgain);
  }
  for (const RoundMember& member : roster_) {
    if (member.alive() && member.contribution.counts()) {
      RemoveEarlierLives(scope, member);
    }
  }
  reconnect_ = true;
  Restart(scope, reason);
}

}  // namespace basin::aggregator
