// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The generations of a job: its members, the donor of its state, the number of the next generation,
// and, with a state file, the one change of members that waits until it is on disk.
//
// A number is given once, even if its generation was written and never took effect. The job
// (job_members.cc, job_rounds.cc) and the functions in membership.h decide when members change and
// which workers are members then.
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
  // The worker that sends the state to the members that lack it.
  const std::optional<WorkerId>& donor() const { return donor_; }

  // ---- the next generation
  // The newest generation that was ever in force or on its way to the disk.
  Generation Newest() const { return std::max(current_.generation, writes_.newest()); }
  // The next generation in this term.
  Generation Next(Term term) const {
    const Generation newest = Newest();
    return {term, newest.term == term ? newest.counter + 1 : 1};
  }
  // The current generation, or the next one if the members change.
  Membership Choose(const Workers& workers, const NextMembers& which, Term term) const {
    Membership next = current_;
    next.members = ChooseMembers(current_.members, workers, which);
    if (next.members != current_.members || AnyRevived(next.members, workers)) {
      next.generation = Next(term);
    }
    return next;
  }
  // The worker that sends its state to members of `next` that lack it. `trained`: there was a
  // round.
  std::optional<WorkerId> DonorFor(const Membership& next, const Workers& workers,
                                   bool trained) const {
    // All members may still be loading the state from a donor that has left the list but is here.
    if (!AnyMemberHoldsState(workers) && DonorServes(donor_, workers)) return donor_;
    return ChooseDonor(current_.members, next.members, workers, trained);
  }

  // ---- the current generation
  void Activate(const Membership& next, std::optional<WorkerId> donor) {
    current_ = next;
    donor_ = std::move(donor);
  }
  void NameDonor(std::optional<WorkerId> donor) { donor_ = std::move(donor); }
  // The job goes on with the members that a recovery chose.
  void Recover(Term term, MemberList members) {
    current_ = Membership{Next(term), std::move(members)};
  }
  // Another run begins. The number of the generation stays, because it never goes back.
  void ForgetMembers() { current_.members = MemberList(); }
  // The job recovers, or its lineage ends, so no change waits any more.
  void DropPending() { pending_.reset(); }
  void ForgetDonor() { donor_.reset(); }

  // ---- generations on their way to the disk
  const std::optional<PendingChange>& pending() const { return pending_; }
  bool IsPending(PendingChange::Kind kind) const {
    return pending_.has_value() && pending_->kind == kind;
  }
  // Returns whether the verdict of this lane waits for the disk.
  bool HoldsVerdict(LaneIndex lane) const {
    return IsPending(PendingChange::Kind::kVerdict) && pending_->lane == lane;
  }
  // The disk is to write the generation. The write is given up if it has not ended at `due`.
  void Write(const Generation& generation, absl::Time due) { writes_.Begin(generation, due); }
  // The change waits until its generation is on disk or given up. REQUIRES: no other change waits.
  void Await(PendingChange change, const Workers& workers, absl::Time due) {
    for (const WorkerId& id : change.next.members) {
      change.lives.push_back(workers[*workers.Find(id)].incarnation);
    }
    pending_ = std::move(change);
    Write(pending_->next.generation, due);
  }
  // The oldest write is given up at due(); oldest() is its generation.
  absl::Time due() const { return writes_.due(); }
  const Generation& oldest() const { return writes_.oldest(); }
  // The write has ended, well or not. Returns false if it was given up earlier.
  bool EndWrite(const Generation& generation) { return writes_.End(generation); }
  // Returns the change that waited for this generation, if any.
  std::optional<PendingChange> TakePending(const Generation& generation) {
    if (!pending_.has_value() || pending_->next.generation != generation) return std::nullopt;
    return std::exchange(pending_, std::nullopt);
  }

  // All workers that this object names; the job must not forget them.
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
