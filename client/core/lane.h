// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One lane as this worker knows it: its tensors and their indexes, its history of verdicts, the
// round in flight, and how the next round is settled. Only three files change it:
// lane_registration.h, lane_round.h and lane_verdict.h.
//
// Thread contract: a plain value. A function of a Lane with a Scope changes the lane, appends
// actions, and has no other effect.

#ifndef BASIN_CLIENT_CORE_LANE_H_
#define BASIN_CLIENT_CORE_LANE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/core/lane_id.h"
#include "client/core/layout.h"
#include "client/core/placements.h"
#include "client/core/round.h"
#include "client/core/samples.h"
#include "client/core/settlement.h"
#include "client/core/streams.h"
#include "client/core/target_batch.h"

namespace basin::client {

// Verdicts in a hello, so that an aggregator without memory can send them again.
inline constexpr size_t kRememberedVerdicts = 2;

// A tensor that this process registered.
struct RegisteredTensor {
  TensorSpec spec;
  std::optional<TensorIndex> index;
  Error refusal;  // Why it has no index and gets none; kOk: it will get one.
  auto Fields() const { return std::tie(spec, index, refusal); }
};

// What this worker knows of a lane. A new lane has no index, no history and no round.
struct Lane {
  Lane(LaneHandle handle, std::string name, LaneKind kind)
      : handle(handle), name(std::move(name)), kind(kind) {}

  RoundNumber next() const { return last_verdict + 1; }
  // REQUIRES: it has an index.
  LaneId Id() const { return {handle, *index, name, layout, shares}; }
  // The round in flight, if it has this number; else nullptr.
  Round* InFlight(RoundNumber number) {
    return round.has_value() && round->number() == number ? &*round : nullptr;
  }
  // The round in flight, if the trainer waits for it and the aggregator knows it.
  std::optional<RoundWait> TrainerWaits(absl::Time now) const;
  std::string Where() const;  // "Lane g, round 7", for errors.
  // Its placement was not sent in this session.
  Finding UnknownPlacement() const;
  // Why a call of the trainer is refused: the lane and its round, then `why`.
  Error RefuseCall(ErrorCode code, const std::string& why) const;
  // For a hello; nullopt without a history.
  std::optional<LaneHistory> History() const;
  absl::Time NextDeadline() const {
    if (!round.has_value()) return absl::InfiniteFuture();
    return std::min({round->wait().until().value_or(absl::InfiniteFuture()),
                     round->elsewhere().request_at(), round->push().resume_at()});
  }

  // ---- membership
  // The worker counts in this lane from round `at` on; `chain` is the chain of the earlier rounds,
  // and `committed` what they have committed of an epoch.
  void Start(RoundNumber at, std::optional<uint64_t> chain, SampleProgress committed = {});
  // Nothing that this worker has to do or to keep needs the lane. REQUIRES: it is a call lane.
  bool IsIdle() const {
    return in_session && !claimed && !round.has_value() && !undelivered.has_value() &&
           !early.has_value() && !report.has_value() && !samples.request.has_value();
  }
  // Whether the worker has let the lane go since its last verdict, so that the lane may be gone. To
  // become a member where it is changes nothing about that.
  bool HasLetGo() const { return let_go.has_value() && (!started || *let_go == last_verdict); }
  // Its next round is placed like this. Returns whether the placement is known.
  bool Use(const Placements& placements, const RoundPlacement& of_next);
  // Likewise, after the placement or the layout has changed.
  bool Place(const Placements& placements);
  // Starts at the round of the layout, unless the start is already known.
  void StartAtLayout();
  // The worker takes part in no further round: results that it has not requested are not needed.
  void Finish();
  // The incarnation has ended: no information from the aggregator is valid any longer.
  void Forget();

  void EndSession();

  LaneHandle handle;
  std::string name;
  LaneKind kind;
  std::vector<RegisteredTensor> tensors;  // By handle.
  std::map<std::string, TensorHandle> by_name;

  std::optional<LaneIndex> index;
  bool in_session = false;  // The aggregator of this session has sent the lane's index.
  bool laid_out = false;    // It has sent the whole layout in answer to a registration.
  Layout layout;
  uint64_t window = 0;           // With which a round starts.
  RoundPlacement placement;      // That of the next round,
  Shares shares;                 // and what follows from it.
  bool placed = true;            // All tensors of the placement are known, so the shares are right.
  RoundNumber layout_round = 0;  // From the last layout.

  // History. Meaningful once it is started.
  bool started = false;
  RoundNumber last_verdict = 0;
  std::optional<uint64_t> chain;  // Unknown if the lane was joined without a chain.
  std::vector<VerdictRecord> verdicts;

  Settlement settlement;
  Samples samples;
  std::optional<BatchReport> report;  // That is not answered.
  std::optional<Round> round;         // The round in flight.
  // A received verdict, which is delivered when the trainer has committed or withdrawn.
  std::optional<VerdictRecord> undelivered;
  std::optional<VerdictRecord> early;  // A verdict that arrived before its results.
  // The hash of the optimizer with which the last round counted this worker in this session, so
  // that the aggregator knows the numbers behind it; 0: it may not know any.
  uint64_t known_optimizer = 0;
  RoundNumber asked_again = 0;  // RegisterAgain was done for this round.
  // The trainer has registered the lane and begun no round since, so it is about to.
  bool claimed = false;
  // The aggregator has asked whether this worker can let the lane go after this round. Answered
  // when the lane is idle.
  std::optional<RoundNumber> asked_to_let_go;
  std::optional<RoundNumber> let_go;  // It has answered, after this round, that it can.
  bool finished = false;

  auto Fields() const {
    return std::tie(handle, name, kind, tensors, by_name, index, in_session, laid_out, layout,
                    window, placement, shares, placed, layout_round, started, last_verdict, chain,
                    verdicts, settlement, samples, report, round, undelivered, early,
                    known_optimizer, asked_again, claimed, asked_to_let_go, let_go, finished);
  }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_H_
