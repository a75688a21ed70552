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

#include "aggregator/core/round.h"

namespace basin::aggregator {

bool Round::Stuck() const {
  return agreement_.made() && roster_.free() == 0 && roster_.effective() < roster_.contributors() &&
         attempt_.idle();
}

void Round::EnterPull(const RoundScope& scope) {
  AddNote(scope, NoteKind::kPullMode, "",
          "No window has room and no chunk is complete, so chunks are pulled in layout order.");
  PlanPull(scope);
}

void Round::PlanPull(const RoundScope& scope) {
  pull_ = PullMode::kPlanned;
  // The front, without tensors that all contributors skip.
  std::vector<uint32_t> front;
  uint64_t bytes = 0;
  for (uint32_t flat = 0; flat < attempt_.chunks(); ++flat) {
    if (attempt_.IsReduced(flat)) continue;
    if (attempt_.Skips(scope.layout.TensorOf(flat)) == roster_.contributors()) continue;
    bytes += scope.layout.SizeOf(flat);
    if (bytes > scope.memory.window) break;
    front.push_back(flat);
  }
  Bitmap in_front(attempt_.chunks());
  for (const uint32_t flat : front) in_front.Set(flat);

  for (RoundMember& member : roster_) {
    if (!member.alive() || !member.contribution.incomplete()) continue;
    RangeBuilder discarded(scope.layout);
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (!member.contribution.Has(flat) || in_front.Test(flat)) continue;
      if (!attempt_.IsOpen(flat) || IsWhole(scope.layout.TensorOf(flat), flat)) continue;
      member.contribution.TakeBack(flat, scope.layout.SizeOf(flat), true);
      attempt_.Left(flat);
      member.asked.Clear(flat);
      discarded.Add(flat);
    }
    RangeBuilder wanted(scope.layout);
    for (const uint32_t flat : front) {
      if (member.contribution.Has(flat) || member.contribution.Skips(scope.layout.TensorOf(flat)))
        continue;
      if (member.asked.Set(flat)) wanted.Add(flat);
    }
    Pull pull{scope.lane, number_, wanted.Take(), discarded.Take(),
              FlowControl::Window(scope.memory, member)};
    UpdateBlocked(scope, member);
    if (pull.wanted.empty() && pull.discarded.empty()) continue;
    member.room.told = pull.window;
    if (!pull.discarded.empty()) {
      scope.actions.push_back(
          DiscardChunks{scope.job, scope.lane, number_, member.incarnation, pull.discarded});
    }
    SendTo(scope, member, std::move(pull));
  }
}

}  // namespace basin::aggregator
