// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/evidence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "protocol/layout.h"
#include "protocol/plural.h"

namespace basin::aggregator {

bool Evidence::MayDecide(const Config& config, absl::Time now, bool halted) const {
  constexpr size_t kDecideEvery = 64;
  if (forced_ || WindowIsOver(config, now, halted)) return true;
  const Membership* newest = &held_.newest();
  if (saved_ && newest->generation < saved_->membership.generation) newest = &saved_->membership;
  if (led_ && newest->generation < led_->generation) newest = &*led_;
  const size_t needed = newest->members.size();
  const size_t here = held_.hellos().size();
  return needed <= kDecideEvery || here >= needed || here % kDecideEvery == 0;
}

RecoveryDecision Evidence::Decide(const Config& config, uint32_t max_workers, absl::Time now,
                                  bool halted, MemoryBudget& memory) const {
  const bool window_over = WindowIsOver(config, now, halted);
  bool fresh = false;
  bool remembered = false;
  for (const auto& [id, hello] : held_.hellos()) {
    fresh |= hello.fresh;
    remembered |= HasHistory(hello);
  }
  const bool vouched = !HasSavedGeneration() && !remembered;
  const bool forced = forced_ || (window_over && config.recovery_policy == RecoveryPolicy::kAny);
  const RecoveryStep not_yet = window_over ? RecoveryStep::kHalt : RecoveryStep::kWait;
  RecoveryDecision decision = DecideRecovery(
      held_.hellos(), RecoveryFacts{saved_, led_, orphans_, max_workers, window_over, forced},
      config.rules);
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
      if (forced) {
        decision.cause = NoteCause::kGoesOnWithoutMissing;
      } else {
        decision.step = not_yet;
      }
    }
  }
  if (decision.step == RecoveryStep::kFresh && remembered && !orphans_.empty()) {
    decision.reason = Describe(orphans_.front());
    decision.step = not_yet;
  }
  if (decision.step == RecoveryStep::kRecover && !Fits(max_workers, memory, decision)) {
    decision.step = RecoveryStep::kHalt;
  }
  if (held_.refused() > 0) {
    absl::StrAppend(&decision.reason, "; there is no memory for the history of ",
                    CountOf(held_.refused(), "worker"));
  }
  return decision;
}

bool Evidence::Fits(uint32_t max_workers, MemoryBudget& memory, RecoveryDecision& decision) const {
  uint64_t need = 0;
  const Histories histories = HistoriesOf(held_.hellos());
  for (const RecoveredLane& lane : decision.lanes) {
    uint64_t chunks = 0;
    for (const TensorSpec& spec : lane.layout) {
      chunks += ChunkCount(*TensorBytes(spec));
      need += EntryBytes(spec);
    }
    need += TrackingBytes(std::max<uint32_t>(max_workers, 1), static_cast<uint32_t>(chunks));
    need += LedgerNeed(lane, histories);
  }
  if (need <= memory.free()) return true;
  memory.shortage |= memory.cached > 0;
  decision.reason =
      absl::StrCat("its lanes need ", need, " bytes of bookkeeping, but ", memory.free(), " of ",
                   memory.total, " are free, and ", held_.bytes(),
                   " hold the histories of the workers; give the aggregator more memory");
  return false;
}

Term Evidence::HighestTermAbove(Term least) const {
  Term highest = least;
  for (const auto& [id, hello] : held_.hellos()) highest = std::max(highest, HighestTerm(hello));
  return highest;
}

bool Evidence::TakesPart(const WorkerId& worker, const std::string& lane, RoundNumber round) const {
  const Hello* hello = held_.Find(worker);
  if (hello == nullptr) return false;
  return std::any_of(hello->lanes.begin(), hello->lanes.end(), [&](const LaneHistory& history) {
    const bool staged = history.staged.has_value() && history.staged->round == round;
    return history.name == lane && (history.begun == round || staged);
  });
}

}  // namespace basin::aggregator
