// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The settings of a job, as workers declare them and an operator changes them, and its pace.

#include "aggregator/core/agreed_settings.h"

#include "aggregator/core/pace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

JobSettings Make(uint32_t min, uint32_t max, uint32_t start) {
  JobSettings settings;
  settings.min_workers = min;
  settings.max_workers = max;
  settings.start_workers = start;
  return settings;
}

// A job of one to four workers that starts with two.
struct Declared : testing::Test {
  Declared() { agreed.Declare(Make(1, 4, 2)); }
  Config config;
  AgreedSettings agreed;
};
using AgreedSettingsTest = Declared;

TEST_F(AgreedSettingsTest, WhatIsNotDeclaredIsAllWorkers) {
  EXPECT_EQ(AgreedSettings::Resolve({}), Make(1, 1, 1));
  EXPECT_EQ(AgreedSettings::Resolve(Make(0, 8, 0)), Make(8, 8, 8));
  EXPECT_EQ(AgreedSettings().most_workers(), 1u) << "before anybody has declared them";
}

TEST_F(AgreedSettingsTest, AHelloMayAskForWhatWasDeclaredOrForWhatAnOperatorHasSet) {
  SetJob set;
  set.max_workers = 6;
  EXPECT_THAT(agreed.Set(config, set), ElementsAre("max_workers = 6"));
  EXPECT_FALSE(agreed.DiffersFrom(Make(1, 4, 2)).has_value());
  EXPECT_FALSE(agreed.DiffersFrom(Make(1, 6, 2)).has_value());
  EXPECT_FALSE(agreed.DiffersFrom({}).has_value()) << "it asks for nothing";
  const auto differs = agreed.DiffersFrom(Make(2, 5, 2));
  ASSERT_TRUE(differs.has_value());
  EXPECT_STREQ(differs->name, "max_workers");
  EXPECT_EQ(differs->theirs, 5u);
  EXPECT_EQ(differs->ours, 6u);
  EXPECT_STREQ(agreed.DiffersFrom(Make(2, 4, 2))->name, "min_workers");
  EXPECT_STREQ(agreed.DiffersFrom(Make(1, 4, 3))->name, "start_workers");
}

TEST_F(AgreedSettingsTest, AnotherRunUndoesWhatAnOperatorHasSet) {
  SetJob set;
  set.loss_policy = LossPolicy::kAbort;
  set.late_policy = LatePolicy::kEvict;
  EXPECT_THAT(agreed.Set(config, set), ElementsAre("loss_policy = abort", "late_policy = evict"));
  EXPECT_EQ(agreed.loss_policy(config), LossPolicy::kAbort);
  EXPECT_THAT(agreed.Set(config, set), IsEmpty()) << "it is so already";
  agreed.Reopen();
  EXPECT_FALSE(agreed.declared());
  agreed.Declare(Make(1, 4, 2));
  EXPECT_EQ(agreed.loss_policy(config), config.loss_policy);
  EXPECT_EQ(agreed.late_policy(config), config.late_policy);
}

TEST_F(AgreedSettingsTest, StartWorkersFollowTheOthers) {
  SetJob set;
  set.min_workers = 3;
  EXPECT_EQ(agreed.With(set).start_workers, 3u);
  set.min_workers = 1;
  set.max_workers = 1;
  EXPECT_EQ(agreed.With(set).start_workers, 1u);
}

TEST_F(AgreedSettingsTest, WhatCannotBeIsExplained) {
  SetJob set;
  EXPECT_EQ(agreed.WhyNotSet(config, 0, set), "");
  EXPECT_THAT(AgreedSettings().WhyNotSet(config, 0, set), HasSubstr("no worker has sent"));
  set.min_workers = 0;
  EXPECT_THAT(agreed.WhyNotSet(config, 0, set), HasSubstr("choose 1 <= min_workers"));
  set.min_workers = 5;
  EXPECT_THAT(agreed.WhyNotSet(config, 0, set), HasSubstr("min_workers would be 5"));
  set.min_workers.reset();
  set.max_workers = 2;
  EXPECT_THAT(agreed.WhyNotSet(config, 3, set), HasSubstr("it has 3 workers; drain some"));
  EXPECT_EQ(agreed.WhyNotSet(config, 2, set), "");
  config.max_workers = 8;
  set.max_workers = 9;
  EXPECT_THAT(agreed.WhyNotSet(config, 0, set), HasSubstr("this aggregator allows 8"));
  set.max_workers.reset();
  set.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::InfiniteDuration();
  EXPECT_THAT(agreed.WhyNotSet(config, 0, set), HasSubstr("needs round.evict_late_after"));
}

TEST(Pace, AllowsOneSecondsRoundsAtOnceAndThenOneForEachPartOfASecond) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Config config;
  config.max_job_rounds = 4;
  Pace pace;
  for (int i = 0; i < 5; ++i) {
    EXPECT_LE(pace.Next(config), now) << i;
    pace.Count(now, config);
  }
  EXPECT_EQ(pace.Next(config), now + absl::Seconds(1) / 4);
  pace.Count(now + absl::Seconds(60), config);
  EXPECT_LE(pace.Next(config), now + absl::Seconds(60)) << "it was quiet";
  config.max_job_rounds = 0;
  EXPECT_EQ(pace.Next(config), absl::InfinitePast()) << "there is no limit";
}

TEST(Pace, ReportsHowMuchOfASecondsRoundsIsUsedUp) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Config config;
  config.max_job_rounds = 4;
  Pace pace;
  EXPECT_EQ(pace.Used(now, config), 0u);
  for (uint32_t used = 1; used <= 4; ++used) {
    pace.Count(now, config);
    EXPECT_EQ(pace.Used(now, config), used);
  }
  pace.Count(now, config);
  EXPECT_GT(pace.Next(config), now);
  EXPECT_EQ(pace.Used(now, config), 4u) << "the next verdict waits";
  EXPECT_EQ(pace.Used(now + absl::Milliseconds(750), config), 2u);
  EXPECT_EQ(pace.Used(now + absl::Seconds(60), config), 0u);
  config.max_job_rounds = 0;
  EXPECT_EQ(pace.Used(now, config), 0u) << "there is no limit";
}

}  // namespace
}  // namespace basin::aggregator
