// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The evidence from which a job recovers, and its decision. The evidence is the hellos that it
// holds, the state file, the members that this process led, and the values that were lost with all
// their holders. The pure function in recovery.h makes the decision; this class calls it.
//
// Evidence outlives a recovery that failed. Values stay lost until a recovery explains them, an
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

  // The state file recorded this about the job. It is empty once the job has decided what it means.
  const std::optional<SavedState>& saved() const { return saved_; }
  // Returns whether that includes a generation. If not, an operator has changed settings of a job
  // that had no members yet.
  bool HasSavedGeneration() const {
    return saved_.has_value() && saved_->membership.generation.term > 0;
  }
  const HeldHellos& held() const { return held_; }
  HeldHellos& held() { return held_; }

  // ---- begin and end
  // The job recovers from now on. `led`: its members, if it led a run with a history.
  void Begin(absl::Time now, const std::optional<Membership>& led) {
    since_ = now;
    if (led.has_value()) led_ = led;
  }
  // What an operator had changed under an earlier aggregator does not hold any more.
  void ForgetSettings() {
    if (saved_.has_value()) saved_->settings.reset();
  }
  // A value that a recovery adopted was lost with all its holders.
  void Lose(Orphan orphan) { orphans_.push_back(std::move(orphan)); }
  // Forgets the held sessions and what was decided; what else is known stays.
  void Forget() {
    held_.TakeSessions();
    ForgetDecision();
    more_hellos_ = false;
  }
  // The run has a name, so what the state file recorded about another run does not count.
  void NameRun(const RunId& run) {
    if (saved_.has_value() && !saved_->run.empty() && saved_->run != run) saved_.reset();
  }
  // Another run begins, or the recovery has ended, so earlier evidence does not count any more.
  void Close() {
    orphans_.clear();
    saved_.reset();
    led_.reset();
    forced_ = false;
  }
  // The run is new. A worker that remembers it may still come and must then explain the lost
  // values, unless an operator has decided to go on.
  void CloseAsNew() {
    if (forced_) orphans_.clear();
    saved_.reset();
    led_.reset();
    forced_ = false;
  }
  // A verdict was sent, so lost values do not matter any more.
  void ForgetOrphans() { orphans_.clear(); }

  // ---- the decision
  // An operator decides to go on with the workers that are back.
  void Force() { forced_ = true; }
  // Returns when the recovery window is over.
  absl::Time Due(const Config& config) const { return since_ + config.recovery_window; }
  // Returns whether to make a decision, which reads all hellos. Before the window is over, a
  // decision needs every worker of the newest list. A large job that lacks many is looked at after
  // every few hellos, only to update the reason for its wait.
  bool MayDecide(const Config& config, absl::Time now, bool halted) const;
  // Decides from the current hellos. A decision that needs more memory than is free halts, and
  // gives that as its reason.
  RecoveryDecision Decide(const Config& config, uint32_t max_workers, absl::Time now, bool halted,
                          MemoryBudget& memory) const;
  // The highest term that a hello mentions, or `least` if that is higher.
  Term HighestTermAbove(Term least) const;

  // ---- a decision that is being written down
  void Decided(NoteCause cause, std::vector<RecoveredLane> lanes) {
    cause_ = cause;
    lanes_ = std::move(lanes);
  }
  // Another worker that remembers the run has sent a hello meanwhile.
  void OnMoreHellos() { more_hellos_ = true; }
  // Returns whether one has, which makes the decision void.
  bool TakeMoreHellos() { return std::exchange(more_hellos_, false); }
  NoteCause cause() const { return cause_; }
  const std::vector<RecoveredLane>& lanes() const { return lanes_; }
  void ForgetDecision() { Decided(NoteCause::kUnspecified, {}); }
  // Returns whether the worker's hello reports that its trainer takes part in this round.
  bool TakesPart(const WorkerId& worker, const std::string& lane, RoundNumber round) const;

  auto Fields() const {
    return std::tie(held_, saved_, led_, orphans_, since_, forced_, cause_, lanes_, more_hellos_);
  }

 private:
  // The window counts as over for a job that is halted, because the job has waited for it.
  bool WindowIsOver(const Config& config, absl::Time now, bool halted) const {
    return halted || now >= Due(config);
  }
  // Returns whether there is memory to track the lanes; if not, the decision gets that as its
  // reason.
  bool Fits(uint32_t max_workers, MemoryBudget& memory, RecoveryDecision& decision) const;

  HeldHellos held_;
  std::optional<SavedState> saved_;
  std::optional<Membership> led_;  // See RecoveryFacts.
  std::vector<Orphan> orphans_;    // The next recovery must explain them.
  absl::Time since_ = absl::InfiniteFuture();
  bool forced_ = false;
  NoteCause cause_ = NoteCause::kUnspecified;
  std::vector<RecoveredLane> lanes_;
  bool more_hellos_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_EVIDENCE_H_
