// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job recovers: it holds hellos until they allow a decision (recovery.h), and then rebuilds
// everything from what the workers remember.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/footprint.h"
#include "aggregator/core/job.h"
#include "aggregator/core/spec.h"
#include "aggregator/core/term.h"
#include "protocol/counted.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// Marks the members that were counted in no verdict that they remember, if there was a verdict.
void NoteWhoIsOutOfStep(const std::map<WorkerId, Hello>& hellos, const Lanes& lanes,
                        Workers& workers) {
  const bool told = std::any_of(lanes.begin(), lanes.end(),
                                [](const Lane& lane) { return !lane.verdicts.empty(); });
  if (!told) return;
  for (const auto& [id, hello] : hellos) {
    const std::optional<Slot> slot = workers.Find(id);
    if (!slot.has_value() || !IsMember(workers[*slot])) continue;
    Worker& worker = workers[*slot];
    worker.out_of_step = true;
    for (const LaneHistory& history : hello.lanes) {
      for (const VerdictRecord& record : history.verdicts) {
        if (IsCounted(record.value, id, worker.incarnation)) worker.out_of_step = false;
      }
    }
  }
}

}  // namespace

std::string Job::HowToEndHalt() const {
  return absl::StrCat(reason_, ". Bring them back, or run `basinctl recover ", name_,
                      "` to continue without them.");
}

// Forgets what this aggregator believed and waits for the workers that remember. It ends the
// sessions, so that every worker sends a hello with its history.
void Job::EnterRecovery(const JobScope& scope, const std::string& reason) {
  EndAllSessions(
      scope, Error{ErrorCode::kUnavailable, absl::StrCat("Job ", name_, " recovers: ", reason,
                                                         ". The client reconnects by itself.")});
  // If a worker remembers a run that this aggregator took for new, the list formed here does not
  // count.
  const bool led = state() == JobState::kRunning && standing_.established();
  evidence_.Begin(scope.now, led ? std::optional(membership()) : std::nullopt);
  Forget(scope);
  Apply(JobInput::kRecover);
  reason_ = reason;
  AddNote(scope, NoteKind::kRecovering, "", absl::StrCat("Recovering: ", reason, "."));
}

// Forgets everything except the name, the run, its settings and the generation, which never goes
// back.
void Job::Forget(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].round.has_value()) {
      scope.actions.push_back(EndRound{id_, i, lanes_[i].round->number()});
    }
  }
  ReleaseMemory(scope);
  values_.Clear(ValuesScope(scope));
  workers_.Clear();
  evidence_.Forget();
  generations_.DropPending();
  generations_.ForgetDonor();
  standing_.Forget();
  forming_.Forget();
  if (pause_.noted()) pause_.End();
}

// Recovers again if lost workers take with them what the last recovery relied on.
//
// Only a worker that has staged an adopted value, or received its verdict, knows how the round
// ended. After the last of them is lost, the job goes on only if an operator or the policy decides
// so. A counted worker that has not promised may have gone back to an older aggregator and have
// staged a value there that this one does not know.
void Job::RecoverOnceMore(const JobScope& scope) {
  if (state() != JobState::kRunning) return;
  std::string what;
  for (const WorkerId& id : standing_.awaited()) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (slot.has_value() && workers_[*slot].state != WorkerState::kLost) continue;
    what = absl::StrCat("worker ", id, " was lost before it knew that this aggregator leads");
  }
  for (const Lane& lane : lanes_) {
    if (!lane.round.has_value() || !lane.round->Orphaned()) continue;
    const Round& round = *lane.round;
    Orphan orphan{lane.name,
                  round.number(),
                  standing_.stands() ? round.ballot() : *round.adopted(),
                  ExtendChain(lane.chain, round.number(), round.value()),
                  {}};
    for (const RoundMember& member : round.members()) {
      if (member.holds) orphan.holders.insert(member.id);
    }
    what = Describe(orphan);
    evidence_.Lose(std::move(orphan));
  }
  if (!what.empty()) EnterRecovery(scope, what);
}

// The worker knows the term of this aggregator. Once enough workers do, the recovery stands, and
// the rounds prepare the values that it adopted.
void Job::OnPromise(const JobScope& scope, const WorkerId& worker) {
  if (!standing_.Promise(worker, settings())) return;
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].round.has_value()) lanes_[i].round->OnStanding(ScopeOf(scope, i));
  }
  changed_ = true;
}

