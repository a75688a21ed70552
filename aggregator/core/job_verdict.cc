// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round ends: who is a member of what follows, which is written down first, and the verdict
// that is told.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "aggregator/core/job.h"

namespace basin::aggregator {

bool Job::IsBoundary(const Lane& lane) const {
  bool gradient_lanes = false;
  bool others_open = false;
  for (const Lane& other : lanes_) {
    if (&other != &lane && other.saving) return false;  // One change of members at a time.
    if (other.kind != LaneKind::kGradient) continue;
    gradient_lanes = true;
    others_open |= &other != &lane && other.Open();
  }
  return gradient_lanes ? lane.kind == LaneKind::kGradient && !others_open : true;
}

// Everyone has staged. Decides who is a member of what follows, writes it down if that is
// configured, and tells the verdict.
void Job::Settle(const JobScope& scope, LaneIndex index) {
  Lane& lane = lanes_[index];
  if (PausedIn(lane) || pending_.has_value()) return;
  const Membership next = IsBoundary(lane) ? NextMembership(MayAdmit(scope, lane)) : membership_;
  if (next == membership_ || !scope.config.state_file) {
    TellVerdict(scope, index, next);
    return;
  }
  lane.saving = true;
  lane.saved_next = next;
  Save(scope, next);
}

// A joiner takes part in every round from here on, so none may be open that it is not in:
// where calls are, those who join wait for the next verdict.
bool Job::MayAdmit(const JobScope& scope, const Lane& settled) const {
  return !scope.draining && std::none_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return &lane != &settled && lane.Open();
  });
}

void Job::Save(const JobScope& scope, const Membership& next) {
  written_ = next.generation;
  writes_.push_back({next.generation, scope.now + scope.config.lease});
  written_lives_.clear();
  for (const WorkerId& id : next.members) {
    written_lives_.push_back(workers_[*workers_.Find(id)].incarnation);
  }
  scope.actions.push_back(SaveState{id_, name_, run_, term_, next});
}

// Whether nobody in the list that was written last has come back meanwhile as another incarnation,
// which is not ready yet and does not have the state of the one before.
bool Job::StillMeant(const Membership& written) const {
  for (size_t i = 0; i < written.members.size(); ++i) {
    const std::optional<Slot> slot = workers_.Find(written.members[i]);
    if (!slot.has_value()) return false;  // Lost, and its place was given to another.
    const Worker& worker = workers_[*slot];
    if (worker.state != WorkerState::kLost && worker.incarnation != written_lives_[i]) return false;
  }
  return true;
}

void Job::TakeStateSaved(const JobScope& scope, const StateSaved& saved) {
  if (saved.ok) return EndWrite(scope, saved.generation, "");
  EndWrite(scope, saved.generation, "could not be written to the state file");
}

// A disk that hangs is as good as one that fails: nothing waits for it for ever.
void Job::GiveUpWrites(const JobScope& scope) {
  while (!writes_.empty() && scope.now >= writes_.front().due) {
    EndWrite(scope, writes_.front().generation,
             absl::StrCat("has not been written to the state file in ",
                          absl::FormatDuration(scope.config.lease), "; its disk may hang"));
  }
}

// What waited for the generation to be on disk goes on. `failure`: why it is not there; "" when it
// is.
void Job::EndWrite(const JobScope& scope, Generation generation, const std::string& failure) {
  const auto write = std::find_if(writes_.begin(), writes_.end(), [&](const Write& candidate) {
    return candidate.generation == generation;
  });
  if (write == writes_.end()) return;  // Given up before.
  writes_.erase(write);
  if (!failure.empty()) {
    Say(scope, NoteKind::kStateFileFailed, "",
        absl::StrCat("Generation ", ToString(generation), " ", failure,
                     "; training continues without it."));
  }
  if (saving_recovery_ && generation == membership_.generation) {
    FinishRecovery(scope);
    return;
  }
  if (pending_.has_value() && pending_->next.generation == generation) {
    const PendingChange change = *pending_;
    pending_.reset();
    bool donor_lost = false;
    if (change.donor.has_value()) {
      const std::optional<Slot> slot = workers_.Find(*change.donor);
      donor_lost = !slot.has_value() || workers_[*slot].state == WorkerState::kLost;
    }
    if (!donor_lost && StillMeant(change.next)) {
      ApplyChange(scope, change.next, change.donor);
    }
    changed_ = true;
    return;
  }
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!lane.saving || lane.saved_next.generation != generation) continue;
    lane.saving = false;
    if (!lane.round.has_value()) return;
    if (StillMeant(lane.saved_next)) {
      TellVerdict(scope, i, lane.saved_next);
    } else {
      AdvanceLane(scope, i);  // Nobody was told: the next members are chosen anew.
      changed_ = true;
    }
    return;
  }
}

void Job::TellVerdict(const JobScope& scope, LaneIndex index, const Membership& next) {
  Lane& lane = lanes_[index];
  const Round& round = *lane.round;
  VerdictRecord record;
  record.round = round.number();
  record.ballot = round.ballot();
  record.value_ballot = round.value_ballot();
  record.value = round.value();
  record.next = next;
  record.chain = ExtendChain(lane.chain, record.round, record.value);
  const bool committed = record.value.outcome == Outcome::kCommitted;
  scope.actions.push_back(Note{
      committed ? NoteKind::kRoundCommitted : NoteKind::kRoundAborted, name_, "", lane.name,
      record.round,
      committed ? absl::StrCat("Round ", record.round, " is COMMITTED over ",
                               record.value.contributors.size(), " contributors.")
                : absl::StrCat("Round ", record.round, " is ABORTED: ", record.value.reason, ".")});
  if (committed) WatchNorms(scope, lane, record);
  const bool changes = next != membership_;
  const std::optional<WorkerId> donor = changes ? ChooseDonor(next) : std::nullopt;
  SendAll all;
  for (const RoundMember& member : round.members()) {
    Worker& worker = workers_[member.slot];
    worker.out_of_step &= member.gone || member.presence != Presence::kThere;
    if (!member.gone && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (!all.sessions.empty()) {
    all.message = Verdict{index, record, donor};
    scope.actions.push_back(std::move(all));
  }
  lane.Remember(std::move(record));
  lane.round.reset();
  lane.last_used = scope.now;
  scope.actions.push_back(EndRound{id_, index, lane.next - 1});
  told_verdict_ = true;
  orphans_.clear();  // Another lineage has begun.
  if (changes) Activate(scope, next, donor, false);
  changed_ = true;
}

// Names the workers whose contribution to a committed round is far from what is usual in its lane.
void Job::WatchNorms(const JobScope& scope, Lane& lane, const VerdictRecord& record) const {
  if (scope.config.norm_alarm == 0) return;
  // Infinity is what a minimum or maximum may begin with, and a product has no usual size.
  const ReduceOp op = record.value.spec.op;
  const bool sums = op != ReduceOp::kMin && op != ReduceOp::kMax && op != ReduceOp::kProduct;
  if (lane.kind == LaneKind::kCall && !sums) return;
  const double loss_scale = record.value.spec.loss_scale;
  const bool scaled = loss_scale != 1;
  for (const UnusualNorm& unusual :
       lane.norms.Add(record.value.contributors, loss_scale, scope.config.norm_alarm)) {
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
        Note{NoteKind::kContributionUnusual, name_, unusual.worker, lane.name, record.round,
             absl::StrCat("The contribution of worker ", unusual.worker, " to round ", record.round,
                          " of lane ", lane.name, " ", what,
                          ". It was counted; check the worker's data and hardware.")});
  }
}

}  // namespace basin::aggregator
