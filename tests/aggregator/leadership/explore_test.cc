// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Every state of two candidates and their authority (explore.h): small worlds for every change,
// larger ones each night, and what the search finds when a rule is broken.

#include "tests/aggregator/leadership/explore.h"

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

LeadershipSearch Explore(const LeadershipBounds& bounds) {
  LeadershipSearch result = ExploreLeadership(bounds);
  std::printf("  %s\n", result.Summary().c_str());
  std::fflush(stdout);
  return result;
}

void ExpectSound(const LeadershipBounds& bounds) {
  const LeadershipSearch result = Explore(bounds);
  EXPECT_EQ(result.violation, "");
  EXPECT_TRUE(result.complete);
  // A search in which nothing of this happens shows nothing.
  EXPECT_GT(result.begins, 0u);
  EXPECT_GT(result.goes_on, 0u);
  EXPECT_GT(result.ends, 0u);
}

// For every change: the lease is one step of time.
LeadershipBounds Small() {
  LeadershipBounds bounds;
  bounds.steps = 1;
  bounds.stale_writes = false;
  return bounds;
}

TEST(LeadershipExplore, Fault_A5_TwoCandidatesAndAnAuthorityThatForgets) { ExpectSound(Small()); }

// A backup that is older than the last lease.
TEST(LeadershipExplore, Fault_A5_AnAuthorityThatIsRestoredAfterALease) {
  LeadershipBounds bounds = Small();
  bounds.forgets = false;
  bounds.restores = Restores::kAfterALease;
  ExpectSound(bounds);
}

TEST(LeadershipExploreWhole, Fault_A5_WithWritesThatArriveLate) {
  LeadershipBounds bounds = Small();
  bounds.stale_writes = true;
  ExpectSound(bounds);
}

TEST(LeadershipExploreWhole, Fault_A5_WithACandidateThatStartsAgain) {
  LeadershipBounds bounds = Small();
  bounds.restarts = 1;
  ExpectSound(bounds);
}

TEST(LeadershipExploreWhole, Fault_A5_WithTwoLeases) {
  LeadershipBounds bounds = Small();
  bounds.longer_lease = true;
  ExpectSound(bounds);
}

TEST(LeadershipExploreWhole, Fault_A5_InHalvesOfALease) {
  LeadershipBounds bounds = Small();
  bounds.steps = 2;
  ExpectSound(bounds);
}

void ExpectFound(BrokenRule broken, const std::string& what) {
  LeadershipBounds bounds = Small();
  bounds.broken = broken;
  EXPECT_NE(Explore(bounds).violation.find(what), std::string::npos);
}

constexpr char kBoth[] = "may decide, and so may";

TEST(LeadershipExplore, FindsAPermissionWithoutAMargin) {
  ExpectFound(BrokenRule::kNoMargin, kBoth);
}

TEST(LeadershipExplore, FindsAPermissionThatCountsFromTheAnswer) {
  ExpectFound(BrokenRule::kCountsFromTheAnswer, kBoth);
}

TEST(LeadershipExplore, FindsAnAuthorityThatIgnoresVersions) {
  ExpectFound(BrokenRule::kIgnoresVersions, kBoth);
}

TEST(LeadershipExplore, FindsClocksThatDriftFurther) {
  ExpectFound(BrokenRule::kClocksDriftFurther, kBoth);
}

// A leader that has written its record leads; the authority forgets that, and another one takes
// what it has instead. No candidate can see this, so an authority must not do it.
TEST(LeadershipExplore, FindsAnAuthorityThatLosesAWriteWithinALease) {
  LeadershipBounds bounds = Small();
  bounds.restores = Restores::kAtAnyTime;
  EXPECT_NE(Explore(bounds).violation.find(kBoth), std::string::npos);
}

// What was decided just before a lead is given up must take its effect before that.
TEST(LeadershipExplore, FindsADecisionThatActsAfterTheRelease) {
  ExpectFound(BrokenRule::kActsAfterRelease, kBoth);
}

}  // namespace
}  // namespace basin::aggregator
