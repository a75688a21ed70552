// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The grounds of the leadership of an aggregator over a job.

#include "aggregator/core/standing.h"

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

TEST(Standing, IsEstablishedByAVerdictOrARecovery) {
  Standing standing;
  EXPECT_FALSE(standing.established());
  standing.SendVerdict();
  EXPECT_TRUE(standing.established());
  EXPECT_TRUE(standing.sent_verdict());
  standing.Forget();
  EXPECT_FALSE(standing.established());
  standing.Recover();
  EXPECT_TRUE(standing.established());
  EXPECT_FALSE(standing.sent_verdict());
}

TEST(Standing, ALineageThatEndsLeavesOnlyItsVerdicts) {
  Standing standing;
  standing.Recover();
  standing.EndLineage();
  EXPECT_FALSE(standing.established()) << "a late worker may still hold the state";
  standing.SendVerdict();
  standing.EndLineage();
  EXPECT_TRUE(standing.established());
}

TEST(Standing, TheGenerationsSinceAFirstOneThatIsVoidAreVoidInItsTerm) {
  Standing standing;
  EXPECT_FALSE(standing.IsVoid({7, 2}));
  standing.Form({7, 2});
  EXPECT_FALSE(standing.IsVoid({7, 2})) << "nobody has remembered the run yet";
  standing.Void();
  EXPECT_TRUE(standing.IsVoid({7, 2}));
  EXPECT_TRUE(standing.IsVoid({7, 3}));
  EXPECT_FALSE(standing.IsVoid({7, 1}));
  EXPECT_FALSE(standing.IsVoid({8, 1}));
  EXPECT_FALSE(standing.IsVoid({6, 9}));
  standing.Forget();
  EXPECT_TRUE(standing.IsVoid({7, 2})) << "a worker may still come with it";
}

TEST(Standing, ARecoveryStandsWithThePromisesOfThoseItCounted) {
  const JobSettings settings{1, 2, 2};
  Standing standing;
  EXPECT_TRUE(standing.stands());
  standing.Await({"a", "b"});
  EXPECT_FALSE(standing.stands());
  EXPECT_FALSE(standing.Promise("c", settings));
  EXPECT_FALSE(standing.Promise("a", settings));
  EXPECT_EQ(standing.awaited(), (std::set<WorkerId>{"b"}));
  EXPECT_TRUE(standing.Promise("b", settings));
  EXPECT_TRUE(standing.stands());
  standing.Await({"a"});
  standing.Forget();
  EXPECT_TRUE(standing.stands()) << "the next recovery counts anew";
}

}  // namespace
}  // namespace basin::aggregator
