// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/settlement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client {
namespace {

// One bit per tensor of the layout: whether it has a result in this round.
Bitmap TensorsWithResult(const RoundValue& value) {
  Bitmap tensors(value.layout_version);
  if (value.outcome != Outcome::kCommitted) return tensors;
  if (value.divisor != 0) {
    for (TensorIndex tensor = 0; tensor < value.layout_version; ++tensor) tensors.Set(tensor);
  }
  for (const TensorDivisor& entry : value.tensor_divisors) {
    if (entry.tensor >= value.layout_version) continue;
    entry.divisor != 0 ? tensors.Set(entry.tensor) : tensors.Clear(entry.tensor);
  }
  return tensors;
}

ResultAck AckOf(const LaneId& lane, RoundNumber round, const ResultReceived& frame) {
  return {lane.index, round, frame.ballot, {frame.ranges.begin(), frame.ranges.end()}};
}

}  // namespace

void Settlement::Restage(RoundNumber round, Ballot ballot) {
  if (held_round_ != round) refetched_ = false;
  held_round_ = round;
  held_ballot_ = ballot;
  held_.Clear();
  digests_.clear();
  staged_.reset();
  to_supply_.Clear();
  supplied_.clear();
}

void Settlement::Unprepare() {
  prepared_.reset();
  expected_ = Bitmap();
  missing_ = 0;
  answered_ = false;
}

Finding Settlement::OnResult(const Scope& scope, const LaneId& lane, RoundNumber current,
                             const ResultReceived& frame) {
  if (!lane.layout.ContainsFrame(frame.ranges) || frame.ranges.size() > scope.frame.tensors ||
      frame.digests.size() != CountChunks(frame.ranges)) {
    const ChunkRange first = frame.ranges.empty() ? ChunkRange{} : frame.ranges.front();
    return {Consequence::kReconnect,
            {ErrorCode::kInvalidArgument,
             absl::StrCat("A result frame for lane ", lane.name, " names chunks ", first.first, "+",
                          first.count, " of tensor ", first.tensor,
                          frame.ranges.size() > 1
                              ? absl::StrCat(" and chunks of ", frame.ranges.size() - 1, " more")
                              : "",
                          ", which do not exist.")}};
  }
  if (frame.round > current) {
    // It has overtaken the verdict of the current round, on another connection: the next round went
    // on before this worker began it. The aggregator need not hold it; see OnPrepared.
    missed_ = frame.round;
    if (scope.welcomed) scope.Send(AckOf(lane, frame.round, frame));
    return {};
  }
  if (frame.round < current) return {};  // It has a verdict.
  if (prepared_.has_value() && prepared_->ballot < frame.ballot) {
    Unprepare();  // The round was restarted; the notice is still on its way.
  }
  if (prepared_.has_value()) {
    if (prepared_->value.outcome != Outcome::kCommitted) return {};
    if (frame.ballot != prepared_->value_ballot) return {};
    if (answered_) {
      // It is not part of the value, whose bytes may be in the trainer's hands by now.
      if (scope.welcomed) scope.Send(AckOf(lane, current, frame));
      return {};
    }
  } else if (held_round_ != current || held_ballot_ < frame.ballot) {
    Restage(current, frame.ballot);
  } else if (frame.ballot < held_ballot_) {
    return {};
  }

  if (digests_.size() < lane.layout.version()) digests_.resize(lane.layout.version());
  uint64_t added = 0;  // Chunks that the prepared value lacked.
  const Digest* digests = frame.digests.data();
  for (const ChunkRange& range : frame.ranges) {
    const Interval flat = lane.layout.Chunks(range);
    for (const Interval& part : held_.Outside(flat)) {
      for (const ChunkRange& fresh : lane.layout.Ranges(FlatOf(part))) {
        scope.actions.push_back(KeepResult{lane.handle, current, fresh});
      }
      for (uint64_t i = part.begin; i < part.end; ++i) {
        digests_[range.tensor] += digests[i - flat.begin];
      }
      if (prepared_.has_value() && expected_.Test(range.tensor)) added += part.size();
    }
    held_.Add(flat);
    digests += range.count;
  }
  if (scope.welcomed) scope.Send(AckOf(lane, current, frame));
  if (added == 0) return {};
  missing_ -= added;
  return missing_ == 0 ? Complete(scope, lane) : Finding{};
}

