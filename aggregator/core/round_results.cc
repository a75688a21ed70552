// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_results.h"

#include <map>
#include <utility>

#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {
namespace {

// Whether the result of a chunk was lost with a shard after the value was prepared.
bool IsLost(const Round& round, uint32_t flat) {
  return round.supplies.after_loss() && !round.held.Holds(flat);
}

// Everyone has the result of the chunk.
void Free(Round& round, const RoundScope& scope, uint32_t flat) {
  round.held.Release(scope.lane.layout.SizeOf(flat));
  const TensorIndex tensor = scope.lane.layout.TensorOf(flat);
  const ChunkRange range{tensor, flat - scope.lane.layout.FirstChunk(tensor), 1};
  scope.actions.push_back(ReleaseResult{scope.job.id, scope.index, round.number, round.value_ballot,
                                        range, scope.lane.shares.Of(scope.lane.layout, flat)});
}

}  // namespace

void PublishResults(const Round& round, const RoundScope& scope, const ChunkRanges& ranges) {
  const auto frame = [&](const ChunkRanges& of) {
    return Publish{scope.job.id, scope.index,
                   round.number, round.ballot,
                   of,           scope.lane.layout.RangeBytes(of),
                   {},           false,
                   {},           scope.lane.shares.Head(scope.lane.layout, of.front()).first};
  };
  Publish publish = frame(ranges);
  publish.sessions.reserve(round.roster.receivers());
  std::vector<const Worker*> others;
  for (const RoundMember& member : round.roster) {
    if (!member.is_sent_results()) continue;
    const Worker& worker = scope.job.workers[member.slot];
    if (!worker.connected()) continue;
    if (ranges.size() <= worker.frame_tensors &&
        worker.LayoutSeen(scope.index) > ranges.back().tensor) {
      publish.sessions.push_back(*worker.session);
    } else if (ranges.size() > 1) {
      others.push_back(&worker);
    }
  }
  if (!publish.sessions.empty()) scope.actions.push_back(std::move(publish));
  if (others.empty()) return;
  for (const ChunkRange& range : ranges) {
    Publish part = frame({range});
    for (const Worker* worker : others) {
      if (worker->LayoutSeen(scope.index) > range.tensor) part.sessions.push_back(*worker->session);
    }
    if (!part.sessions.empty()) scope.actions.push_back(std::move(part));
  }
}

void PublishTo(const Round& round, const Worker& worker, const RoundScope& scope,
               const std::vector<ChunkRange>& ranges) {
  const auto publish = [&](ShardId shard, const std::vector<ChunkRange>& of_shard) {
    for (ChunkRanges& frame :
         scope.lane.layout.Frames(of_shard, scope.config.frame_bytes, worker.frame_tensors)) {
      const uint64_t bytes = scope.lane.layout.RangeBytes(frame);
      scope.actions.push_back(Publish{scope.job.id,
                                      scope.index,
                                      round.number,
                                      round.value_ballot,
                                      std::move(frame),
                                      bytes,
                                      {*worker.session},
                                      true,
                                      {},
                                      shard});
    }
  };
  if (scope.lane.shares.single()) return publish(scope.lane.shares.First(), ranges);
  std::map<ShardId, std::vector<ChunkRange>> by_shard;
  for (const ChunkRange& range : ranges) {
    scope.lane.shares.Split(scope.lane.layout, range, [&](ShardId shard, const ChunkRange& part) {
      by_shard[shard].push_back(part);
    });
  }
  for (const auto& [shard, of_shard] : by_shard) publish(shard, of_shard);
}

void PublishRedone(Round& round, const RoundScope& scope, const std::vector<uint32_t>& reduced,
                   ShardId shard) {
  std::map<uint32_t, uint32_t> lacking;  // Receivers, by flat chunk.
  for (RoundMember& member : round.roster) {
    if (!member.contribution.parked().empty()) {
      for (const uint32_t flat : reduced) {
        member.contribution.NoteReduced(flat, scope.lane.layout.SizeOf(flat), shard);
      }
    }
    if (member.is_sent_results()) {
      const Worker& worker = scope.job.workers[member.slot];
      const uint32_t seen = worker.LayoutSeen(scope.index);
      RangeBuilder missing(scope.lane.layout);
      uint32_t owed = 0;
      for (const uint32_t flat : reduced) {
        if (member.reception.Has(flat)) continue;
        ++lacking[flat];
        ++owed;
        if (scope.lane.layout.TensorOf(flat) < seen) missing.Add(flat);
      }
      if (owed > 0) member.reception.Owe(owed, scope.now);
      if (worker.connected()) PublishTo(round, worker, scope, missing.Take());
    }
    ReviewRoom(round, scope, member, shard);
  }
  for (const uint32_t flat : reduced) {
    const auto found = lacking.find(flat);
    if (found != lacking.end()) {
      round.held.Hold(flat, found->second);
    } else if (round.held.Lose(flat)) {
      Free(round, scope, flat);
    }
  }
}

