// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job recovers: hellos are held until they decide (recovery.h), then everything is built
// from what they remember.

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

std::string Job::HowToEndHalt() const {
  return absl::StrCat(reason_, ". Bring them back, or run `basinctl recover ", name_,
                      "` to continue without them.");
}

// Forgets what this aggregator believed and waits for those who remember. Sessions are ended, so
// that everyone says hello again with its history.
void Job::EnterRecovery(const JobScope& scope, const std::string& reason) {
  EndAllSessions(
      scope, Error{ErrorCode::kUnavailable, absl::StrCat("Job ", name_, " recovers: ", reason,
                                                         ". The client reconnects by itself.")});
  // A run that was taken for new has no list if somebody does remember it.
  if (state() == JobState::kRunning && (told_verdict_ || recovered_)) led_ = membership_;
  Forget(scope);
  Apply(JobInput::kRecover);
  recovery_since_ = scope.now;
  reason_ = reason;
  AddNote(scope, NoteKind::kRecovering, "", absl::StrCat("Recovering: ", reason, "."));
}

// Everything but the name, the run, its settings and the generation, which never goes back.
void Job::Forget(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].round.has_value()) {
      scope.actions.push_back(EndRound{id_, i, lanes_[i].round->number()});
    }
  }
  ReleaseMemory(scope);
  values_.Clear(ValuesScope(scope));
  workers_.Clear();
  held_.TakeSessions();
  recovered_lanes_.clear();
  pending_.reset();
  donor_.reset();
  promises_.Clear();
  if (pause_.noted()) pause_.End();
  heard_more_ = told_verdict_ = recovered_ = forming_timed_out_ = over_ = ended_well_ = false;
  still_counting_ = 0;
}

// Workers may have been lost with something that the last recovery relied on.
//
// Only a worker that has staged an adopted value, or received its verdict, knows how the round
// ended. Without one of them the job does not go on, unless an operator or the policy decides so. A
// counted worker that has not promised may have gone back to an older aggregator, and have staged
// there what was not known here.
void Job::RecoverOnceMore(const JobScope& scope) {
  if (state() != JobState::kRunning) return;
  std::string what;
  for (const WorkerId& id : promises_.awaited()) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (slot.has_value() && workers_[*slot].state != WorkerState::kLost) continue;
    what = absl::StrCat("worker ", id, " was lost before it knew that this aggregator leads");
  }
  for (const Lane& lane : lanes_) {
    if (!lane.round.has_value() || !lane.round->Orphaned()) continue;
    const Round& round = *lane.round;
    Orphan orphan{lane.name,
                  round.number(),
                  promises_.suffice() ? round.ballot() : *round.adopted(),
                  ExtendChain(lane.chain, round.number(), round.value()),
                  {}};
    for (const RoundMember& member : round.members()) {
      if (member.holds) orphan.holders.insert(member.id);
    }
    what = Describe(orphan);
    orphans_.push_back(std::move(orphan));
  }
  if (!what.empty()) EnterRecovery(scope, what);
}

// The worker knows the term. When the recovery stands with it, the values that it has adopted are
// prepared.
void Job::OnPromise(const JobScope& scope, const WorkerId& worker) {
  if (!promises_.Give(worker, settings_)) return;
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].round.has_value()) lanes_[i].round->OnStanding(ScopeOf(scope, i));
  }
  changed_ = true;
}

void Job::HoldHello(const JobScope& scope, SessionId session, const Hello& heard) {
  Hello hello = heard;
  const Generation& remembered = hello.membership.generation;
  if (remembered.term == voided_.term && !(remembered < voided_)) {
    hello.membership = Membership{};
    hello.lanes.clear();
  }
  const Hello* before = held_.Find(hello.worker);
  if (before == nullptr && held_.hellos().size() >= scope.config.max_workers) {
    Refuse(scope, session, hello.worker, ErrorCode::kResourceExhausted,
           absl::StrCat("Job ", name_, " is recovering, and ", held_.hellos().size(),
                        " workers have sent a hello, which is its limit."));
    return;
  }
  const bool keeps_out = held_.KeepsOut(hello);
  if (const std::optional<SessionId> other = held_.SessionOf(hello.worker); other.has_value()) {
    Refuse(scope, keeps_out ? session : *other, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat("Job ", name_, " is recovering, and another process uses the id of worker ",
                        hello.worker, ". The client retries."));
  }
  if (keeps_out) return;
  // A process that restarted has lost its memory; that the one before it remembered is still true,
  // but nobody can supply what it held.
  const bool more = HasHistory(hello) && (before == nullptr || hello.lanes != before->lanes);
  if (held_.Hold(scope.memory, session, hello)) {
    heard_more_ |= more && IsPending(PendingChange::Kind::kRecovery);
  } else {
    Refuse(scope, session, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat("Job ", name_, " is recovering, and the history that worker ", hello.worker,
                        " sent needs ", Footprint::Of(hello), " bytes, but only ",
                        scope.memory.free(), " are free: ", held_.bytes(), " of ",
                        scope.memory.total, " hold the histories of ", held_.hellos().size(),
                        " other workers. The client retries; give the aggregator more memory."));
  }
  if (MayDecide(scope)) TryRecover(scope);
}

