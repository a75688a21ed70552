// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The generations of a job: its members and the one that gives its state to those who joined last;
// which number the next generation has; and, with a state file, the one change of members that
// waits until it is on disk.
//
// A number is given once, also to a generation that was written and came to nothing. When members
// change, and who is a member then, is decided by the job (job_members.cc, job_verdict.cc) and by
// the functions in membership.h.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_GENERATIONS_H_
#define BASIN_AGGREGATOR_CORE_GENERATIONS_H_

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/core/membership.h"
#include "aggregator/core/state_writes.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Generations {
 public:
  const Membership& current() const { return current_; }
  // It gives its state to those who joined last.
  const std::optional<WorkerId>& donor() const { return donor_; }

  // ---- what follows
  // The newest generation that was ever in force or handed to the disk.
  Generation Newest() const { return std::max(current_.generation, writes_.newest()); }
  // The next one in this term.
  Generation Next(Term term) const {
    const Generation newest = Newest();
    return {term, newest.term == term ? newest.counter + 1 : 1};
  }
  // The current generation, or the next one if its members are others.
  Membership Choose(const Workers& workers, const NextMembers& which, Term term) const {
    Membership next = current_;
    next.members = ChooseMembers(current_.members, workers, which);
    if (next.members != current_.members || AnyRevived(next.members, workers)) {
      next.generation = Next(term);
    }
    return next;
  }
  // Which worker gives its state to those in `next` who lack it. `trained`: there was a round.
  std::optional<WorkerId> DonorFor(const Membership& next, const Workers& workers,
                                   bool trained) const {
    // All members may still load the state of a worker that has left them and serves it.
    if (!AnyMemberHoldsState(workers) && DonorServes(donor_, workers)) return donor_;
    return ChooseDonor(current_.members, next.members, workers, trained);
  }

  // ---- what is in force
  void Activate(const Membership& next, std::optional<WorkerId> donor) {
    current_ = next;
    donor_ = std::move(donor);
  }
  void NameDonor(std::optional<WorkerId> donor) { donor_ = std::move(donor); }
  // The members of a recovery.
  void Recover(Term term, MemberList members) {
    current_ = Membership{Next(term), std::move(members)};
  }
  // Another run begins. Its number stays, so that it never goes back.
  void ForgetMembers() { current_.members = MemberList(); }
  // The job recovers, or its lineage ends: no change waits any more.
  void DropPending() { pending_.reset(); }
  void ForgetDonor() { donor_.reset(); }

  // ---- what is on its way to the disk
  const std::optional<PendingChange>& pending() const { return pending_; }
  bool IsPending(PendingChange::Kind kind) const {
    return pending_.has_value() && pending_->kind == kind;
  }
  // Whether the verdict of this lane waits.
  bool HoldsVerdict(LaneIndex lane) const {
    return IsPending(PendingChange::Kind::kVerdict) && pending_->lane == lane;
  }
  // The generation is handed to the disk, and given up when that has not ended at `due`.
  void Write(const Generation& generation, absl::Time due) { writes_.Begin(generation, due); }
  // The change waits until its generation is on disk, or is given up. REQUIRES: no other one waits.
  void Await(PendingChange change, const Workers& workers, absl::Time due) {
    for (const WorkerId& id : change.next.members) {
      change.lives.push_back(workers[*workers.Find(id)].incarnation);
    }
    pending_ = std::move(change);
    Write(pending_->next.generation, due);
  }
  // When the oldest write is given up, and which one that is.
  absl::Time due() const { return writes_.due(); }
  const Generation& oldest() const { return writes_.oldest(); }
  // The write has ended, well or not. Returns false if it was given up before.
  bool EndWrite(const Generation& generation) { return writes_.End(generation); }
  // The change that waited for this generation; nothing if none did.
  std::optional<PendingChange> TakePending(const Generation& generation) {
    if (!pending_.has_value() || pending_->next.generation != generation) return std::nullopt;
    return std::exchange(pending_, std::nullopt);
  }

  // All workers that are named here, and may not be forgotten.
  std::set<WorkerId> Named() const {
    std::set<WorkerId> named(current_.members.begin(), current_.members.end());
    if (donor_.has_value()) named.insert(*donor_);
    if (!pending_.has_value()) return named;
    named.insert(pending_->next.members.begin(), pending_->next.members.end());
    if (pending_->donor.has_value()) named.insert(*pending_->donor);
    return named;
  }

  auto Fields() const { return std::tie(current_, donor_, writes_, pending_); }

 private:
  Membership current_;
  std::optional<WorkerId> donor_;
  StateWrites writes_;
  std::optional<PendingChange> pending_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_GENERATIONS_H_