void PublishMissing(const Round& round, const RoundScope& scope, const RoundMember& member) {
  const Worker& worker = scope.job.workers[member.slot];
  if (!worker.connected() || !member.is_sent_results()) return;
  RangeBuilder missing(scope.lane.layout);
  const uint32_t seen = worker.LayoutSeen(scope.index);
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat) {
    if (!round.attempt.IsReduced(flat) || member.reception.Has(flat)) continue;
    if (IsLost(round, flat)) continue;
    if (scope.lane.layout.TensorOf(flat) < seen) missing.Add(flat);
  }
  PublishTo(round, worker, scope, missing.Take());
}

void SendNoResults(Round& round, const RoundScope& scope, RoundMember& member) {
  if (!member.is_sent_results() || round.roster.receivers() == 1) return;
  AcknowledgeAll(round, scope, member);
  member.reception.ForgetAll();  // It need not have them.
  round.roster.SetWithoutResults(member, true);
}

void SendResults(Round& round, const RoundScope& scope, RoundMember& member) {
  if (!member.without_results) return;
  round.roster.SetWithoutResults(member, false);
  uint32_t owed = 0;
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat) {
    if (!round.attempt.IsReduced(flat) || member.reception.Has(flat)) continue;
    if (round.held.HoldForOneMore(flat)) {
      ++owed;
    } else {
      member.reception.HoldNot(flat);
    }
  }
  if (owed > 0) member.reception.Owe(owed, scope.now);
  PublishMissing(round, scope, member);
}

void OnLayoutSeen(Round& round, const RoundScope& scope, Slot slot, uint32_t before) {
  RoundMember& member = round.roster.At(slot);
  if (!member.receives()) return;
  const Worker& worker = scope.job.workers[slot];
  RangeBuilder missing(scope.lane.layout);
  for (uint32_t flat = scope.lane.layout.FirstChunk(before);
       flat < scope.lane.layout.FirstChunk(worker.LayoutSeen(scope.index)); ++flat) {
    if (!member.is_sent_results()) break;
    if (!round.attempt.IsReduced(flat) || IsLost(round, flat)) continue;
    if (!member.reception.Has(flat)) missing.Add(flat);
  }
  PublishTo(round, worker, scope, missing.Take());
  if (round.phase() != RoundPhase::kPrepared || member.sent_prepared()) return;
  member.reception.NoteProgress(scope.now);
  SendPrepared(round, scope, member);
}

void Acknowledge(Round& round, const RoundScope& scope, RoundMember& member, uint32_t flat) {
  // Otherwise an acknowledgement of a chunk that is not reduced yet would count later.
  if (!member.receives()) return;
  if (!round.attempt.IsReduced(flat)) {
    // But it counts if the result was lost meanwhile: it will be the same.
    if (round.attempt.IsRedone(flat)) member.reception.HoldNot(flat);
    return;
  }
  const bool collects = round.phase() == RoundPhase::kCollect;
  if (!member.reception.Take(flat, scope.now, collects)) return;
  if (member.is_sent_results() && round.held.Take(flat)) Free(round, scope, flat);
}

void AcknowledgeAll(Round& round, const RoundScope& scope, RoundMember& member) {
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat)
    Acknowledge(round, scope, member, flat);
}

void OnResultAck(Round& round, const RoundScope& scope, Slot slot, const ResultAck& ack) {
  if (!(ack.ballot == round.value_ballot)) return;  // An older attempt.
  RoundMember& member = round.roster.At(slot);
  for (const ChunkRange& range : ack.ranges) {
    for (const uint32_t flat : scope.lane.layout.Chunks(range)) {
      Acknowledge(round, scope, member, flat);
      // A client fetches a chunk once, and once more when the digest was wrong.
      if (round.supplies.Got(flat, slot)) {
        member.reception.Fetched(2 * round.attempt.chunks(), scope.now);
      }
    }
  }
  Advance(round, scope);
}

}  // namespace basin::aggregator
