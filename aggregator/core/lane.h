// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A lane: an ordered sequence of rounds with a layout of its own, and what is remembered of them.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_LANE_H_
#define BASIN_AGGREGATOR_CORE_LANE_H_

#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/core/grace.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/norm_history.h"
#include "aggregator/core/optimizer_numbers.h"
#include "aggregator/core/round.h"
#include "aggregator/core/round_summary.h"
#include "aggregator/core/sample_ledger.h"
#include "aggregator/core/spec.h"
#include "aggregator/core/target_batch.h"
#include "protocol/layout.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// Verdicts that are sent again to workers that missed them. All members have staged the one before
// the last, or no other could have followed it.
inline constexpr size_t kRememberedVerdicts = 2;

// Chain hashes by which a worker that comes back is checked.
inline constexpr size_t kRememberedChains = 64;

inline NormHistory NormsFor(LaneKind kind) {
  return NormHistory(kind == LaneKind::kCall ? kLeastDeviationOfCalls : kLeastDeviationOfGradients);
}

struct Lane {
  LaneIndex index = 0;
  std::string name;
  LaneKind kind = LaneKind::kGradient;
  Layout layout;
  LayoutBytes layout_bytes;
  LaneMemory memory;
  uint64_t tracking = 0;               // Charged to the budget for what is known of its chunks.
  uint64_t ledger_bytes = 0;           // Charged to it for the ledger.
  RoundNumber next = 1;                // The open round, or the one that opens next.
  uint64_t chain = 0;                  // After round next - 1.
  std::deque<VerdictRecord> verdicts;  // The last few, oldest first.
  std::deque<RoundSummary> past;       // The last rounds, oldest first; for observers.
  std::deque<std::pair<RoundNumber, uint64_t>> chains;  // The last many, oldest first.
  std::optional<RoundSpec> last_spec;                   // That of the last committed round.
  NormHistory norms;                                    // The norms of its contributions.
  Grace grace;                                          // For those who are late in its rounds.
  SampleLedger ledger;                                  // For the samples of its rounds.
  TargetBatch batch;                                    // That of its next round.
  OptimizerNumbers optimizers;                          // Those of the open round.
  RoundPlacement placement;                             // That of its open or next round.
  Shares shares;                                        // Where that has the chunks.
  std::optional<Round> round;
  absl::Time last_used;

  // All members have staged its round, and the verdict waits for the job's pace
  // (limits.job_rounds).
  bool paced = false;

  // A call lane that was not used for long or has made room for another one, or a lane of a job
  // that all workers have left: it holds no memory until it is used again.
  bool expired = false;

  // Adds a tensor to the layout, under the same conditions.
  void Append(const TensorSpec& spec) {
    layout.Append(spec);
    layout_bytes.Add(spec);
  }

  bool Open() const { return round.has_value() && round->begun(); }

  // Whether it is a call lane in use that no round needs.
  bool MayExpire() const { return kind == LaneKind::kCall && !expired && !round.has_value(); }
  // When the lane expires by itself; InfiniteFuture when it cannot.
  absl::Time IdleEnd(const Config& config) const {
    return MayExpire() ? last_used + config.idle_lane_timeout : absl::InfiniteFuture();
  }

  // The verdict of the open round. REQUIRES: round.has_value().
  void Remember(VerdictRecord record, absl::Time now, MemoryBudget& budget) {
    past.push_back(Summarize(layout, *round, record, now));
    if (past.size() > (kind == LaneKind::kCall ? kRememberedCalls : kRememberedRounds)) {
      past.pop_front();
    }
    chain = record.chain;
    next = record.round + 1;
    chains.emplace_back(record.round, record.chain);
    if (chains.size() > kRememberedChains) chains.pop_front();
    if (record.value.outcome == Outcome::kCommitted) {
      last_spec = AsBegun(record.value.spec);
      optimizers.EndRound(round->agreement.optimizer(), budget);
    }
    verdicts.push_back(std::move(record));
    if (verdicts.size() > kRememberedVerdicts) verdicts.pop_front();
  }

  // Whether `hash` is the chain after one of the rounds that are remembered.
  bool Remembers(RoundNumber number, uint64_t hash) const {
    for (const auto& [round_number, remembered] : chains) {
      if (round_number == number && remembered == hash) return true;
    }
    return false;
  }

  // Whether a worker whose last verdict is `number`, with this chain after it, has lived through
  // this lane's history. True if that is too long ago to check.
  bool Agrees(RoundNumber number, uint64_t hash) const {
    if (number + 1 == next && hash == chain) return true;
    bool known = number + 1 == next;
    for (const auto& [round_number, remembered] : chains) {
      if (round_number != number) continue;
      if (remembered == hash) return true;
      known = true;
    }
    return !known;
  }

  // Workers that join after this start from another state than the one that the rounds so far led
  // to.
  void StartLineage(uint64_t marker, MemoryBudget& budget) {
    chain = MixChain(chain, marker);
    ledger = SampleLedger();
    batch = TargetBatch();
    optimizers.Clear(budget);
  }

  auto Fields() const {
    return std::tie(index, name, kind, layout, memory, tracking, ledger_bytes, next, chain,
                    verdicts, chains, last_spec, norms, grace, ledger, batch, optimizers, placement,
                    shares, round, last_used, paced, expired);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_LANE_H_
