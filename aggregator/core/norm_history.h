// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How large the contributions of a lane usually are, and which worker's is far from that: a worker
// that diverges, or whose hardware computes wrongly, shows here before it shows in the loss.
//
// It looks at the logarithm of a contribution's norm, because norms differ by factors. Mean and
// variance are exponential averages over the rounds so far, of all workers together: with two or
// four workers the others of one round alone are too few. A worker's z-score is its distance from
// the mean of the rounds before, in standard deviations. The loss scale is divided out first: a
// scaler that halves or doubles it changes every norm, and no gradient.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_NORM_HISTORY_H_
#define BASIN_AGGREGATOR_CORE_NORM_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "protocol/round.h"

namespace basin::aggregator {

// Rounds that are watched before any worker is called unusual.
inline constexpr uint64_t kNormWarmUp = 20;

// The norms of one round: when the model diverges, all are unusual.
inline constexpr size_t kMostNamed = 8;

// The least standard deviation of the logarithm. Norms of gradients that hardly vary would make a
// difference of a few percent unusual. The contents of calls differ by more from one to the next: a
// metric, a count, the last and shorter batch.
inline constexpr double kLeastDeviationOfGradients = 0.05;
inline constexpr double kLeastDeviationOfCalls = 2.3;  // A factor of ten.

struct UnusualNorm {
  WorkerId worker;
  double norm = 0;   // Without the loss scale.
  double usual = 0;  // The geometric mean of the rounds before.
  double z = 0;      // Infinite when the norm is: a number is not finite.
};

class NormHistory {
 public:
  explicit NormHistory(double least_deviation = kLeastDeviationOfGradients)
      : least_deviation_(least_deviation) {}

  // Takes in a committed round. Returns the workers that are unusual in this round and were not in
  // the round before, the farthest first: their z-score is at or beyond `threshold`, or they sent a
  // number that is not finite. Contributions of unknown norm, of norm 0 and of weight 0 are left
  // out: what adds nothing to the result is neither judged nor learned from. REQUIRES: loss_scale >
  // 0, threshold > 0.
  std::vector<UnusualNorm> Add(const std::vector<Contributor>& contributors, double loss_scale,
                               double threshold);

  auto Fields() const { return std::tie(least_deviation_, rounds_, mean_, variance_, unusual_); }

 private:
  double Deviation() const;  // That of the logarithm, as it is used.
  void Learn(const std::vector<double>& logarithms);

  double least_deviation_;
  uint64_t rounds_ = 0;
  double mean_ = 0;             // The mean of the logarithm of the norm.
  double variance_ = 0;         // Likewise.
  std::set<WorkerId> unusual_;  // In the last round.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_NORM_HISTORY_H_