// Whether the hellos are worth a decision, which reads all of them. Before the window is over, it
// needs everybody of the newest list; a large job, in which many are missing, is looked at now and
// then, so that what it waits for is up to date.
bool Job::MayDecide(const JobScope& scope) const {
  constexpr size_t kDecideEvery = 64;
  if (forced_ || WindowIsOver(scope)) return true;
  const Membership* newest = &held_.newest();
  if (saved_ && newest->generation < saved_->membership.generation) newest = &saved_->membership;
  if (led_ && newest->generation < led_->generation) newest = &*led_;
  const size_t needed = newest->members.size();
  const size_t here = held_.hellos().size();
  return needed <= kDecideEvery || here >= needed || here % kDecideEvery == 0;
}

bool Job::WindowIsOver(const JobScope& scope) const {
  return state() == JobState::kHalted ||
         scope.now >= recovery_since_ + scope.config.recovery_window;
}

void Job::Recover(const JobScope& scope) {
  if (state() != JobState::kHalted && state() != JobState::kRecovering) return;
  forced_ = true;
  TryRecover(scope);
}

void Job::TryRecover(const JobScope& scope) {
  if (IsPending(PendingChange::Kind::kRecovery)) return;
  bool vouched = !saved_.has_value();
  bool fresh = false;
  bool remembered = false;
  for (const auto& [id, hello] : held_.hellos()) {
    fresh |= hello.fresh;
    remembered |= HasHistory(hello);
  }
  vouched &= !remembered;
  const bool window_over = WindowIsOver(scope);
  const bool forced =
      forced_ || (window_over && scope.config.recovery_policy == RecoveryPolicy::kAny);
  RecoveryDecision decision = DecideRecovery(
      held_.hellos(),
      RecoveryFacts{saved_, led_, orphans_, settings_.max_workers, window_over, forced},
      scope.config.rules);
  if (fresh && vouched) {
    decision.step = RecoveryStep::kFresh;
    decision.reason = "no worker remembers this run, and its launcher declares it new";
  }
  if (decision.step == RecoveryStep::kRecover) {
    for (const Orphan& orphan : orphans_) {
      if (Explains(decision, orphan)) continue;
      decision.reason = forced ? absl::StrCat("the job continues without the missing workers; ",
                                              Describe(orphan), ", and the round is repeated")
                               : Describe(orphan);
      if (forced) continue;
      decision.step = window_over ? RecoveryStep::kHalt : RecoveryStep::kWait;
    }
  }
  if (decision.step == RecoveryStep::kFresh && remembered && !orphans_.empty()) {
    decision.reason = Describe(orphans_.front());
    decision.step = window_over ? RecoveryStep::kHalt : RecoveryStep::kWait;
  }
  if (decision.step == RecoveryStep::kRecover && !RecoveryFits(scope, decision)) {
    decision.step = RecoveryStep::kHalt;
  }
  if (held_.refused() > 0) {
    absl::StrAppend(&decision.reason, "; there is no memory for the history of ",
                    CountOf(held_.refused(), "worker"));
  }
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

// Whether there is memory to keep track of the lanes; if not, the decision's reason says so.
bool Job::RecoveryFits(const JobScope& scope, RecoveryDecision& decision) const {
  uint64_t need = 0;
  for (const RecoveredLane& lane : decision.lanes) {
    uint64_t chunks = 0;
    for (const TensorSpec& spec : lane.layout) {
      chunks += ChunkCount(*TensorBytes(spec));
      need += EntryBytes(spec);
    }
    need +=
        TrackingBytes(std::max<uint32_t>(settings_.max_workers, 1), static_cast<uint32_t>(chunks));
  }
  if (need <= scope.memory.free()) return true;
  scope.memory.shortage |= scope.memory.cached > 0;
  decision.reason =
      absl::StrCat("its lanes need ", need, " bytes of bookkeeping, but ", scope.memory.free(),
                   " of ", scope.memory.total, " are free, and ", held_.bytes(),
                   " hold the histories of the workers; give the aggregator more memory");
  return false;
}

// A term above all that anybody remembers. It is not the one of an earlier recovery by this process
// either: lanes and rounds begin anew, so what is still on its way from before, such as a staged
// value or a reduction that is about to end, must not have their ballots.
void Job::TakeUnusedTerm(const JobScope& scope) {
  Term used = std::max(membership_.generation, writes_.newest()).term;
  for (const auto& [id, hello] : held_.hellos()) used = std::max(used, HighestTerm(hello));
  if (used >= term_) term_ = TermAbove(used, scope.config.term_random);
}

void Job::StartFresh(const JobScope& scope, const std::string& reason) {
  if (!Apply(JobInput::kKnowNothing)) return;
  TakeUnusedTerm(scope);
  forming_since_ = scope.now;
  forming_timed_out_ = false;
  // Somebody who remembers may still come and void this, and has to explain them then.
  if (std::exchange(forced_, false)) orphans_.clear();
  saved_.reset();
  led_.reset();
  reason_ = reason;
  AddNote(scope, NoteKind::kRecovered, "", absl::StrCat("The run is new: ", reason, "."));
  const std::map<WorkerId, Hello> hellos = held_.TakeHellos(scope.memory);
  for (const auto& [id, session] : held_.TakeSessions()) {
    Admit(scope, session, hellos.at(id));
  }
}

void Job::ApplyRecovery(const JobScope& scope, const RecoveryDecision& decision) {
  TakeUnusedTerm(scope);
  membership_ = Membership{NextGeneration(), decision.members};
  reason_ = decision.reason;

  const std::set<WorkerId> conflicts(decision.conflicts.begin(), decision.conflicts.end());
  const std::set<WorkerId> members(decision.members.begin(), decision.members.end());
  std::set<Incarnation> incarnations;
  for (const auto& [id, hello] : held_.hellos()) {
    if (conflicts.count(id) > 0) {
      const std::string text = absl::StrCat(
          "Job ", name_, ": worker ", id,
          " has verdicts that are not in the history with which the job continues. "
          "Its model differs. Restart it; it then loads the state of the other workers.");
      if (const std::optional<SessionId> session = held_.SessionOf(id); session.has_value()) {
        Refuse(scope, *session, id, ErrorCode::kLineageConflict, text);
        held_.LoseSessionOf(id);
      }
      continue;
    }
    const Slot slot = workers_.Add(id);
    Worker& worker = workers_[slot];
    worker.nonce = hello.nonce;
    worker.lost_at = absl::InfiniteFuture();  // Set when everybody is told.
    if (members.count(id) == 0) continue;     // Admitted then, in a new life.
    workers_.Apply(slot, WorkerInput::kRecover);
    worker.holds_state = !hello.lacks_state;
    // An incarnation keys what is kept of a contribution: no two workers may have the same.
    const bool keeps =
        !(hello.incarnation == Incarnation{}) && incarnations.insert(hello.incarnation).second;
    worker.incarnation = keeps ? hello.incarnation : Incarnation{term_, ++next_incarnation_};
  }

  for (const RecoveredLane& recovered : decision.lanes) {
    while (lanes_.size() < recovered.lane) {
      lanes_.emplace_back();
      lanes_.back().kind = LaneKind::kCall;
      lanes_.back().expired = true;
    }
    lanes_.emplace_back();
    Lane& lane = lanes_.back();
    lane.name = recovered.name;
    lane.kind = recovered.kind;
    lane.norms = NormsFor(lane.kind);
    lane.next = recovered.last_verdict + 1;
    lane.chain = recovered.chain;
    lane.last_used = scope.now;
    for (const TensorSpec& spec : recovered.layout) lane.layout.Append(spec);
    NameTensors(scope, recovered.lane, 0);
    lane.tracking =
        TrackingBytes(std::max<uint32_t>(settings_.max_workers, 1), lane.layout.chunks());
    scope.memory.reserved += lane.tracking + lane.layout.memory_bytes();
    for (const VerdictRecord& record : recovered.verdicts) {
      lane.verdicts.push_back(record);
      lane.chains.emplace_back(record.round, record.chain);
      if (record.value.outcome == Outcome::kCommitted) lane.last_spec = AsBegun(record.value.spec);
    }
    const LaneIndex index = static_cast<LaneIndex>(lanes_.size() - 1);
    for (const auto& [id, hello] : held_.hellos()) {
      const std::optional<Slot> slot = workers_.Find(id);
      if (!slot.has_value() || !IsMember(workers_[*slot])) continue;
      for (const LaneHistory& history : hello.lanes) {
        if (history.name != lane.name) continue;
        workers_[*slot].SeeLayout(index, static_cast<uint32_t>(history.layout.size()));
        workers_[*slot].NoteRegistered(index);
      }
    }
  }
  recovered_lanes_ = decision.lanes;
  promises_.Await(decision.counted);
  if (scope.config.state_file && !membership_.members.empty()) {
    SavePending(scope, {PendingChange::Kind::kRecovery, membership_, std::nullopt, 0, {}});
    return;
  }
  FinishRecovery(scope);
}

// Members that were counted in no verdict they remember, where there was one.
void Job::NoteWhoIsOutOfStep() {
  const bool told = std::any_of(lanes_.begin(), lanes_.end(),
                                [](const Lane& lane) { return !lane.verdicts.empty(); });
  if (!told) return;
  for (const auto& [id, hello] : held_.hellos()) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (!slot.has_value() || !IsMember(workers_[*slot])) continue;
    Worker& worker = workers_[*slot];
    worker.out_of_step = true;
    for (const LaneHistory& history : hello.lanes) {
      for (const VerdictRecord& record : history.verdicts) {
        if (IsCounted(record.value, id, worker.incarnation)) worker.out_of_step = false;
      }
    }
  }
}

