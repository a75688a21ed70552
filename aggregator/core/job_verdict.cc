// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round ends: the job chooses the next members, writes them down first, and sends the
// verdict.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "aggregator/core/job.h"

namespace basin::aggregator {
namespace {

// Not a minimum or maximum, whose size does not depend on how many there are, or a product.
bool IsSum(ReduceOp op) {
  return op != ReduceOp::kMin && op != ReduceOp::kMax && op != ReduceOp::kProduct;
}

// The contributors with the norm of what each of them holds for one trainer, so that a node can be
// compared with a single one.
std::vector<Contributor> PerTrainer(const RoundValue& value) {
  std::vector<Contributor> contributors = value.contributors;
  if (!IsSum(value.spec.op)) return contributors;
  const bool by_weight =
      value.spec.op == ReduceOp::kWeightedAverage && value.spec.kind == ContributionKind::kMean;
  for (Contributor& contributor : contributors) {
    if (!contributor.is_partial() || !contributor.squared_norm.has_value()) continue;
    const auto share = static_cast<double>(by_weight ? std::max<uint64_t>(1, contributor.weight)
                                                     : contributor.ranks);
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

}  // namespace

// Every member has staged the value. Chooses the next members, writes them down if there is a state
// file, and sends the verdict.
void Job::Settle(const JobScope& scope, LaneIndex index) {
  Lane& lane = lanes_[index];
  if (PausedIn(lane) || generations_.IsPending(PendingChange::Kind::kMembers)) return;
  lane.paced = scope.now < pace_.Next(scope.config);
  if (lane.paced) return;
  // Only one change of members is under way at a time. A joiner takes part in every round from now
  // on, so no round may be open without it. Joiners therefore wait for the next verdict while a
  // call is open.
  const bool boundary = !generations_.pending().has_value() && lanes_.IsBoundary(lane);
  const bool may_admit = !scope.draining && !lanes_.AnyOpenBesides(lane);
  const Membership next = boundary ? NextMembership(may_admit) : membership();
  if (next == membership() || !scope.config.state_file) {
    TellVerdict(scope, index, next);
    return;
  }
  SavePending(scope, {PendingChange::Kind::kVerdict, next, std::nullopt, index, {}});
}

// Lanes that held their verdict for the job's pace go on.
void Job::TellPaced(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!std::exchange(lanes_[i].paced, false) || !lanes_[i].round.has_value()) continue;
    AdvanceLane(scope, i);
  }
}

void Job::Save(const JobScope& scope, const Membership& next) const {
  scope.actions.push_back(SaveState{id_, name_, run_, term_, next, settings_.changed()});
}

void Job::SavePending(const JobScope& scope, PendingChange change) {
  Save(scope, change.next);
  generations_.Await(std::move(change), workers_, scope.now + scope.config.lease);
}

void Job::OnStateSaved(const JobScope& scope, const StateSaved& saved) {
  if (saved.ok) return EndWrite(scope, saved.generation, "");
  EndWrite(scope, saved.generation, "could not be written to the state file");
}

// Continues what waited until the generation was on disk. `failure` is the reason if it is not
// there, and "" if it is.
void Job::EndWrite(const JobScope& scope, Generation generation, const std::string& failure) {
  if (!generations_.EndWrite(generation)) return;  // The write was given up earlier.
  if (!failure.empty()) {
    AddNote(scope, NoteKind::kStateFileFailed, "",
            absl::StrCat("Generation ", ToString(generation), " ", failure,
                         "; training continues without it."));
  }
  const std::optional<PendingChange> waited = generations_.TakePending(generation);
  if (!waited.has_value()) return;
  const PendingChange& change = *waited;
  changed_ = true;
  const bool meant = change.StillMeant(workers_);
  switch (change.kind) {
    case PendingChange::Kind::kRecovery:
      return FinishRecovery(scope);
    case PendingChange::Kind::kMembers: {
      const std::optional<Slot> donor =
          change.donor.has_value() ? workers_.Find(*change.donor) : std::nullopt;
      const bool donor_lost = change.donor.has_value() &&
                              (!donor.has_value() || workers_[*donor].state == WorkerState::kLost);
      if (meant && !donor_lost) ApplyChange(scope, change.next, change.donor);
      return;  // A change that no longer fits is chosen again by Reconcile.
    }
    case PendingChange::Kind::kVerdict:
      if (!lanes_[change.lane].round.has_value()) return;
      // A worker that joined may have begun the call meanwhile; it must get the value before the
      // verdict.
      if (meant && lanes_[change.lane].round->Settled()) {
        return TellVerdict(scope, change.lane, change.next);
      }
      // No worker has received the verdict, so the members are chosen again.
      return AdvanceLane(scope, change.lane);
  }
}

void Job::TellVerdict(const JobScope& scope, LaneIndex index, const Membership& next) {
  Lane& lane = lanes_[index];
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
            name_,
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
  if (committed) WatchNorms(scope, name_, lane, record);
  const bool changes = next != membership();
  const std::optional<WorkerId> donor = changes ? DonorFor(next) : std::nullopt;
  SendAll all;
  for (const RoundMember& member : round.members()) {
    Worker& worker = workers_[member.slot];
    worker.out_of_step &= !member.there();
    if (member.alive() && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (!all.sessions.empty()) {
    all.message = Verdict{index, record, donor};
    scope.actions.push_back(std::move(all));
  }
  ++(committed ? rounds_.committed : rounds_.aborted);
  lane.Remember(std::move(record), scope.now);
  lane.round.reset();
  lane.last_used = scope.now;
  scope.actions.push_back(EndRound{id_, index, lane.next - 1});
  pace_.Count(scope.now, scope.config);
  standing_.SendVerdict();
  evidence_.ForgetOrphans();
  if (changes) Activate(scope, next, donor, false);
  changed_ = true;
}

}  // namespace basin::aggregator