Finding Settlement::OnPrepared(const Scope& scope, const LaneId& lane, const Prepared& prepared) {
  if (prepared_.has_value() && prepared.ballot < prepared_->ballot) return {};
  Unprepare();
  prepared_ = prepared;
  // Chunks of another ballot are of no use for this value, whichever is higher.
  const bool of_value = held_round_ == prepared.round && held_ballot_ == prepared.value_ballot;
  if (prepared.value.outcome == Outcome::kCommitted && !of_value) {
    Restage(prepared.round, prepared.value_ballot);
  }
  ask_ |= prepared.value_ballot != prepared.ballot || missed_ == prepared.round;
  return Evaluate(scope, lane);
}

Finding Settlement::OnLayout(const Scope& scope, const LaneId& lane) {
  const bool waits =
      prepared_.has_value() && !answered_ && expected_.size() < prepared_->value.layout_version;
  return waits ? Evaluate(scope, lane) : Finding{};
}

Finding Settlement::Evaluate(const Scope& scope, const LaneId& lane) {
  if (lane.layout.version() < prepared_->value.layout_version) return {};  // See OnLayout.
  Expect(lane.layout);
  if (missing_ == 0) return Complete(scope, lane);
  if (ask_) SendNeed(scope, lane);
  ask_ = false;
  return {};
}

void Settlement::Ask(const Scope& scope, const LaneId& lane) {
  ask_ = true;
  const bool waits =
      phase() == SettlePhase::kPrepared && lane.layout.version() >= prepared_->value.layout_version;
  if (!waits) return;
  SendNeed(scope, lane);
  ask_ = false;
}

void Settlement::Expect(const Layout& layout) {
  expected_ = TensorsWithResult(prepared_->value);
  missing_ = 0;
  for (TensorIndex tensor = 0; tensor < expected_.size(); ++tensor) {
    if (!expected_.Test(tensor)) continue;
    missing_ += layout.TensorChunks(tensor);
    for (const Interval& part : held_.Inside(layout.Chunks(tensor))) missing_ -= part.size();
  }
}

void Settlement::SendNeed(const Scope& scope, const LaneId& lane) const {
  Need need{lane.index, prepared_->round, prepared_->value_ballot, {}};
  for (TensorIndex tensor = 0; tensor < expected_.size(); ++tensor) {
    if (!expected_.Test(tensor)) continue;
    for (const Interval& part : held_.Outside(lane.layout.Chunks(tensor))) {
      for (const ChunkRange& range : lane.layout.Ranges(FlatOf(part))) need.ranges.push_back(range);
    }
  }
  if (scope.welcomed) scope.Send(std::move(need));
}

// Every chunk of the prepared value is held.
Finding Settlement::Complete(const Scope& scope, const LaneId& lane) {
  Digest digest = 0;
  for (TensorIndex tensor = 0; tensor < expected_.size(); ++tensor) {
    if (expected_.Test(tensor) && tensor < digests_.size()) digest += digests_[tensor];
  }
  ask_ = false;
  const bool committed = prepared_->value.outcome == Outcome::kCommitted;
  if (!committed || digest == prepared_->value.digest) {
    answered_ = true;
    staged_ =
        StagedValue{prepared_->round, prepared_->ballot, prepared_->value_ballot, prepared_->value};
    if (scope.welcomed) scope.Send(Staged{lane.index, prepared_->round, prepared_->ballot});
    return {};
  }
  const std::string text =
      absl::StrCat("The result of lane ", lane.name, ", round ", prepared_->round, " has digest ",
                   digest, ", but the prepared value has ", prepared_->value.digest);
  // All bytes are fetched again once, because a sum does not show which are wrong.
  Restage(held_round_, held_ballot_);
  Expect(lane.layout);
  if (refetched_ || missing_ == 0) {
    return {Consequence::kGiveUp,
            {ErrorCode::kDataCorrupt,
             absl::StrCat(text,
                          ", for the second time. Check this worker's memory and network, "
                          "and rejoin with state.")}};
  }
  refetched_ = true;
  SendNeed(scope, lane);
  return {};
}

