// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// These tests check which contributions are unusual.

#include "aggregator/core/norm_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace basin::aggregator {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr double kThreshold = 6;

Contributor Of(const std::string& worker, std::optional<double> norm) {
  Contributor contributor;
  contributor.worker = worker;
  if (norm.has_value()) contributor.squared_norm = *norm * *norm;
  return contributor;
}

// Rounds of workers a, b and c, whose norms vary by some percent and fall like a loss.
class Trained {
 public:
  explicit Trained(int rounds) {
    for (int i = 0; i < rounds; ++i) EXPECT_THAT(Add(), IsEmpty()) << "round " << i;
  }

  // Adds the next round. `factor` scales what worker b sends.
  std::vector<UnusualNorm> Add(double factor = 1) {
    const double level = 10 * std::exp(-0.01 * ++round_);
    std::normal_distribution<> noise(0, 0.2);
    std::vector<Contributor> all;
    for (const char* worker : {"a", "b", "c"}) {
      const double norm = level * std::exp(noise(random_));
      all.push_back(Of(worker, worker[0] == 'b' ? norm * factor : norm));
    }
    return history_.Add(all, 1, kThreshold);
  }
  NormHistory& history() { return history_; }

 private:
  NormHistory history_;
  std::mt19937_64 random_{7};
  int round_ = 0;
};

TEST(NormHistory, Criterion_3_8_AWorkerThatDivergesIsNamedOnce) {
  Trained job(400);
  const std::vector<UnusualNorm> news = job.Add(100);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].worker, "b");
  EXPECT_GT(news[0].z, kThreshold);
  EXPECT_GT(news[0].norm, 50 * news[0].usual);
  EXPECT_THAT(job.Add(100), IsEmpty()) << "it was named, and is as it was";
  EXPECT_THAT(job.Add(), IsEmpty());
  EXPECT_THAT(job.Add(1000), SizeIs(1)) << "it had been usual again";
}

TEST(NormHistory, Criterion_3_8_AGradientThatVanishesIsUnusualToo) {
  Trained job(100);
  const std::vector<UnusualNorm> news = job.Add(1e-4);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_LT(news[0].z, -kThreshold);
}

TEST(NormHistory, Criterion_3_8_ANumberThatIsNotFiniteNeedsNoHistory) {
  NormHistory history;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<UnusualNorm> news = history.Add({Of("a", 1), Of("b", infinity)}, 1, kThreshold);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].worker, "b");
  EXPECT_TRUE(std::isinf(news[0].norm));
  for (int i = 0; i < 100; ++i) EXPECT_THAT(history.Add({Of("a", 1)}, 1, kThreshold), IsEmpty());
}

TEST(NormHistory, Criterion_3_8_WhatAllWorkersShareIsNoFaultOfAny) {
  // With a batch of 3 instead of 256, gradients are noise and sqrt(256 / 3) times as large.
  const double shorter = 9;
  for (const size_t workers : {2, 3, 4}) {
    NormHistory history;
    std::mt19937_64 random(11);
    std::normal_distribution<> noise(0, 0.1);
    for (int round = 1; round <= 200; ++round) {
      std::vector<Contributor> all;
      for (size_t i = 0; i < workers; ++i) {
        const double level = round % 25 == 0 ? shorter : 1;
        all.push_back(
            Of(std::string(1, static_cast<char>('a' + i)), level * std::exp(noise(random))));
      }
      if (round == 199) *all[1].squared_norm *= 1e8;
      const std::vector<UnusualNorm> news = history.Add(all, 1, kThreshold);
      ASSERT_THAT(news, SizeIs(round == 199 ? 1 : 0)) << workers << ", round " << round;
      if (round == 199) {
        EXPECT_EQ(news[0].worker, "b");
      }
    }
  }
}

TEST(NormHistory, NobodyIsNamedInTheFirstRounds) {
  NormHistory history;
  for (uint64_t i = 0; i < kNormWarmUp; ++i) {
    EXPECT_THAT(history.Add({Of("a", i % 2 == 0 ? 1 : 1e6)}, 1, kThreshold), IsEmpty());
  }
}

