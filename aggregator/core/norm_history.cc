// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/norm_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace basin::aggregator {
namespace {

// How much of the past a round replaces: the memory is about 50 rounds.
constexpr double kShare = 0.02;

}  // namespace

std::vector<UnusualNorm> NormHistory::Add(const std::vector<Contributor>& contributors,
                                          double loss_scale, double threshold) {
  std::vector<UnusualNorm> news;
  std::set<WorkerId> unusual;
  std::vector<double> logarithms;
  for (const Contributor& contributor : contributors) {
    if (contributor.squared_norm.value_or(0) == 0 || contributor.weight == 0) continue;
    const double logarithm = std::log(*contributor.squared_norm) / 2 - std::log(loss_scale);
    const double z = (logarithm - mean_) / Deviation();
    const bool finite = std::isfinite(logarithm);
    const bool far = rounds_ >= kNormWarmUp && std::abs(z) >= threshold;
    if (far || !finite) {
      unusual.insert(contributor.worker);
      if (unusual_.count(contributor.worker) == 0) {
        news.push_back({contributor.worker, std::exp(logarithm), std::exp(mean_), z});
      }
    }
    if (!finite) continue;
    // From afar it is learned as far as the threshold, so that a lasting change becomes usual.
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