void Settlement::OnRestart(RoundNumber current, Ballot ballot) {
  if (prepared_.has_value() && prepared_->ballot < ballot) Unprepare();
  if (prepared_.has_value()) return;  // Older than the prepared value.
  if (staged_.has_value() && staged_->ballot < ballot) staged_.reset();
  if (held_round_ == current && held_ballot_ < ballot) Restage(current, ballot);
}

void Settlement::OnSupply(const Scope& scope, const LaneId& lane, const Supply& supply) {
  if (supply.round != held_round_ || supply.ballot != held_ballot_) return;
  for (const ChunkRange& range : supply.ranges) {
    if (!lane.layout.Contains(range)) continue;
    for (const Interval& part : held_.Inside(lane.layout.Chunks(range))) to_supply_.Add(part);
  }
  PumpSupply(scope, lane);
}

// Each shard gets the chunks that it holds; those of a shard without a stream wait for one.
void Settlement::PumpSupply(const Scope& scope, const LaneId& lane) {
  if (to_supply_.empty()) return;
  std::map<ShardId, std::vector<ChunkRange>> by_shard;
  for (const Interval& run : to_supply_.Runs()) {
    for (const ChunkRange& range : lane.layout.Ranges(FlatOf(run))) {
      lane.shares.Split(lane.layout, range, [&](ShardId shard, const ChunkRange& part) {
        by_shard[shard].push_back(part);
      });
    }
  }
  for (const auto& [shard, ranges] : by_shard) SupplyTo(scope, lane, shard, ranges);
}

void Settlement::SupplyTo(const Scope& scope, const LaneId& lane, ShardId shard,
                          const std::vector<ChunkRange>& ranges) {
  const std::optional<uint32_t> stream = scope.streams.Pick(shard, scope.frame.chunks);
  if (!stream.has_value()) return;
  supplied_.resize(scope.streams.size());
  std::vector<ChunkRange> cut;
  for (ChunkRange range : ranges) {
    const Interval chunks = lane.layout.Chunks(range);
    supplied_[*stream].Add(chunks);
    to_supply_.Remove(chunks);
    for (; range.count > scope.frame.chunks; range.first += scope.frame.chunks) {
      cut.push_back({range.tensor, range.first, scope.frame.chunks});
      range.count -= scope.frame.chunks;
    }
    cut.push_back(range);
  }
  for (ChunkRanges& frame :
       lane.layout.Frames(cut, scope.frame.chunks * kChunkBytes, scope.frame.tensors)) {
    scope.actions.push_back(
        SendSupply{*stream, lane.handle, lane.index, held_round_, held_ballot_, std::move(frame)});
  }
}

void Settlement::LoseStream(uint32_t stream) {
  if (stream >= supplied_.size()) return;
  for (const Interval& run : supplied_[stream].Runs()) to_supply_.Add(run);
  supplied_[stream].Clear();
}

void Settlement::EndSession() {
  // In the next session the aggregator sends its messages again.
  Unprepare();
  ask_ = false;
  to_supply_.Clear();
  supplied_.clear();
}

void Settlement::EndRound() {
  Unprepare();
  ask_ = false;
  staged_.reset();
}

}  // namespace basin::client
