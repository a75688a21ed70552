// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/flow_control.h"

#include <algorithm>

namespace basin::aggregator {
namespace {

// Returns how much room is enough for the member's next frame, which is never longer than what it
// still has to send.
uint64_t NextBytes(const LaneMemory& memory, const RoundMember& member) {
  return std::min(memory.frame, member.contribution.missing());
}

}  // namespace

uint64_t FlowControl::Window(const LaneMemory& memory, const RoundMember& member) {
  const uint64_t parked = member.contribution.parked();
  return memory.window > parked ? memory.window - parked : 0;
}

bool FlowControl::LacksRoom(const RoundMember& member) {
  return member.room.blocked && member.alive() && member.contribution.incomplete() &&
         member.contribution.missing() > 0;
}

std::optional<uint64_t> FlowControl::News(const LaneMemory& memory, const RoundMember& member,
                                          bool pulled) {
  const uint64_t window = Window(memory, member);
  const uint64_t next = NextBytes(memory, member);
  if (member.room.sent >= next) return std::nullopt;
  if (pulled ? window <= member.room.sent : window < next) return std::nullopt;
  return window;
}

void FlowControl::Review(const LaneMemory& memory, absl::Time now, Roster& roster,
                         RoundMember& member) {
  const bool blocked = !member.alive() || !member.contribution.incomplete() ||
                       Window(memory, member) < NextBytes(memory, member);
  if (blocked != member.room.blocked) {
    roster.SetBlocked(member, blocked);
    if (!blocked) member.room.free_since = now;
    stalls_ += LacksRoom(member);
  }
  wait_since_ = roster.waiting() == 0 ? absl::InfiniteFuture() : std::min(wait_since_, now);
}

}  // namespace basin::aggregator
