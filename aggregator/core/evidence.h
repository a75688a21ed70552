// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job goes by when it recovers, and what it has decided from that: the hellos that it holds,
// the state file, the members that this process led, and the values that were lost with all their
// holders. The decision itself is the pure function in recovery.h; this is what it is asked about,
// and when.
//
// Evidence outlives a recovery that failed: values stay lost until a recovery explains them, an
// operator decides to go on without them, or another lineage begins.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_EVIDENCE_H_
#define BASIN_AGGREGATOR_CORE_EVIDENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "aggregator/core/held_hellos.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/recovery.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Evidence {
 public:
  explicit Evidence(std::optional<SavedState> saved) : saved_(std::move(saved)) {}

  // What the state file says of the job, until it is decided what that means.
  const std::optional<SavedState>& saved() const { return saved_; }
  const HeldHellos& held() const { return held_; }
  HeldHellos& held() { return held_; }

  // ---- before and after
  // The job recovers from now on. `led`: its members, if it led a run with a history.
  void Begin(absl::Time now, const std::optional<Membership>& led) {
    since_ = now;
    if (led.has_value()) led_ = led;
  }
  // A value that a recovery adopted was lost with all its holders.
  void Lose(Orphan orphan) { orphans_.push_back(std::move(orphan)); }
  // The hellos and what was decided from them are forgotten; what else is known stays.
  void Forget() {
    held_.TakeSessions();
    lanes_.clear();
    heard_more_ = false;
  }
  // The run is named. What the state file says of another one is of no account.
  void NameRun(const RunId& run) {
    if (saved_.has_value() && !saved_->run.empty() && saved_->run != run) saved_.reset();
  }
  // Another run begins, or the recovery has ended: what came before is of no account.
  void Close() {
    orphans_.clear();
    saved_.reset();
    led_.reset();
    forced_ = false;
  }
  // The run is new. Somebody who remembers may still come, and has to explain the lost values then,
  // unless an operator has decided to go on.
  void CloseAsNew() {
    if (forced_) orphans_.clear();
    saved_.reset();
    led_.reset();
    forced_ = false;
  }
  // A verdict was sent: another lineage has begun.
  void ForgetOrphans() { orphans_.clear(); }

  // ---- the decision
  // An operator decides to go on with the workers that are back.
  void Force() { forced_ = true; }
  // When the recovery window is over.
  absl::Time Due(const Config& config) const { return since_ + config.recovery_window; }
  // Whether the hellos are worth a decision, which reads all of them. Before the window is over, it
  // needs everybody of the newest list; a large job, in which many are missing, is looked at now
  // and then, so that what it waits for is up to date.
  bool MayDecide(const Config& config, absl::Time now, bool halted) const;
  // What follows from the hellos now. A decision that needs more memory than there is halts, and
  // its reason says so.
  RecoveryDecision Decide(const Config& config, uint32_t max_workers, absl::Time now, bool halted,
                          MemoryBudget& memory) const;
  // The highest term that a hello mentions, or `least` if that is higher.
  Term HighestTermAbove(Term least) const;

  // ---- a decision that is being written down
  void Decided(std::vector<RecoveredLane> lanes) { lanes_ = std::move(lanes); }
  // Somebody else who remembers was heard meanwhile.
  void HearMore() { heard_more_ = true; }
  // Whether somebody was, so that the decision is void.
  bool TakeHeardMore() { return std::exchange(heard_more_, false); }
  const std::vector<RecoveredLane>& lanes() const { return lanes_; }
  void ForgetLanes() { lanes_.clear(); }
  // Whether the hello of the worker says that its trainer takes part in this round.
  bool TakesPart(const WorkerId& worker, const std::string& lane, RoundNumber round) const;

  auto Fields() const {
    return std::tie(held_, saved_, led_, orphans_, since_, forced_, lanes_, heard_more_);
  }

 private:
  // Also for a job that is halted: it has waited.
  bool WindowIsOver(const Config& config, absl::Time now, bool halted) const {
    return halted || now >= Due(config);
  }
  // Whether there is memory to keep track of the lanes; if not, the decision's reason says so.
  bool Fits(uint32_t max_workers, MemoryBudget& memory, RecoveryDecision& decision) const;

  HeldHellos held_;
  std::optional<SavedState> saved_;
  std::optional<Membership> led_;  // As in RecoveryFacts.
  std::vector<Orphan> orphans_;    // What the next recovery has to explain.
  absl::Time since_ = absl::InfiniteFuture();
  bool forced_ = false;
  std::vector<RecoveredLane> lanes_;
  bool heard_more_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_EVIDENCE_H_
