// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What members send of their contributions, and how much more they may send.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_INTAKE_H_
#define BASIN_AGGREGATOR_CORE_ROUND_INTAKE_H_

#include <string>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// ---- from the members. REQUIRES: round.Has(slot).
void OnBegin(Round& round, const RoundScope& scope, Slot slot, const Begin& begin);
void OnFrame(Round& round, const RoundScope& scope, Slot slot, const FrameReceived& frame);
void OnSkip(Round& round, const RoundScope& scope, Slot slot, const Skip& skip);
void OnCommit(Round& round, const RoundScope& scope, Slot slot, const Commit& commit);
// `reason`: empty if its gradients are in the contribution of another worker. `without_results`:
// they reach it another way.
void OnWithdraw(Round& round, const RoundScope& scope, Slot slot, const std::string& reason,
                bool without_results = false);
// The member is out of data and will not begin this round. REQUIRES: the member has not begun it,
// and the round is not prepared.
void OnFinished(Round& round, const RoundScope& scope, Slot slot);

// The member may have become blocked, or no longer be.
void UpdateBlocked(Round& round, const RoundScope& scope, RoundMember& member);
// The member has more or less to send than before, so its room may now be too small, or enough. A
// member that counts as unblocked must know that it has room for its next frame.
void ReviewRoom(Round& round, const RoundScope& scope, RoundMember& member);
// The same, if that is so at one shard alone.
void ReviewRoom(Round& round, const RoundScope& scope, RoundMember& member, ShardId shard);
// A message has told the member the least of its windows (FlowControl::Least), which is that of
// every shard for it: tells it of the shards that have more.
void SendWindows(const Round& round, const RoundScope& scope, RoundMember& member);
// Returns a message with the member's window at the shard, and notes that the member knows it.
Credit CreditFor(const Round& round, const RoundScope& scope, RoundMember& member, ShardId shard);
// The lane has more memory: every live member receives its larger window.
void MemoryGrew(Round& round, const RoundScope& scope);
void GrowLayout(Round& round, const RoundScope& scope);
// Marks every tensor that the commit omits, including those that its worker did not know yet.
void SkipWhatIsNotCommitted(Round& round, const RoundScope& scope, RoundMember& member);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_INTAKE_H_
