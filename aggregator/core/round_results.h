// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which members are sent which results, and who has them. Reads the attempt; changes what is held
// and the receptions of the members.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_RESULTS_H_
#define BASIN_AGGREGATOR_CORE_ROUND_RESULTS_H_

#include <vector>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// REQUIRES: round.Has(slot).
void OnResultAck(Round& round, const RoundScope& scope, Slot slot, const ResultAck& ack);
// The member's client now knows the tensors from index `before` on.
void OnLayoutSeen(Round& round, const RoundScope& scope, Slot slot, uint32_t before);

// Sends reduced chunks to the receivers that know their tensors: in one frame to those that can
// take it, else in one frame for each tensor.
void PublishResults(const Round& round, const RoundScope& scope, const ChunkRanges& ranges);
// Sends held result chunks to one worker. REQUIRES: the worker is connected and knows the tensors,
// and `ranges` is in layout order.
void PublishTo(const Round& round, const Worker& worker, const RoundScope& scope,
               const std::vector<ChunkRange>& ranges);
// Sends a member the reduced chunks that it has not acknowledged.
// The same once results of the attempt were lost with a shard: some members may have had those that
// were reduced again. `reduced`: flat chunks of the shard that are held for all receivers.
void PublishRedone(Round& round, const RoundScope& scope, const std::vector<uint32_t>& reduced,
                   ShardId shard);
void PublishMissing(const Round& round, const RoundScope& scope, const RoundMember& member);
// The results reach the member another way: it is sent none, and none are held for it. Somebody
// must be sent them, or they would be lost as they are reduced.
void SendNoResults(Round& round, const RoundScope& scope, RoundMember& member);
// The member is sent results from now on. It gets those that are held for others; what it lacks of
// the rest it requests when the value is prepared.
void SendResults(Round& round, const RoundScope& scope, RoundMember& member);
// A member has a result chunk, or will never need it.
void Acknowledge(Round& round, const RoundScope& scope, RoundMember& member, uint32_t flat);
// The member has all results, or will never need them.
void AcknowledgeAll(Round& round, const RoundScope& scope, RoundMember& member);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_RESULTS_H_
