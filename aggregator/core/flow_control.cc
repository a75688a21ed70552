// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/flow_control.h"

#include <algorithm>

namespace basin::aggregator {
namespace {

// Returns how much room is enough for the member's next frame to a shard, which is never longer
// than what it still has to send there.
uint64_t NextBytes(const LaneMemory& memory, uint64_t missing) {
  return std::min(memory.frame, missing);
}

// Returns whether the member has sent all, or a shard has room for its next frame.
bool HasRoom(const LaneMemory& memory, const RoundMember& member) {
  const ByShard& missing = member.contribution.missing();
  return missing.empty() || std::any_of(missing.begin(), missing.end(), [&](const auto& entry) {
           const auto& [shard, bytes] = entry;
           return FlowControl::Window(memory, member, shard) >= NextBytes(memory, bytes);
         });
}

}  // namespace

uint64_t FlowControl::Window(const LaneMemory& memory, const RoundMember& member, ShardId shard) {
  const uint64_t parked = member.contribution.parked().At(shard);
  return memory.window > parked ? memory.window - parked : 0;
}

uint64_t FlowControl::Least(const LaneMemory& memory, const RoundMember& member,
                            const Shares& shares) {
  uint64_t least = memory.window;
  for (const ShardId shard : shares.Left()) least = std::min(least, Window(memory, member, shard));
  return least;
}

bool FlowControl::LacksRoom(const RoundMember& member) {
  return member.room.blocked && member.alive() && member.contribution.incomplete() &&
         !member.contribution.missing().empty();
}

std::optional<uint64_t> FlowControl::News(const LaneMemory& memory, const RoundMember& member,
                                          ShardId shard, bool pulled) {
  const uint64_t window = Window(memory, member, shard);
  const uint64_t next = NextBytes(memory, member.contribution.missing().At(shard));
  const uint64_t sent = member.room.sent.At(shard);
  if (sent >= next) return std::nullopt;
  if (pulled ? window <= sent : window < next) return std::nullopt;
  return window;
}

void FlowControl::Review(const LaneMemory& memory, absl::Time now, Roster& roster,
                         RoundMember& member) {
  const bool blocked =
      !member.alive() || !member.contribution.incomplete() || !HasRoom(memory, member);
  if (blocked != member.room.blocked) {
    roster.SetBlocked(member, blocked);
    if (!blocked) member.room.free_since = now;
    stalls_ += LacksRoom(member);
  }
  wait_since_ = roster.waiting() == 0 ? absl::InfiniteFuture() : std::min(wait_since_, now);
}

}  // namespace basin::aggregator
