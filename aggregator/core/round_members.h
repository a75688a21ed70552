// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a round: which of them take part, are refused, left out or lost, and which join or
// return.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_MEMBERS_H_
#define BASIN_AGGREGATOR_CORE_ROUND_MEMBERS_H_

#include <string>
#include <vector>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// The member takes part in this call. One that was left out counts again unless the value is fixed.
// A frame shows this as well as a begin does, because it may arrive before the begin.
void OnPart(Round& round, const RoundScope& scope, RoundMember& member);
// Continues the call without an undecided member. Its trainer waits for something else, possibly
// for the other members, so the call must not wait for it.
void LeaveOut(Round& round, const RoundScope& scope, Slot slot);
void Lose(Round& round, const RoundScope& scope, Slot slot, const std::string& reason);
void Admit(Round& round, const RoundScope& scope, std::vector<RoundMember> joiners);
// Replaces the members of a round that none of them has begun. REQUIRES: its phase is kIdle.
void Reform(Round& round, const RoundScope& scope, std::vector<RoundMember> members);

// For a member's welcome, and what it needs after that.
OpenRound Describe(const Round& round, const RoundScope& scope, Slot slot);
void Resume(Round& round, const RoundScope& scope, Slot slot, const LaneHistory* history);

// Removes a contribution. Returns whether chunks with its part were or are being reduced.
bool RemoveContribution(Round& round, const RoundScope& scope, RoundMember& member,
                        ContributionInput input);
// Removes a contribution because of what its worker did. The worker receives the reason now and on
// each new session. Returns as RemoveContribution does.
bool Refuse(Round& round, const RoundScope& scope, RoundMember& member, ErrorCode code,
            const std::string& text);
// `restart`: what RemoveContribution returned.
void AfterRemoval(Round& round, const RoundScope& scope, bool restart, const std::string& reason);
// Drops the contributions of the worker's earlier lives, so that it counts only once.
void RemoveEarlierLives(Round& round, const RoundScope& scope, const RoundMember& member);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_MEMBERS_H_
