// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_rounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_samples.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/spec.h"

namespace basin::aggregator {
namespace {

void SendVerdictAgain(Job& job, const JobScope& scope, Slot slot, const Lane& lane, LaneIndex index,
                      RoundNumber number) {
  for (const VerdictRecord& record : lane.verdicts) {
    if (record.round < number) continue;
    SendTo(job, scope, slot,
           Verdict{index, record, job.generations.donor(), PlacementFor(job.workers[slot], lane)});
  }
  if (lane.verdicts.empty() || number < lane.verdicts.front().round) {
    RejectMessage(job, scope, slot, ErrorCode::kStale,
                  absl::StrCat("Job ", job.name, ", lane ", lane.name, ": worker ",
                               job.workers[slot].id, " acts in round ", number,
                               ", which has a verdict; the lane is at round ", lane.next, "."),
                  index, number);
  }
}

// Not a minimum or maximum, whose size does not depend on how many there are, or a product.
bool IsSum(ReduceOp op) {
  return op != ReduceOp::kMin && op != ReduceOp::kMax && op != ReduceOp::kProduct;
}

// The contributors with the norm of what each of them holds for one trainer in one round, so that
// nodes, and those whose last contribution was late, can be compared with the others.
std::vector<Contributor> PerTrainer(const RoundValue& value) {
  std::vector<Contributor> contributors = value.contributors;
  if (!IsSum(value.spec.op)) return contributors;
  const bool by_weight =
      value.spec.op == ReduceOp::kWeightedAverage && value.spec.kind == ContributionKind::kMean;
  for (Contributor& contributor : contributors) {
    if (!contributor.squared_norm.has_value()) continue;
    uint64_t held = uint64_t{contributor.ranks} + contributor.deferred;
    // What a single one holds is a mean then.
    if (by_weight) held = contributor.is_partial() ? contributor.weight : 1;
    const auto share = static_cast<double>(std::max<uint64_t>(1, held));
    *contributor.squared_norm /= share * share;
  }
  return contributors;
}

// Notes the workers whose contribution to a committed round is far from the usual size in its lane.
void WatchNorms(const JobScope& scope, const JobName& job, Lane& lane,
                const VerdictRecord& record) {
  if (scope.config.norm_alarm == 0) return;
  // A minimum or maximum may start from infinity, and a product has no usual size.
  if (lane.kind == LaneKind::kCall && !IsSum(record.value.spec.op)) return;
  const double loss_scale = record.value.spec.loss_scale;
  const bool scaled = loss_scale != 1;
  for (const UnusualNorm& unusual :
       lane.norms.Add(PerTrainer(record.value), loss_scale, scope.config.norm_alarm)) {
    const std::string what =
        std::isfinite(unusual.norm)
            ? absl::StrFormat("has norm %.3g%s, %.1f standard deviations from the usual norm, %.3g",
                              unusual.norm, scaled ? " without its loss scale" : "",
                              std::abs(unusual.z), unusual.usual)
            : absl::StrCat("holds a number that is not finite",
                           scaled ? absl::StrCat("; so does one whose loss scale, ", loss_scale,
                                                 ", is too high")
                                  : "");
    scope.actions.push_back(
        Note{NoteKind::kContributionUnusual, job, unusual.worker, lane.name, record.round,
             absl::StrCat("The contribution of worker ", unusual.worker, " to round ", record.round,
                          " of lane ", lane.name, " ", what,
                          ". It was counted; check the worker's data and hardware.")});
  }
}

void SendVerdict(Job& job, const JobScope& scope, LaneIndex index, const Membership& next) {
  Lane& lane = job.lanes[index];
  const Round& round = *lane.round;
  VerdictRecord record;
  record.round = round.number;
  record.ballot = round.ballot;
  record.value_ballot = round.value_ballot;
  record.value = round.value;
  record.next = next;
  record.chain = ExtendChain(lane.chain, record.round, record.value);
  const bool committed = record.value.outcome == Outcome::kCommitted;
  Note note{committed ? NoteKind::kRoundCommitted : NoteKind::kRoundAborted,
            job.name,
            "",
            lane.name,
            record.round,
            committed
                ? absl::StrCat("Round ", record.round, " is COMMITTED over ",
                               DescribeContributors(record.value), ".")
                : absl::StrCat("Round ", record.round, " is ABORTED: ", record.value.reason, ".")};
  note.contributions = record.value.contributors.size();
  note.credit_stalls = round.flow.stalls();
  scope.actions.push_back(std::move(note));
  if (committed) WatchNorms(scope, job.name, lane, record);
  for (const Contributor& contributor : record.value.contributors) {
    if (contributor.deferred == 0) continue;
    scope.actions.push_back(
        Note{NoteKind::kContributionDeferred, job.name, contributor.worker, lane.name, record.round,
             absl::StrCat("What it had computed for round ", record.round - 1,
                          ", and was late for that, is in its contribution to round ", record.round,
                          ".")});
  }
  const bool changes = next != job.membership();
  const std::optional<WorkerId> donor = changes ? job.DonorFor(next) : std::nullopt;
  SendAll all;
  for (const RoundMember& member : round.members()) {
    Worker& worker = job.workers[member.slot];
    worker.out_of_step &= !member.there();
    const bool counted = member.contribution.effective() || member.carried;
    if (committed && counted && scope.config.fruitless_joins > 0) worker.joins.Clear();
    if (member.alive() && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (!all.sessions.empty()) {
    all.message = Verdict{index, record, donor, PlacementOfNext(job, lane)};
    scope.actions.push_back(std::move(all));
  }
  ++(committed ? job.rounds.committed : job.rounds.aborted);
  if (lane.kind == LaneKind::kGradient) job.goodput.End(TimesOf(round, record, scope.now));
  EndRoundSamples(job, scope, lane, committed ? record.value.samples : std::nullopt);
  for (const absl::Duration late : round.lateness) lane.grace.Add(late);
  lane.Remember(std::move(record), scope.now, scope.memory);
  lane.round.reset();
  PlaceLane(job, lane);
  ChargeSamples(job, scope, lane);  // Nothing is named any more.
  lane.last_used = scope.now;
  scope.actions.push_back(EndRound{job.id, index, lane.next - 1});
  job.pace.Count(scope.now, scope.config);
  job.standing.SendVerdict();
  job.evidence.ForgetOrphans();
  if (changes) Activate(job, scope, next, donor, false);
  job.changed = true;
}

// Every member has staged the value. Chooses the next members, writes them down if there is a state
// file, and sends the verdict.
void Settle(Job& job, const JobScope& scope, LaneIndex index) {
  Lane& lane = job.lanes[index];
  if (job.PausedIn(lane) || job.generations.IsPending(PendingChange::Kind::kMembers)) return;
  lane.paced = scope.now < job.pace.Next(scope.config);
  if (lane.paced) return;
  // Only one change of members is under way at a time. A joiner takes part in every round from now
  // on, so no round may be open without it. Joiners therefore wait for the next verdict while a
  // call is open.
  const bool boundary = !job.generations.pending().has_value() && job.lanes.IsBoundary(lane);
  const bool may_admit = !scope.draining && !job.lanes.AnyOpenBesides(lane);
  const Membership next = boundary ? job.NextMembership(may_admit) : job.membership();
  if (next == job.membership() || !scope.config.state_file) {
    SendVerdict(job, scope, index, next);
    return;
  }
  SavePending(job, scope, {PendingChange::Kind::kVerdict, next, std::nullopt, index, {}});
}

}  // namespace

Round* RoundFor(Job& job, const JobScope& scope, Slot slot, Lane& lane, LaneIndex index,
                RoundNumber number, bool open) {
  if (number < lane.next) {
    SendVerdictAgain(job, scope, slot, lane, index, number);
    return nullptr;
  }
  // A draining service opens no round; the next aggregator answers this worker.
  if (open && scope.draining && !lane.Open()) return nullptr;
  const Worker& worker = job.workers[slot];
  if (number > lane.next) {
    RejectMessage(
        job, scope, slot, ErrorCode::kInvalidArgument,
        absl::StrCat("Job ", job.name, ", lane ", lane.name, ": worker ", worker.id,
                     " acts in round ", number, " while round ", lane.next, " has no verdict."),
        index, number);
    return nullptr;
  }
  if (!lane.round.has_value() && open && job.state() == JobState::kRunning && IsMember(worker) &&
      !worker.finishing) {
    std::vector<RoundMember> members = job.RoundMembers(lane.kind);
    // With the lane's index a session gets the window of its rounds; without it, it sends nothing.
    ByShard sent;
    for (const ShardId shard : lane.shares.Left()) sent.Set(shard, lane.memory.window);
    for (RoundMember& member : members) member.room.sent = sent;
    lane.round.emplace(number, Ballot{job.term, 1}, std::move(members), lane.layout, lane.shares,
                       scope.now);
    lane.last_used = scope.now;
    job.lanes.Keep(index);
  }
  if (lane.round.has_value() && lane.round->Has(slot)) return &*lane.round;
  if (open) {
    RejectMessage(job, scope, slot, ErrorCode::kFailedPrecondition,
                  absl::StrCat("Job ", job.name, ", lane ", lane.name, ": worker ", worker.id,
                               " is not a member of round ", number, "; wait until it is one."),
                  index, number);
  }
  return nullptr;
}

void OnReduceDone(Job& job, const JobScope& scope, const ReduceDone& done) {
  if (!job.lanes.Has(done.lane)) return;
  Lane& lane = job.lanes[done.lane];
  if (!lane.round.has_value() || lane.round->number != done.round) return;
  OnReduceDone(*lane.round, ScopeOf(job, scope, done.lane), done);
  AdvanceLane(job, scope, done.lane);
}

void AdvanceLane(Job& job, const JobScope& scope, LaneIndex index) {
  Lane& lane = job.lanes[index];
  if (!lane.round.has_value() || job.generations.HoldsVerdict(index)) return;
  if (std::exchange(lane.round->reconnect, false)) {
    EndAllSessions(
        job, scope,
        Error{ErrorCode::kUnavailable, absl::StrCat("Job ", job.name, " repeats round ", lane.next,
                                                    ". The client reconnects by itself.")});
  }
  if (lane.round->phase() != RoundPhase::kPrepared) return;
  const Rules& rules = scope.config.rules;
  const bool at_once =
      !rules.two_phases || (!rules.second_prepare && lane.round->adopted.has_value());
  if (at_once || (lane.round->Settled() && job.standing.stands())) Settle(job, scope, index);
}

void AdvanceAll(Job& job, const JobScope& scope) {
  for (Lane& lane : job.lanes) {
    if (job.changed) break;
    if (lane.round.has_value()) Advance(*lane.round, ScopeOf(job, scope, lane.index));
    AdvanceLane(job, scope, lane.index);
  }
}

void SendPaced(Job& job, const JobScope& scope) {
  for (Lane& lane : job.lanes) {
    if (!std::exchange(lane.paced, false) || !lane.round.has_value()) continue;
    AdvanceLane(job, scope, lane.index);
  }
}

void Save(const Job& job, const JobScope& scope, const Membership& next) {
  scope.actions.push_back(
      SaveState{job.id, job.name, job.run, job.term, next, job.agreed.changed()});
}

void SavePending(Job& job, const JobScope& scope, PendingChange change) {
  Save(job, scope, change.next);
  job.generations.Await(std::move(change), job.workers, scope.now + scope.config.lease);
}

void Take(Job& job, const JobScope& scope, const StateSaved& saved) {
  if (saved.ok) return EndWrite(job, scope, saved.generation, "");
  EndWrite(job, scope, saved.generation, "could not be written to the state file");
}

void EndWrite(Job& job, const JobScope& scope, Generation generation, const std::string& failure) {
  if (!job.generations.EndWrite(generation)) return;  // The write was given up earlier.
  if (!failure.empty()) {
    AddNote(job, scope, NoteKind::kStateFileFailed, "",
            absl::StrCat("Generation ", ToString(generation), " ", failure,
                         "; training continues without it."));
  }
  const std::optional<PendingChange> waited = job.generations.TakePending(generation);
  if (!waited.has_value()) return;
  const PendingChange& change = *waited;
  job.changed = true;
  const bool meant = change.StillMeant(job.workers);
  switch (change.kind) {
    case PendingChange::Kind::kRecovery:
      return FinishRecovery(job, scope);
    case PendingChange::Kind::kMembers: {
      const std::optional<Slot> donor =
          change.donor.has_value() ? job.workers.Find(*change.donor) : std::nullopt;
      const bool donor_lost =
          change.donor.has_value() &&
          (!donor.has_value() || job.workers[*donor].state == WorkerState::kLost);
      if (meant && !donor_lost) ApplyChange(job, scope, change.next, change.donor);
      return;  // A change that no longer fits is chosen again by Reconcile.
    }
    case PendingChange::Kind::kVerdict:
      if (!job.lanes[change.lane].round.has_value()) return;
      // A worker that joined may have begun the call meanwhile; it must get the value before the
      // verdict.
      if (meant && job.lanes[change.lane].round->Settled()) {
        return SendVerdict(job, scope, change.lane, change.next);
      }
      // No worker has received the verdict, so the members are chosen again.
      return AdvanceLane(job, scope, change.lane);
  }
}

}  // namespace basin::aggregator
