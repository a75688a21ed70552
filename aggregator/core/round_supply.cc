// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Members that lack bytes of the prepared value get them from those that hold it. If no holder is
// left, the round runs again.

#include <utility>

#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_members.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {
namespace {

// Runs the round again after all holders of the value were lost. The other members push their
// contributions again. Their clients consider the round prepared, so they report everything again
// on a new session.
void RunAgain(Round& round, const RoundScope& scope, const std::string& reason) {
  if (!round.Apply(scope, RoundInput::kRunAgain)) return;
  round.supplies.Clear();
  round.value = RoundValue{};
  round.agreement.Reopen();
  for (RoundMember& member : round.roster) {
    round.roster.Apply(member, StagingInput::kPrepare);
    member.holds = false;
    if (!member.alive()) {
      // Restart drops an effective contribution whose bytes are gone. One without bytes stays, and
      // skips the tensors that were registered after the value was prepared.
      if (member.contribution.effective()) {
        SkipWhatIsNotCommitted(round, scope, member);
      } else {
        RemoveContribution(round, scope, member, ContributionInput::kDrop);
      }
      continue;
    }
    // An undecided worker that does not contribute joined after the value was fixed.
    const bool joins =
        member.presence.state() == Presence::kUndecided && !member.contribution.counts();
    if (member.contribution.effective() || joins)
      round.roster.Apply(member, ContributionInput::kRunAgain);
  }
  for (const RoundMember& member : round.roster) {
    if (member.alive() && member.contribution.counts()) {
      RemoveEarlierLives(round, scope, member);
    }
  }
  round.reconnect = true;
  Restart(round, scope, reason);
}

}  // namespace

void AskSupply(Round& round, const RoundScope& scope) {
  if (round.phase() != RoundPhase::kPrepared || round.supplies.empty()) return;
  if (!round.adopted.has_value() && round.ValueIsLost()) {
    // Not every member has staged it, so its verdict was not sent.
    RunAgain(round, scope, "no worker with the prepared value is left");
    return;
  }
  for (const RoundMember& member : round.roster) {
    if (!member.alive() || !member.holds || !scope.job.workers[member.slot].connected()) continue;
    RangeBuilder ranges(scope.lane.layout);
    for (const uint32_t flat : round.supplies.Ask(member.slot)) ranges.Add(flat);
    Supply supply{scope.index, round.number, round.value_ballot, ranges.Take()};
    if (!supply.ranges.empty()) SendTo(scope, member, std::move(supply));
    return;
  }
}

void OnNeed(Round& round, const RoundScope& scope, Slot slot, const Need& need) {
  if (round.phase() != RoundPhase::kPrepared || !(need.ballot == round.value_ballot)) return;
  if (!round.TakesPart(slot)) return;
  const Worker& worker = scope.job.workers[slot];
  RangeBuilder held(scope.lane.layout);
  std::set<uint32_t> flats;
  for (const ChunkRange& range : need.ranges) {
    for (const uint32_t flat : scope.lane.layout.Chunks(range)) flats.insert(flat);
  }
  for (const uint32_t flat : flats) {
    if (round.attempt.IsReduced(flat) && round.held.Holds(flat)) {
      held.Add(flat);
    } else {
      round.supplies.Want(flat, slot);
    }
  }
  PublishTo(round, worker, scope, held.Take());
  AskSupply(round, scope);
}

void OnSupply(Round& round, const RoundScope& scope, Slot slot, const FrameReceived& frame) {
  if (round.phase() != RoundPhase::kPrepared || !(frame.ballot == round.value_ballot)) return;
  if (!round.roster.At(slot).holds) return;  // The chunks were not requested from it.
  std::set<Slot> wanting;
  for (const ChunkRange& range : frame.ranges) {
    for (const uint32_t flat : scope.lane.layout.Chunks(range)) {
      round.supplies.Relay(flat, wanting);
    }
  }
  const auto relay = [&](const ChunkRanges& ranges, uint64_t bytes, bool lists) {
    RelayResult whole{scope.job.id, scope.index, round.number, round.value_ballot, ranges,
                      bytes,        {},          {},           frame.shard};
    for (const Slot to : wanting) {
      const Worker& worker = scope.job.workers[to];
      if (!worker.connected() || (worker.frame_tensors >= frame.ranges.size()) != lists) continue;
      whole.sessions.push_back(*worker.session);
    }
    if (!whole.sessions.empty()) scope.actions.push_back(std::move(whole));
  };
  relay(frame.ranges, frame.bytes, true);
  if (frame.ranges.size() == 1) return;
  for (const ChunkRange& range : frame.ranges) {
    relay({range}, scope.lane.layout.RangeBytes(range), false);
  }
}

}  // namespace basin::aggregator
