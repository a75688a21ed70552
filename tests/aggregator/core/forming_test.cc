// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job without members starts, and how its earlier members ended.

#include "aggregator/core/forming.h"

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

const absl::Time kFormingSince = absl::FromUnixSeconds(1000);

TEST(Forming, NeedsStartWorkersUntilItsTimeIsOver) {
  Config config;
  config.start_timeout = absl::Seconds(60);
  const JobSettings settings{1, 4, 3};
  Forming forming;
  EXPECT_EQ(forming.Due(config), absl::InfiniteFuture()) << "it has not begun to wait";
  forming.Begin(kFormingSince);
  EXPECT_EQ(forming.Due(config), kFormingSince + absl::Seconds(60));
  EXPECT_EQ(forming.Least(settings), 3u);
  forming.TimeOut();
  EXPECT_EQ(forming.Due(config), absl::InfiniteFuture());
  EXPECT_EQ(forming.Least(settings), 1u);
  forming.Begin(kFormingSince);
  EXPECT_EQ(forming.Least(settings), 3u) << "another lineage does not inherit that";
}

TEST(Forming, AJobIsOverWhenItsLastMembersEndedWellAndNobodyWaits) {
  Forming forming;
  forming.NoteLoss(true);
  EXPECT_TRUE(forming.EndLineage(kFormingSince, false));
  EXPECT_TRUE(forming.over());
  EXPECT_TRUE(forming.BeginAnew());
  EXPECT_FALSE(forming.over());
  EXPECT_FALSE(forming.BeginAnew());

  forming.NoteLoss(true);
  EXPECT_TRUE(forming.EndLineage(kFormingSince, true)) << "they ended well all the same";
  EXPECT_FALSE(forming.over());

  forming.NoteLoss(true);
  forming.NoteLoss(false);
  EXPECT_FALSE(forming.EndLineage(kFormingSince, false)) << "the last one was lost";
  EXPECT_FALSE(forming.over());

  forming.NoteLoss(true);
  forming.Forget();
  EXPECT_FALSE(forming.EndLineage(kFormingSince, false));
}

}  // namespace
}  // namespace basin::aggregator
