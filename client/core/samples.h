// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The samples of a lane as this worker knows them: what is committed as of its last verdict, the
// positions that it holds, and the request that is not answered.
//
// Whatever is on its way when a session ends is settled by the next hello, which names all
// positions that the worker holds: others that the aggregator thinks it holds are free again. A
// request is repeated in the next session.
//
// Thread contract: a plain value. The functions of a Lane with a Scope change its samples, append
// actions, and have no other effect.

#ifndef BASIN_CLIENT_CORE_SAMPLES_H_
#define BASIN_CLIENT_CORE_SAMPLES_H_

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "client/core/event.h"
#include "client/core/streams.h"
#include "protocol/intervals.h"
#include "protocol/messages.h"
#include "protocol/samples.h"

namespace basin::client {

struct Lane;

struct Samples {
  // A lease that is wanted.
  struct Request {
    uint64_t number = 0;
    uint64_t count = 0;
    bool sent = false;  // In this session.
    auto Fields() const { return std::tie(number, count, sent); }
  };

  // What the trainer resumes from: as of the last verdict, or what a checkpoint had committed
  // before the first verdict of its epoch.
  const SampleProgress& progress() const {
    const bool later = resumed.epoch.exists() && resumed.epoch.IsAfter(committed.epoch);
    return later ? resumed : committed;
  }
  // For a message about this epoch: what a checkpoint had committed of it, if no verdict has.
  std::vector<SampleRange> ResumedOf(const SampleEpoch& epoch) const {
    const bool known = epoch.HasOrderOf(resumed.epoch) && epoch.IsAfter(committed.epoch);
    return known ? resumed.ranges : std::vector<SampleRange>{};
  }
  // For a hello.
  SampleProgress Leased() const {
    return held.empty() ? SampleProgress{asked, {}} : SampleProgress{held_of, held.Runs()};
  }

  SampleProgress committed;  // As of the last verdict.
  SampleProgress resumed;    // What a checkpoint had committed, whichever worker had it.
  SampleEpoch asked;         // The epoch that the trainer last asked for.
  SampleEpoch held_of;       // That of the positions that it holds, ...
  // ... which include those of the round in flight. In an epoch of steps: what was leased and is
  // neither committed nor returned.
  IntervalSet held;
  IntervalSet returning;  // To be returned in this session.
  std::optional<Request> request;
  uint64_t requests = 0;

  auto Fields() const {
    return std::tie(committed, resumed, asked, held_of, held, returning, request, requests);
  }
};

// Takes a call of the trainer. An error that is not kOk refuses it, and nothing has changed.
Error Take(Lane& lane, const Scope& scope, const TakeSamples& take);
Error Take(Lane& lane, const Scope& scope, const GiveBackSamples& back);
Error Take(Lane& lane, const Scope& scope, const ResumeSamples& resume);
// Why the trainer cannot begin a round with these samples; kOk if it can.
Error WhyNotBegin(const Lane& lane, const BeginRound& begin);

// Sends what this session lacks. REQUIRES: the lane has its index in this session.
void AdvanceSamples(Lane& lane, const Scope& scope);
void OnLeased(Lane& lane, const Scope& scope, const SamplesLeased& leased);
// A verdict was recorded.
void OnVerdictSamples(Samples& samples, const RoundValue& value);
// The worker leases no more: it has finished, or is no member any more. `error` answers the
// request.
void StopLeasing(Lane& lane, const Scope& scope, const Error& error);
// The request and the report of a batch, if any, get no other answer.
void FailRequest(Lane& lane, const Scope& scope, const Error& error);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_SAMPLES_H_