// Whether the hello of the member says that its trainer takes part in the lane's next round.
bool Job::TakesPart(const WorkerId& id, const Lane& lane) const {
  const Hello* hello = held_.Find(id);
  if (hello == nullptr) return false;
  return std::any_of(hello->lanes.begin(), hello->lanes.end(), [&](const LaneHistory& history) {
    const bool staged = history.staged.has_value() && history.staged->round == lane.next;
    return history.name == lane.name && (history.begun == lane.next || staged);
  });
}

// The new generation is on disk, or need not be: everyone is told.
void Job::FinishRecovery(const JobScope& scope) {
  if (std::exchange(heard_more_, false)) {  // Somebody may know more than what was decided on.
    workers_.Clear();
    DropLanes(scope);
    recovered_lanes_.clear();
    TryRecover(scope);
    return;
  }
  if (!Apply(JobInput::kKnow)) return;
  forced_ = false;
  orphans_.clear();
  saved_.reset();
  led_.reset();
  recovered_ = true;
  AddNote(scope, NoteKind::kRecovered, "",
          absl::StrCat("Recovered as generation ", ToString(membership_.generation), " with ",
                       CountOf(membership_.members.size(), "member"), ": ", reason_, "."));
  NoteWhoIsOutOfStep();
  for (const RecoveredLane& recovered : recovered_lanes_) {
    if (!recovered.adopted.has_value()) continue;
    const LaneIndex index = recovered.lane;
    Lane& lane = lanes_[index];
    std::vector<RoundMember> members = RoundMembers(lane.kind);
    for (RoundMember& member : members) {
      if (member.presence != Presence::kUndecided) continue;
      if (TakesPart(member.id, lane)) {
        member.presence = Presence::kThere;
      } else {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
    }
    lane.round.emplace(lane.next, Ballot{term_, 1}, std::move(members), lane.layout, scope.now);
    std::set<Slot> holders;
    for (const WorkerId& id : recovered.holders) holders.insert(*workers_.Find(id));
    lane.round->Adopt(ScopeOf(scope, index), *recovered.adopted, holders);
  }
  recovered_lanes_.clear();
  const std::map<WorkerId, Hello> hellos = held_.TakeHellos(scope.memory);
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].expired && lanes_[i].layout.version() > 0) PlanMemory(scope, lanes_[i], i);
  }
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    Worker& worker = workers_[slot];
    worker.last_heard = scope.now;
    worker.lost_at = scope.now + scope.config.lease;
  }
  // Also those who came while the decision was written down.
  for (const auto& [id, session] : held_.TakeSessions()) {
    if (CheckLineage(scope, session, hellos.at(id))) Admit(scope, session, hellos.at(id));
  }
  reason_.clear();
  changed_ = true;
}

}  // namespace basin::aggregator
