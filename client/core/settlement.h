// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the lane's next round is settled on this side: result chunks are staged, the prepared value
// is checked against them, and STAGED is sent once every byte is here and its digest is right.
//
//   from         when                                             to           what is sent
//   -----------  -----------------------------------------------  -----------  -------------------
//   kCollecting  result frame of the ballot held, or a higher     kCollecting  ResultAck
//   kCollecting  Prepared, chunks of its value are missing        kPrepared    Need, if the value
//                                                                              is of another
//                                                                              ballot, the session
//                                                                              new, or it was asked
//                                                                              for
//   kPrepared    what is missing is asked for                     kPrepared    Need
//   kCollecting  Prepared, everything is here, or ABORTED         kStaged      Staged
//   kPrepared    result frame of the value's ballot, the last     kStaged      ResultAck, Staged
//   kPrepared    the same, but the digest is wrong, once          kPrepared    ResultAck, Need
//   kPrepared    the same, for the second time                    (given up)   Abandon
//   any          Prepared with a higher ballot                    as above     as above
//   kPrepared    attempt restarted, result frame of a higher      kCollecting
//                ballot than was prepared
//   kStaged      the verdict arrives                              kCollecting  (the next round)
//   any          a new session                                    kCollecting
//
// The bytes of the last verdict stay, and can be supplied, until the next round's first result.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_SETTLEMENT_H_
#define BASIN_CLIENT_CORE_SETTLEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "client/core/lane_id.h"
#include "client/core/streams.h"
#include "protocol/bitmap.h"
#include "protocol/intervals.h"

namespace basin::client {

enum class SettlePhase : uint8_t { kCollecting = 0, kPrepared = 1, kStaged = 2 };

// The consequence of an event of one lane for the whole worker.
enum class Consequence : uint8_t {
  kNone = 0,
  kReconnect = 1,  // The aggregator broke the protocol: start over with a new session.
  kGiveUp = 2,     // This worker cannot keep level: abandon the incarnation, rejoin with state.
  kFatal = 3,
};
struct Finding {
  Consequence consequence = Consequence::kNone;
  Error error;
};

class Settlement {
 public:
  SettlePhase phase() const {
    if (!prepared_.has_value()) return SettlePhase::kCollecting;
    return answered_ ? SettlePhase::kStaged : SettlePhase::kPrepared;
  }
  // The value that is held completely and has no verdict yet.
  const std::optional<StagedValue>& staged() const { return staged_; }
  // The held result bytes: their round, ballot, and chunks (flat).
  RoundNumber held_round() const { return held_round_; }
  Ballot held_ballot() const { return held_ballot_; }
  const IntervalSet& held() const { return held_; }

  // `current` is the lane's next round: last verdict + 1.
  Finding OnResult(const Scope& scope, const LaneId& lane, RoundNumber current,
                   const ResultReceived& frame);
  Finding OnPrepared(const Scope& scope, const LaneId& lane, const Prepared& prepared);
  void OnRestart(RoundNumber current, Ballot ballot);
  // The layout grew: a prepared value that was ahead of it may be complete now.
  Finding OnLayout(const Scope& scope, const LaneId& lane);
  void OnSupply(const Scope& scope, const LaneId& lane, const Supply& supply);

  void LoseStream(uint32_t stream);
  void PumpSupply(const Scope& scope, const LaneId& lane);
  void EndSession();
  // Requests the missing chunks when the value arrives: in a new session the round was already
  // prepared, or the results are not sent without that.
  void AskWhenPrepared() { ask_ = true; }
  // The same, and now if the value is here.
  void Ask(const Scope& scope, const LaneId& lane);
  // The verdict of the round has arrived. The held chunks stay.
  void EndRound();
  void Forget() { *this = Settlement(); }

  auto Fields() const {
    return std::tie(held_round_, held_ballot_, held_, digests_, prepared_, expected_, missing_,
                    answered_, ask_, missed_, refetched_, staged_, to_supply_, supplied_);
  }

 private:
  void Restage(RoundNumber round, Ballot ballot);
  void Unprepare();
  void Expect(const Layout& layout);
  void SendNeed(const Scope& scope, const LaneId& lane) const;
  void SupplyTo(const Scope& scope, const LaneId& lane, ShardId shard,
                const std::vector<ChunkRange>& ranges);
  Finding Complete(const Scope& scope, const LaneId& lane);
  Finding Evaluate(const Scope& scope, const LaneId& lane);

  RoundNumber held_round_ = 0;
  Ballot held_ballot_;
  IntervalSet held_;             // Flat.
  std::vector<Digest> digests_;  // The digests of the held chunks, summed by tensor.

  std::optional<Prepared> prepared_;
  Bitmap expected_;        // Tensors that have a result.
  uint64_t missing_ = 0;   // Chunks of them that are not held; meaningful once expected_ is set.
  bool answered_ = false;  // STAGED was sent for the prepared ballot.
  bool ask_ = false;
  RoundNumber missed_ = 0;  // Results of it came too early to be kept.
  bool refetched_ = false;  // In this round the digest was wrong once.
  std::optional<StagedValue> staged_;

  IntervalSet to_supply_;              // The held chunks, flat.
  std::vector<IntervalSet> supplied_;  // By stream: sent, and lost if the stream is.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_SETTLEMENT_H_
