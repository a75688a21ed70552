// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_shards.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {
namespace {

// The results are reduced, so a member that has staged them supplies them to those that lack them.
void LoseResults(Round& round, const RoundScope& scope, const std::vector<uint32_t>& lost) {
  // What was passed on there may not have arrived.
  round.supplies.LoseRelayed();
  if (round.value.outcome != Outcome::kCommitted) return;
  for (const uint32_t flat : lost) {
    if (!round.held.Lose(flat)) continue;
    round.held.Release(scope.lane.layout.SizeOf(flat));
    if (scope.config.rules.leaves_results_lost) continue;
    for (const RoundMember& member : round.roster) {
      if (!member.is_sent_results() || member.staged() || member.reception.Has(flat)) continue;
      round.supplies.Want(flat, member.slot);
    }
  }
  AskSupply(round, scope);
}

// Takes back what the member had pushed of these chunks, and asks for it again.
void TakeBackLost(Round& round, const RoundScope& scope, RoundMember& member,
                  const std::vector<uint32_t>& again, ShardId shard) {
  RangeBuilder taken(scope.lane.layout);
  RangeBuilder parked(scope.lane.layout);
  for (const uint32_t flat : again) {
    const bool is_parked = !round.attempt.IsReduced(flat);
    if (!member.contribution.TakeBack(flat, scope.lane.layout.SizeOf(flat), shard, is_parked)) {
      continue;
    }
    round.attempt.Left(flat);
    taken.Add(flat);
    if (round.attempt.IsOpen(flat)) parked.Add(flat);
  }
  // A shard that is gone ignores this; one that a worker cannot reach frees them.
  if (std::vector<ChunkRange> ranges = parked.Take(); !ranges.empty()) {
    scope.actions.push_back(DiscardChunks{scope.job.id, scope.index, round.number,
                                          member.incarnation, std::move(ranges), shard});
  }
  member.contribution.Place(scope.lane.layout, scope.lane.shares);
  std::vector<ChunkRange> ranges = taken.Take();
  if (!ranges.empty()) {
    if (member.contribution.effective()) round.roster.Apply(member, ContributionInput::kTakeBack);
    if (member.alive()) {
      Credit credit = CreditFor(round, scope, member, scope.lane.shares.First());
      credit.refused = std::move(ranges);
      SendTo(scope, member, std::move(credit));
    }
  }
  ReviewRoom(round, scope, member);
}

}  // namespace

void LoseChunks(Round& round, const RoundScope& scope, const Shares& before, ShardId lost,
                const std::string& reason) {
  if (scope.config.rules.keeps_lost_chunks) return;
  std::vector<uint32_t> flats;
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat) {
    if (before.Of(scope.lane.layout, flat) == lost) flats.push_back(flat);
  }
  if (flats.empty()) return;
  if (round.phase() == RoundPhase::kPrepared) {
    for (RoundMember& member : round.roster) {
      member.contribution.Place(scope.lane.layout, scope.lane.shares);
    }
    return LoseResults(round, scope, flats);
  }
  // What all receivers have acknowledged is needed no more.
  std::vector<uint32_t> again;
  std::copy_if(flats.begin(), flats.end(), std::back_inserter(again), [&](uint32_t flat) {
    return !round.attempt.IsReduced(flat) || round.held.Holds(flat);
  });
  round.PlanAgain();
  for (RoundMember& member : round.roster) TakeBackLost(round, scope, member, again, lost);
  for (RoundMember& member : round.roster) {
    uint32_t owed = 0;
    for (const uint32_t flat : again) {
      if (round.attempt.IsReduced(flat) && !member.reception.Has(flat)) ++owed;
    }
    if (member.is_sent_results()) member.reception.OweLess(owed);
  }
  for (const uint32_t flat : again) {
    if (!round.attempt.IsOpen(flat)) round.held.Release(scope.lane.layout.SizeOf(flat));
    round.held.Lose(flat);
    round.attempt.Reopen(flat);
  }
  const bool gone = std::any_of(round.roster.begin(), round.roster.end(), [](const auto& member) {
    return !member.alive() && member.contribution.counts() && member.contribution.incomplete();
  });
  if (gone && !scope.config.rules.awaits_lost_contributors) {
    Restart(round, scope, reason);
    return;
  }
  round.held.NoteRoom();
  Rescan(round, scope);
  Advance(round, scope);
}

void DiscardParked(const Round& round, const RoundScope& scope, const Incarnation& contributor,
                   std::vector<ChunkRange> ranges) {
  if (ranges.empty()) return;
  DiscardChunks discard{scope.job.id, scope.index, round.number, contributor, {}};
  if (scope.lane.shares.single()) {
    discard.ranges = std::move(ranges);
    discard.shard = scope.lane.shares.First();
    scope.actions.push_back(std::move(discard));
    return;
  }
  std::map<ShardId, std::vector<ChunkRange>> by_shard;
  for (const ChunkRange& range : ranges) {
    scope.lane.shares.Split(scope.lane.layout, range, [&](ShardId shard, const ChunkRange& part) {
      by_shard[shard].push_back(part);
    });
  }
  for (auto& [shard, parts] : by_shard) {
    discard.ranges = std::move(parts);
    discard.shard = shard;
    scope.actions.push_back(discard);
  }
}

}  // namespace basin::aggregator
