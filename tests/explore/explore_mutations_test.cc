// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The explorer can see: with a rule turned off, the smallest world that needs the rule has a
// violation; with the rule on, the same world has none.

#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/explore/search.h"

namespace basin::explore {
namespace {

SearchResult Explore(const Bounds& bounds) {
  Limits limits;
  limits.seconds = 120;
  return Search(bounds, limits);
}

void ExpectSound(const Bounds& bounds) {
  const SearchResult result = Explore(bounds);
  Print(bounds, result);
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.cut, "");
}

void ExpectViolation(const Bounds& bounds, const std::string& what) {
  const SearchResult result = Explore(bounds);
  std::printf("%s\n  %s\n", CommandOf(bounds).c_str(), result.Summary().c_str());
  EXPECT_NE(result.violation.find(what), std::string::npos) << result.violation;
  // The way there leads there again.
  std::vector<std::string> trail;
  EXPECT_NE(Replay(bounds, Spell(result.steps_there), trail).find(what), std::string::npos);
}

Bounds Small(uint32_t workers, uint32_t min_workers, uint32_t crashes) {
  Bounds bounds;
  bounds.workers = workers;
  bounds.min_workers = min_workers;
  bounds.crashes = crashes;
  return bounds;
}

constexpr char kFork[] = "its history is not the job's";
constexpr char kTwoVersions[] = "Two versions of round 1 are told";
constexpr char kBeforeState[] = "before it has the state of before that round";
constexpr char kStuck[] = "the job is stuck";

// A verdict told without STAGED: whoever applies it and is late to the recovery holds a version
// that nobody else has heard of.
TEST(ExploreMutations, OnePhaseForks) {
  Bounds bounds = Small(3, 2, 1);
  bounds.rules.two_phases = false;
  ExpectViolation(bounds, kFork);
}

// An adopted value told at once: whoever lacks its bytes cannot apply it and gives up its memory.
// The next crash then finds half of the members without.
TEST(ExploreMutations, AdoptingWithoutASecondPrepareHalts) {
  Bounds bounds = Small(2, 2, 2);
  ExpectSound(bounds);
  bounds.rules.second_prepare = false;
  ExpectViolation(bounds, kStuck);
}

// The first worker that says hello decides alone: one that was evicted while it lives, and has not
// heard of it, knows nothing of what the other has been told.
TEST(ExploreMutations, RecoveryWithWhoeverComesFirstForks) {
  Bounds bounds = Small(2, 1, 1);
  bounds.evictions = 1;
  ExpectSound(bounds);
  bounds.rules.recover_with_first = true;
  ExpectViolation(bounds, kFork);
}

// A process without memory counts for its member: with a worker that was evicted while it lives it
// makes a majority that knows nothing of what the third has applied.
TEST(ExploreMutations, CountingProcessesWithoutMemoryForks) {
  Bounds bounds = Small(3, 2, 1);
  bounds.evictions = bounds.restarts = 1;
  bounds.delays = 1;
  ExpectSound(bounds);
  bounds.rules.memoryless_counts = true;
  ExpectViolation(bounds, kTwoVersions);
}

// A hello counts as a promise: one worker reads its welcome, is told a verdict alone, and at the
// next recovery the two others, which have not read theirs, are a majority of the list before. That
// min_workers is not above half lets one go on alone; it is not what is missing.
TEST(ExploreMutations, CountingAHelloAsAPromiseForks) {
  Bounds bounds = Small(3, 1, 2);
  bounds.evictions = 1;
  bounds.delays = 2;
  ExpectSound(bounds);
  bounds.rules.hello_promises = true;
  ExpectViolation(bounds, kTwoVersions);
}

// min_workers not above half: one worker is told a verdict alone, and the two others, which were
// evicted and have not heard of it, are a majority at the next recovery.
TEST(ExploreMutations, MinWorkersAtHalfForks) {
  Bounds bounds = Small(3, 1, 1);
  bounds.evictions = 2;
  bounds.delays = 3;
  ExpectViolation(bounds, kFork);
}

// A survivor's frame that was on its way when another worker was lost is dropped, and the survivor,
// to whom it was acknowledged, never sends it again.
TEST(ExploreMutations, DroppingFramesOfSurvivorsStops) {
  Bounds bounds = Small(2, 1, 0);
  bounds.deaths = 1;
  ExpectSound(bounds);
  bounds.rules.fence_by_generation = true;
  ExpectViolation(bounds, kStuck);
}

// A worker that is lost once the round is prepared leaves the job paused. Its replacement is asked
// to stage before it has the state, so the others hear the verdict, and the state that they serve
// has the round that the replacement is given as its first.
TEST(ExploreMutations, StagingWithoutStateAppliesARoundTwice) {
  Bounds bounds = Small(2, 2, 0);
  bounds.restarts = 1;
  ExpectSound(bounds);
  bounds.rules.stages_without_state = true;
  ExpectViolation(bounds, kBeforeState);
}

// What delivery owes its sessions shows in the step that breaks it. Two frames of one job, or one
// of each of two jobs, are on data streams that break.
Bounds OfDelivery(uint32_t jobs, uint32_t workers) {
  Bounds bounds = Small(workers, 1, 0);
  bounds.jobs = jobs;
  bounds.stream_cuts = 2;
  return bounds;
}

constexpr char kNeeded[] = "is forgotten, and session";

TEST(ExploreMutations, Fault_N2_ForgettingWhatALostStreamCarriedOwesIt) {
  Bounds bounds = OfDelivery(2, 1);
  ExpectSound(bounds);
  bounds.rules.forgets_lost_frames = true;
  ExpectViolation(bounds, kNeeded);
}

TEST(ExploreMutations, Fault_N2_SendingAgainToAnyoneReachesAnotherJob) {
  Bounds bounds = OfDelivery(2, 1);
  bounds.rules.resends_to_anyone = true;
  ExpectViolation(bounds, "of another job is sent to session");
}

TEST(ExploreMutations, CountingAnAcknowledgementTwiceOwesAFrame) {
  Bounds bounds = OfDelivery(1, 2);
  ExpectSound(bounds);
  bounds.rules.counts_acks_twice = true;
  ExpectViolation(bounds, kNeeded);
}

TEST(ExploreMutations, Fault_N2_SettlingAtOnceLosesASessionTooEarly) {
  Bounds bounds = Small(2, 1, 0);
  bounds.cuts = 1;
  ExpectSound(bounds);
  bounds.rules.settles_at_once = true;
  ExpectViolation(bounds, "is lost before it has settled");
}

}  // namespace
}  // namespace basin::explore
