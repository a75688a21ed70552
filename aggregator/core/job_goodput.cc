// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_goodput.h"

#include <algorithm>
#include <vector>

#include "aggregator/core/round_summary.h"
#include "aggregator/core/round_waits.h"

namespace basin::aggregator {
namespace {

bool HasOpenGradientRound(const Lane& lane) {
  return lane.kind == LaneKind::kGradient && lane.Open();
}

// Returns whether nothing has arrived from the member for so long that it may be lost.
bool IsSilent(const Worker& worker, const Config& config, absl::Time now) {
  return !worker.connected() || now - worker.last_message > config.silence();
}

}  // namespace

LostMember LossOf(const Job& job, Slot slot, absl::Time now) {
  const Worker& worker = job.workers[slot];
  LostMember lost{slot, worker.id, worker.left ? now : worker.last_message};
  for (const Lane& lane : job.lanes) {
    if (!HasOpenGradientRound(lane) || !lane.round->Has(slot)) continue;
    const RoundMember& member = lane.round->roster.At(slot);
    lost.contributed |= member.contribution.effective();
    lost.owed |= member.contribution.incomplete();
    lost.delayed |= Awaits(*lane.round, lane.layout, member).what != Awaited::What::kNothing;
  }
  return lost;
}

GoodputView GoodputAsOf(const Job& job, const Config& config, absl::Time now) {
  std::vector<LostMember> silent;
  std::vector<bool> is_silent(job.workers.size());
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (!IsMember(worker) || !IsSilent(worker, config, now)) continue;
    is_silent[slot] = true;
    silent.push_back(LossOf(job, slot, now));
  }
  // Those that fell silent first would be lost first.
  std::stable_sort(silent.begin(), silent.end(), [](const LostMember& a, const LostMember& b) {
    return a.silent_since < b.silent_since;
  });
  std::vector<const Round*> rounds;
  for (const Lane& lane : job.lanes) {
    if (HasOpenGradientRound(lane)) rounds.push_back(&*lane.round);
  }
  // The round that has been open for longest has its verdict first, as things stand.
  std::stable_sort(rounds.begin(), rounds.end(),
                   [](const Round* a, const Round* b) { return a->opened < b->opened; });
  std::vector<RoundTimes> open;
  for (const Round* round : rounds) {
    open.push_back(TimesSoFar(*round, now));
    for (RoundTimes::Part& part : open.back().parts) part.alive &= !is_silent[part.slot];
  }
  return job.goodput.AsOf(now, silent, open);
}

}  // namespace basin::aggregator