void Job::HoldHello(const JobScope& scope, SessionId session, const Hello& heard) {
  Hello hello = heard;
  if (standing_.IsVoid(hello.membership.generation)) {
    hello.membership = Membership{};
    hello.lanes.clear();
  }
  HeldHellos& held = evidence_.held();
  const Hello* before = held.Find(hello.worker);
  if (before == nullptr && held.hellos().size() >= scope.config.max_workers) {
    Refuse(scope, session, hello.worker, ErrorCode::kResourceExhausted,
           absl::StrCat("Job ", name_, " is recovering, and ", held.hellos().size(),
                        " workers have sent a hello, which is its limit (limits.workers)."));
    return;
  }
  const bool keeps_out = held.KeepsOut(hello);
  if (const std::optional<SessionId> other = held.SessionOf(hello.worker); other.has_value()) {
    Refuse(scope, keeps_out ? session : *other, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat("Job ", name_, " is recovering, and another process uses the id of worker ",
                        hello.worker, ". The client retries."));
  }
  if (keeps_out) return;
  // The hello of a restarted process replaces that of the process before it, because nobody can
  // supply what the earlier process held. More history makes a decision that is being written down
  // void.
  const bool more = HasHistory(hello) && (before == nullptr || hello.lanes != before->lanes);
  if (held.Hold(scope.memory, session, hello)) {
    if (more && generations_.IsPending(PendingChange::Kind::kRecovery)) evidence_.HearMore();
  } else {
    Refuse(scope, session, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat("Job ", name_, " is recovering, and the history that worker ", hello.worker,
                        " sent needs ", Footprint::Of(hello), " bytes, but only ",
                        scope.memory.free(), " are free: ", held.bytes(), " of ",
                        scope.memory.total, " hold the histories of ", held.hellos().size(),
                        " other workers. The client retries; give the aggregator more memory."));
  }
  if (evidence_.MayDecide(scope.config, scope.now, state() == JobState::kHalted)) TryRecover(scope);
}

void Job::Recover(const JobScope& scope) {
  if (state() != JobState::kHalted && state() != JobState::kRecovering) return;
  evidence_.Force();
  TryRecover(scope);
}

void Job::TryRecover(const JobScope& scope) {
  if (generations_.IsPending(PendingChange::Kind::kRecovery)) return;
  const RecoveryDecision decision = evidence_.Decide(
      scope.config, settings().max_workers, scope.now, state() == JobState::kHalted, scope.memory);
  switch (decision.step) {
    case RecoveryStep::kWait:
      reason_ = decision.reason;
      NoteWaiting(scope);
      return;
    case RecoveryStep::kHalt:
      if (state() != JobState::kHalted || reason_ != decision.reason) {
        reason_ = decision.reason;
        AddNote(scope, NoteKind::kHalted, "", absl::StrCat("Halted: ", HowToEndHalt()));
      }
      Apply(JobInput::kHalt);
      NoteWaiting(scope);
      return;
    case RecoveryStep::kFresh:
      StartFresh(scope, decision.reason);
      return;
    case RecoveryStep::kRecover:
      ApplyRecovery(scope, decision);
      return;
  }
}

// Takes a term above every term that a worker remembers, and above that of an earlier recovery by
// this process. Lanes and rounds begin anew, so a staged value or a reduction that is still on its
// way must not carry one of their ballots.
void Job::TakeUnusedTerm(const JobScope& scope) {
  const Term used = evidence_.HighestTermAbove(generations_.Newest().term);
  if (used >= term_) term_ = TermAbove(used, scope.config.term_random);
}

void Job::StartFresh(const JobScope& scope, const std::string& reason) {
  if (!Apply(JobInput::kKnowNothing)) return;
  TakeUnusedTerm(scope);
  forming_.Begin(scope.now);
  evidence_.CloseAsNew();
  reason_ = reason;
  AddNote(scope, NoteKind::kRecovered, "", absl::StrCat("The run is new: ", reason, ".")).cause =
      NoteCause::kNewRun;
  const std::map<WorkerId, Hello> hellos = evidence_.held().TakeHellos(scope.memory);
  for (const auto& [id, session] : evidence_.held().TakeSessions()) {
    Admit(scope, session, hellos.at(id));
  }
}

