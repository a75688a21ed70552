// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/norm_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace basin::aggregator {
namespace {

// How much of the past a round replaces: the memory is about 50 rounds.
constexpr double kShare = 0.02;

double LogarithmOf(const Contributor& contributor, double loss_scale) {
  return std::log(*contributor.squared_norm) / 2 - std::log(loss_scale);
}

bool IsJudged(const Contributor& contributor) {
  return contributor.squared_norm.value_or(0) != 0 && contributor.weight != 0;
}

// The finite ones that are judged, in order.
std::vector<double> Logarithms(const std::vector<Contributor>& contributors, double loss_scale) {
  std::vector<double> logarithms;
  for (const Contributor& contributor : contributors) {
    if (!IsJudged(contributor)) continue;
    const double logarithm = LogarithmOf(contributor, loss_scale);
    if (std::isfinite(logarithm)) logarithms.push_back(logarithm);
  }
  std::sort(logarithms.begin(), logarithms.end());
  return logarithms;
}

// Its distance from the middle of the others in its round, or from the nearer of two in the middle.
// Infinite without others. REQUIRES: `all` is sorted and has it.
double DistanceFromOthers(const std::vector<double>& all, double logarithm) {
  if (all.size() < 2) return std::numeric_limits<double>::infinity();
  const auto own =
      static_cast<size_t>(std::lower_bound(all.begin(), all.end(), logarithm) - all.begin());
  const auto other = [&](size_t i) { return std::abs(logarithm - all[i < own ? i : i + 1]); };
  const size_t others = all.size() - 1;
  return std::min(other((others - 1) / 2), other(others / 2));
}

}  // namespace

std::vector<UnusualNorm> NormHistory::Add(const std::vector<Contributor>& contributors,
                                          double loss_scale, double threshold) {
  std::vector<UnusualNorm> news;
  std::set<WorkerId> unusual;
  std::vector<double> logarithms;
  const std::vector<double> all = Logarithms(contributors, loss_scale);
  for (const Contributor& contributor : contributors) {
    if (!IsJudged(contributor)) continue;
    const double logarithm = LogarithmOf(contributor, loss_scale);
    const double z = (logarithm - mean_) / Deviation();
    const bool finite = std::isfinite(logarithm);
    const bool far = rounds_ >= kNormWarmUp && std::abs(z) >= threshold;
    // A deviation that the others share comes from the model or the script, not from this worker: a
    // last, shorter batch, another learning rate, a plateau that is left.
    const bool alone = far && DistanceFromOthers(all, logarithm) >= threshold * Deviation();
    if (alone || !finite) {
      unusual.insert(contributor.worker);
      if (unusual_.count(contributor.worker) == 0) {
        news.push_back({contributor.worker, std::exp(logarithm), std::exp(mean_), z});
      }
    }
    if (!finite) continue;
    // A value beyond the threshold is learned as the threshold, so that a lasting change becomes
    // usual.
    logarithms.push_back(far ? mean_ + std::copysign(threshold * Deviation(), z) : logarithm);
  }
  unusual_ = std::move(unusual);
  Learn(logarithms);
  std::stable_sort(news.begin(), news.end(), [](const UnusualNorm& a, const UnusualNorm& b) {
    return std::abs(a.z) > std::abs(b.z);
  });
  if (news.size() > kMostNamed) news.resize(kMostNamed);
  return news;
}

double NormHistory::Deviation() const { return std::max(std::sqrt(variance_), least_deviation_); }

void NormHistory::Learn(const std::vector<double>& logarithms) {
  if (logarithms.empty()) return;
  double mean = 0;
  double square = 0;  // About the old mean.
  for (const double logarithm : logarithms) {
    mean += logarithm;
    square += (logarithm - mean_) * (logarithm - mean_);
  }
  const auto count = static_cast<double>(logarithms.size());
  ++rounds_;
  // The first rounds are averaged evenly.
  const double share = std::max(kShare, 1 / static_cast<double>(rounds_));
  const double step = share * (mean / count - mean_);
  variance_ = std::max(0.0, (1 - share) * variance_ + share * (square / count) - step * step);
  mean_ += step;
}

}  // namespace basin::aggregator
