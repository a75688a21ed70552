// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A round after its verdict, as observers see it, and the norms of its result.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_
#define BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/goodput.h"
#include "aggregator/core/round.h"
#include "protocol/layout.h"
#include "protocol/round.h"

namespace basin::aggregator {

// Enough for a plot of the recent past. A job has a lane for each call, so few rounds of each are
// enough.
inline constexpr size_t kRememberedRounds = 50;
inline constexpr size_t kRememberedCalls = 2;

// A round remembers only its last arrivals, so that a job of many workers takes little memory.
inline constexpr size_t kRememberedArrivals = 64;

// When the contribution of a worker was complete, after the first begin of its round.
struct Arrival {
  WorkerId worker;
  absl::Duration after;
};

// A round with a verdict, in numbers. Its time has three parts: its members contributed
// (`gathered`), then all waited only for the last of them (`waited`), then the rest was reduced and
// the value staged.
struct RoundSummary {
  RoundNumber round = 0;
  Outcome outcome = Outcome::kCommitted;
  uint32_t contributors = 0;  // Trainers, as in the world size.
  uint32_t world_size = 0;
  absl::Time opened;        // Its first begin.
  absl::Duration took;      // From there to its verdict.
  absl::Duration gathered;  // Until the last contribution but one was complete.
  absl::Duration waited;
  WorkerId waited_for;         // The last of several to contribute to a committed round, or empty.
  std::optional<double> norm;  // The norm of the result; absent if there is none.
  Counts batch;
  Awaited owed;                // What the last one still owed when `waited` began.
  absl::Duration first;        // When the first contribution was complete.
  std::vector<WorkerId> late;  // Left out because they were late.
  // Counted together with what they were too late for in the round before.
  std::vector<WorkerId> deferred;
  std::vector<Arrival> arrivals;  // The last ones of a committed round, in order.
};

// Summarizes a round of `layout` that gets the verdict in `record` now.
RoundSummary Summarize(const Layout& layout, const Round& round, const VerdictRecord& record,
                       absl::Time now);

// What the time of the members of a round is counted from, if it gets the verdict in `record` now.
RoundTimes TimesOf(const Round& round, const VerdictRecord& record, absl::Time now);
// The same of an open round, for Goodput::AsOf.
RoundTimes TimesSoFar(const Round& round, absl::Time now);

// The 2-norms of a round's result and of each tensor of the layout. They are absent without a
// result, and for integers.
struct ResultNorms {
  std::optional<double> all;
  std::vector<std::optional<double>> tensors;
};
ResultNorms NormsOf(const Layout& layout, const RoundValue& value);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_
