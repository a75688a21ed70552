// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What observers see of a round after its verdict, and the norms of its result.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_
#define BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/layout.h"
#include "aggregator/core/round.h"
#include "protocol/round.h"

namespace basin::aggregator {

// Enough for a plot of the recent past. Calls have a round in a lane of their own, so few are
// enough there.
inline constexpr size_t kRememberedRounds = 50;
inline constexpr size_t kRememberedCalls = 2;

// A round that has its verdict, in numbers. The time that it took has three parts: its members
// contributed (`gathered`, without what follows), then all waited for the last of them alone
// (`waited`), then the rest was reduced and staged.
struct RoundSummary {
  RoundNumber round = 0;
  Outcome outcome = Outcome::kCommitted;
  uint32_t contributors = 0;
  uint32_t world_size = 0;
  absl::Duration took;      // From its first begin to its verdict.
  absl::Duration gathered;  // Until the last contribution but one was complete.
  absl::Duration waited;
  WorkerId waited_for;         // The last of several to contribute to a committed round, or empty.
  std::optional<double> norm;  // The result's; absent if there is none.
  Counts batch;
};

// The round of `layout` that gets the verdict in `record` now.
RoundSummary Summarize(const Layout& layout, const Round& round, const VerdictRecord& record,
                       absl::Time now);

// The 2-norms of a round's result: of the whole, and of each tensor of the layout. Absent without a
// result, and for integers.
struct ResultNorms {
  std::optional<double> all;
  std::vector<std::optional<double>> tensors;
};
ResultNorms NormsOf(const Layout& layout, const RoundValue& value);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_SUMMARY_H_