void Job::ApplyRecovery(const JobScope& scope, const RecoveryDecision& decision) {
  TakeUnusedTerm(scope);
  reason_ = decision.reason;

  const std::set<WorkerId> conflicts(decision.conflicts.begin(), decision.conflicts.end());
  const std::set<WorkerId> members(decision.members.begin(), decision.members.end());
  std::set<Incarnation> incarnations;
  // A client without the feature is here because each of them stood for one trainer, so another
  // number is new and does not hold. Otherwise the two would refuse each other.
  const auto knows_ranks = [&](const WorkerId& id) {
    return (evidence_.held().Find(id)->features & kFeatureRanks) != 0;
  };
  const bool all_know = std::all_of(members.begin(), members.end(), knows_ranks);
  for (const auto& [id, hello] : evidence_.held().hellos()) {
    if (conflicts.count(id) > 0) {
      const std::string text = absl::StrCat(
          "Job ", name_, ": worker ", id,
          " has verdicts that are not in the history with which the job continues. "
          "Its model differs. Restart it; it then loads the state of the other workers.");
      HeldHellos& held = evidence_.held();
      if (const std::optional<SessionId> session = held.SessionOf(id); session.has_value()) {
        Refuse(scope, *session, id, ErrorCode::kLineageConflict, text);
        held.LoseSessionOf(id);
      }
      continue;
    }
    const Slot slot = workers_.Add(id);
    Worker& worker = workers_[slot];
    worker.nonce = hello.nonce;
    worker.lost_at = absl::InfiniteFuture();  // Set when the recovery finishes.
    if (members.count(id) == 0) continue;     // It is admitted then, in a new life.
    workers_.Apply(slot, WorkerInput::kRecover);
    worker.holds_state = !hello.lacks_state;
    worker.ranks = all_know ? hello.ranks : 1;
    worker.knows_ranks = knows_ranks(id);
    worker.group = hello.group;
    // An incarnation is part of the key of a contribution, so no two workers may share one.
    const bool keeps =
        !(hello.incarnation == Incarnation{}) && incarnations.insert(hello.incarnation).second;
    worker.incarnation = keeps ? hello.incarnation : workers_.NextIncarnation(term_);
  }
  generations_.Recover(term_, ListOf(decision.members, workers_));

  for (const RecoveredLane& recovered : decision.lanes) {
    lanes_.LeavePlacesBefore(recovered.lane);
    Lane& lane = lanes_.Add(recovered.name, recovered.kind);
    lane.next = recovered.last_verdict + 1;
    lane.chain = recovered.chain;
    lane.last_used = scope.now;
    for (const TensorSpec& spec : recovered.layout) lane.layout.Append(spec);
    NameTensors(scope, recovered.lane, 0);
    lane.tracking = TrackingBytes(settings_.most_workers(), lane.layout.chunks());
    scope.memory.reserved += lane.tracking + lane.layout.memory_bytes();
    for (const VerdictRecord& record : recovered.verdicts) {
      lane.verdicts.push_back(record);
      lane.chains.emplace_back(record.round, record.chain);
      if (record.value.outcome == Outcome::kCommitted) lane.last_spec = AsBegun(record.value.spec);
    }
    const LaneIndex index = lanes_.size() - 1;
    for (const auto& [id, hello] : evidence_.held().hellos()) {
      const std::optional<Slot> slot = workers_.Find(id);
      if (!slot.has_value() || !IsMember(workers_[*slot])) continue;
      for (const LaneHistory& history : hello.lanes) {
        if (history.name != lane.name) continue;
        workers_[*slot].SeeLayout(index, static_cast<uint32_t>(history.layout.size()));
        workers_[*slot].NoteRegistered(index);
      }
    }
  }
  evidence_.Decided(decision.cause, decision.lanes);
  standing_.Await(decision.counted);
  if (scope.config.state_file && !membership().members.empty()) {
    SavePending(scope, {PendingChange::Kind::kRecovery, membership(), std::nullopt, 0, {}});
    return;
  }
  FinishRecovery(scope);
}

// The new generation is on disk, or need not be, so the job welcomes the workers.
void Job::FinishRecovery(const JobScope& scope) {
  if (evidence_.TakeHeardMore()) {  // The decision lacks what that worker remembers.
    workers_.Clear();
    lanes_.Drop(id_, scope.memory, scope.actions);
    evidence_.ForgetDecision();
    TryRecover(scope);
    return;
  }
  if (!Apply(JobInput::kKnow)) return;
  evidence_.Close();
  standing_.Recover();
  AddNote(scope, NoteKind::kRecovered, "",
          absl::StrCat("Recovered as generation ", ToString(membership().generation), " with ",
                       CountOf(membership().members.size(), "member"), ": ", reason_, "."))
      .cause = evidence_.cause();
  NoteWhoIsOutOfStep(evidence_.held().hellos(), lanes_, workers_);
  for (const RecoveredLane& recovered : evidence_.lanes()) {
    if (!recovered.adopted.has_value()) continue;
    const LaneIndex index = recovered.lane;
    Lane& lane = lanes_[index];
    std::vector<RoundMember> members = RoundMembers(lane.kind);
    for (RoundMember& member : members) {
      if (member.presence.state() != Presence::kUndecided) continue;
      if (evidence_.TakesPart(member.id, lane.name, lane.next)) {
        member.presence.Apply(PresenceInput::kTakePart);
      } else {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
    }
    lane.round.emplace(lane.next, Ballot{term_, 1}, std::move(members), lane.layout, scope.now);
    std::set<Slot> holders;
    for (const WorkerId& id : recovered.holders) holders.insert(*workers_.Find(id));
    lane.round->Adopt(ScopeOf(scope, index), *recovered.adopted, holders);
  }
  evidence_.ForgetDecision();
  const std::map<WorkerId, Hello> hellos = evidence_.held().TakeHellos(scope.memory);
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].expired && lanes_[i].layout.version() > 0) PlanMemory(scope, lanes_[i], i);
  }
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    Worker& worker = workers_[slot];
    worker.last_heard = scope.now;
    worker.lost_at = scope.now + scope.config.lease;
  }
  // These include workers that came while the decision was written down.
  for (const auto& [id, session] : evidence_.held().TakeSessions()) {
    if (CheckLineage(scope, session, hellos.at(id))) Admit(scope, session, hellos.at(id));
  }
  reason_.clear();
  changed_ = true;
}

}  // namespace basin::aggregator
