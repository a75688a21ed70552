// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_scope.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/action.h"

namespace basin::aggregator {

Note& AddNote(const Round& round, const RoundScope& scope, NoteKind kind, const WorkerId& worker,
              const std::string& text) {
  return std::get<Note>(scope.actions.emplace_back(
      Note{kind, scope.job.name, worker, scope.lane.name, round.number, text}));
}

void Reject(const Round& round, const RoundScope& scope, const RoundMember& member, ErrorCode code,
            const std::string& text) {
  AddNote(round, scope, NoteKind::kContributionRejected, member.id,
          absl::StrCat(ErrorCodeName(code), ": ", text));
  SendTo(scope, member, Rejected{Error{code, text}, scope.index, round.number});
}

void SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message, bool can_wait) {
  const Worker& worker = scope.job.workers[member.slot];
  if (!member.alive() || !worker.connected()) return;
  scope.actions.push_back(Send{*worker.session, std::move(message), can_wait});
}

}  // namespace basin::aggregator
