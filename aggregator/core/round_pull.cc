// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Pull mode: a round enters it when every window is full of chunks that others lack, for example
// because two workers push in opposite orders and a window is smaller than the model.
//
// The front is the first part of the layout that is not reduced yet, as much of it as fits one
// window. Each contributor is asked to push what it lacks of the front. Its parked chunks beyond
// the front are dropped, which costs only another push, because the client owns its contribution
// until the verdict. The front moves on as chunks are reduced, so the round always ends.
//
// A window of one frame for each worker is enough, because a chunk of the front waits for the
// others where it is parked. A job is admitted only with that much.

#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_shards.h"

namespace basin::aggregator {

void AdvancePull(Round& round, const RoundScope& scope) {
  const bool stuck = round.agreement.made() && round.roster.free() == 0 &&
                     round.roster.effective() < round.roster.contributors() && round.attempt.idle();
  if (!round.pull_mode() && stuck) {
    AddNote(round, scope, NoteKind::kPullMode, "",
            "No window has room and no chunk is complete, so chunks are pulled in layout order.");
    PlanPull(round, scope);
  } else if (round.pull == PullMode::kPlanAgain) {
    PlanPull(round, scope);
  }
}

void PlanPull(Round& round, const RoundScope& scope) {
  round.pull = PullMode::kPlanned;
  // The front, without tensors that all contributors skip.
  std::vector<uint32_t> front;
  uint64_t bytes = 0;
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat) {
    if (round.attempt.IsReduced(flat)) continue;
    if (round.attempt.Skips(scope.lane.layout.TensorOf(flat)) == round.roster.contributors())
      continue;
    bytes += scope.lane.layout.SizeOf(flat);
    if (bytes > scope.lane.memory.window) break;
    front.push_back(flat);
  }
  Bitmap in_front(round.attempt.chunks());
  for (const uint32_t flat : front) in_front.Set(flat);

  for (RoundMember& member : round.roster) {
    if (!member.alive() || !member.contribution.incomplete()) continue;
    RangeBuilder discarded(scope.lane.layout);
    RangeBuilder dropped(scope.lane.layout);  // Those of them that are parked.
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (in_front.Test(flat)) continue;
      if (!member.contribution.Has(flat)) {
        // A shard was lost, so the front is further back. What is on its way beyond it would take
        // the room of the front.
        if (!round.attempt.AnyRedone() || !round.attempt.IsOpen(flat)) continue;
        if (member.asked.Clear(flat)) discarded.Add(flat);
        continue;
      }
      if (!round.attempt.IsOpen(flat) || IsWhole(round, scope.lane.layout.TensorOf(flat), flat))
        continue;
      member.contribution.TakeBack(flat, scope.lane.layout.SizeOf(flat),
                                   scope.lane.shares.Of(scope.lane.layout, flat), true);
      round.attempt.Left(flat);
      member.asked.Clear(flat);
      discarded.Add(flat);
      dropped.Add(flat);
    }
    RangeBuilder wanted(scope.lane.layout);
    for (const uint32_t flat : front) {
      if (member.contribution.Has(flat) ||
          member.contribution.Skips(scope.lane.layout.TensorOf(flat)))
        continue;
      if (member.asked.Set(flat)) wanted.Add(flat);
    }
    Pull pull{scope.index, round.number, wanted.Take(), discarded.Take(),
              FlowControl::Least(scope.lane.memory, member, scope.lane.shares)};
    UpdateBlocked(round, scope, member);
    if (pull.wanted.empty() && pull.discarded.empty()) continue;
    DiscardParked(round, scope, member.incarnation, dropped.Take());
    SendTo(scope, member, std::move(pull));
    SendWindows(round, scope, member);
  }
}

}  // namespace basin::aggregator