TEST(NormHistory, ALastingChangeBecomesUsual) {
  Trained job(200);
  EXPECT_THAT(job.Add(1e3), SizeIs(1));
  int named = 0;
  for (int i = 0; i < 300; ++i) named += static_cast<int>(job.Add(1e3).size());
  EXPECT_THAT(job.Add(1e3), IsEmpty());
  EXPECT_LT(named, 5);
}

TEST(NormHistory, NormsThatNeverVaryAllowForSomePercent) {
  NormHistory history;
  for (int i = 0; i < 50; ++i) EXPECT_THAT(history.Add({Of("a", 1)}, 1, kThreshold), IsEmpty());
  EXPECT_THAT(history.Add({Of("a", 1.3)}, 1, kThreshold), IsEmpty());
  EXPECT_THAT(history.Add({Of("a", 1.8)}, 1, kThreshold), SizeIs(1));
}

TEST(NormHistory, ALossScaleThatChangesIsNoGradientThatChanges) {
  NormHistory history;
  double scale = 65536;
  for (int i = 0; i < 100; ++i) {
    if (i > 0 && i % 30 == 0) scale /= 1024;
    EXPECT_THAT(history.Add({Of("a", 3 * scale), Of("b", 3.1 * scale)}, scale, kThreshold),
                IsEmpty());
  }
  const std::vector<UnusualNorm> news =
      history.Add({Of("a", 3 * scale), Of("b", 300 * scale)}, scale, kThreshold);
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(news[0].worker, "b");
  EXPECT_NEAR(news[0].norm, 300, 1e-9);
  EXPECT_NEAR(news[0].usual, 3.05, 0.1);
}

TEST(NormHistory, UnknownAndEmptyContributionsAreLeftOut) {
  Trained job(100);
  const NormHistory before = job.history();
  EXPECT_THAT(job.history().Add({Of("a", std::nullopt), Of("b", 0.0)}, 1, kThreshold), IsEmpty());
  EXPECT_TRUE(before.Fields() == job.history().Fields());
}

TEST(NormHistory, Criterion_3_3_WhatHasWeightZeroIsNeitherJudgedNorLearnedFrom) {
  Trained job(100);
  const NormHistory before = job.history();
  for (const double norm : {std::numeric_limits<double>::infinity(), 1e30, 1.0}) {
    Contributor nothing = Of("b", norm);
    nothing.weight = 0;
    EXPECT_THAT(job.history().Add({nothing}, 1, kThreshold), IsEmpty());
    EXPECT_TRUE(before.Fields() == job.history().Fields()) << norm;
  }
  Contributor counted = Of("b", std::numeric_limits<double>::infinity());
  counted.weight = 3;
  EXPECT_THAT(job.history().Add({counted}, 1, kThreshold), SizeIs(1));
}

TEST(NormHistory, OfMany_TheFarthestAreNamed) {
  NormHistory history;
  std::vector<Contributor> all;
  for (int i = 0; i < 100; ++i) all.push_back(Of(std::to_string(1000 + i), 1));
  for (int i = 0; i < 50; ++i) EXPECT_THAT(history.Add(all, 1, kThreshold), IsEmpty());
  for (int i = 0; i < 100; ++i) all[i].squared_norm = std::pow(10.0, i);
  const std::vector<UnusualNorm> news = history.Add(all, 1, kThreshold);
  ASSERT_THAT(news, SizeIs(kMostNamed));
  EXPECT_EQ(news[0].worker, "1099");
}

TEST(NormHistory, CallsDifferByMoreBeforeTheyAreUnusual) {
  NormHistory history(kLeastDeviationOfCalls);
  for (int i = 0; i < 50; ++i) EXPECT_THAT(history.Add({Of("a", 2)}, 1, kThreshold), IsEmpty());
  EXPECT_THAT(history.Add({Of("a", 2e5)}, 1, kThreshold), IsEmpty()) << "the last, shorter batch";
  EXPECT_THAT(history.Add({Of("a", 1e30)}, 1, kThreshold), SizeIs(1));
}

}  // namespace
}  // namespace basin::aggregator
