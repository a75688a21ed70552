// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The explorer can find violations: with a rule turned off, the smallest world that needs the rule
// has a violation; with the rule on, the same world has none.

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
  // The trail leads to the violation again.
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

// A verdict is sent before all have staged. A worker that applies it and is late for the recovery
// holds a version that no other worker knows.
TEST(ExploreMutations, OnePhaseForks) {
  Bounds bounds = Small(3, 2, 1);
  bounds.rules.two_phases = false;
  ExpectViolation(bounds, kFork);
}

// The verdict of an adopted value is sent at once. A worker that lacks its bytes cannot apply it
// and gives up its memory, and the next crash then finds half of the members without memory.
TEST(ExploreMutations, AdoptingWithoutASecondPrepareHalts) {
  Bounds bounds = Small(2, 2, 2);
  ExpectSound(bounds);
  bounds.rules.second_prepare = false;
  ExpectViolation(bounds, kStuck);
}

// The first worker that sends a hello decides alone. It may have been evicted without knowing that,
// and then it does not know which verdicts the other worker has received.
TEST(ExploreMutations, RecoveryWithWhoeverComesFirstForks) {
  Bounds bounds = Small(2, 1, 1);
  bounds.evictions = 1;
  ExpectSound(bounds);
  bounds.rules.recover_with_first = true;
  ExpectViolation(bounds, kFork);
}

// A process without memory counts as its member. Together with a worker that was evicted while it
// lives, it makes a majority that does not know what the third worker has applied.
TEST(ExploreMutations, CountingProcessesWithoutMemoryForks) {
  Bounds bounds = Small(3, 2, 1);
  bounds.evictions = bounds.restarts = 1;
  bounds.delays = 1;
  ExpectSound(bounds);
  bounds.rules.memoryless_counts = true;
  ExpectViolation(bounds, kTwoVersions);
}

// A hello counts as a promise. One worker reads its welcome and receives a verdict alone. At the
// next recovery, the two others, which have not read theirs, are a majority of the earlier list.
// That min_workers is not above half only lets one worker go on alone.
TEST(ExploreMutations, CountingAHelloAsAPromiseForks) {
  Bounds bounds = Small(3, 1, 2);
  bounds.evictions = 1;
  bounds.delays = 2;
  ExpectSound(bounds);
  bounds.rules.hello_promises = true;
  ExpectViolation(bounds, kTwoVersions);
}

// With min_workers not above half, one worker receives a verdict alone. The two others were evicted
// and do not know it, and they are a majority at the next recovery.
TEST(ExploreMutations, MinWorkersAtHalfForks) {
  Bounds bounds = Small(3, 1, 1);
  bounds.evictions = 2;
  bounds.delays = 3;
  ExpectViolation(bounds, kFork);
}

// The aggregator drops a survivor's frame that was on its way when another worker was lost. It
// acknowledges the frame, so the survivor never sends it again.
TEST(ExploreMutations, DroppingFramesOfSurvivorsStops) {
  Bounds bounds = Small(2, 1, 0);
  bounds.deaths = 1;
  ExpectSound(bounds);
  bounds.rules.fence_by_generation = true;
  ExpectViolation(bounds, kStuck);
}

// A worker that is lost after the round is prepared leaves the job paused. Its replacement stages
// before it has the state, so the others receive the verdict. The state that they serve then
// contains the round that is the replacement's first.
TEST(ExploreMutations, StagingWithoutStateAppliesARoundTwice) {
  Bounds bounds = Small(2, 2, 0);
  bounds.restarts = 1;
  ExpectSound(bounds);
  bounds.rules.stages_without_state = true;
  ExpectViolation(bounds, kBeforeState);
}

// The result is no longer sent to whoever was late, and its verdict does not wait for that. What
// that worker had sent before it knew this then comes as if it took part after all.
TEST(ExploreMutations, LeavingWhoeverIsLateOutOfStagingRefusesIt) {
  Bounds bounds = Small(2, 1, 0);
  bounds.late = true;
  ExpectSound(bounds);
  bounds.rules.leaves_out_of_staging = true;
  ExpectViolation(bounds, "its contribution was rejected");
}

// A step that breaks a promise of delivery to its sessions shows it at once. Two frames of one job,
// or one of each of two jobs, are on data streams that break.
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
  bounds.rules.loses_at_once = true;
  ExpectViolation(bounds, "is lost before it has lingered");
}

// A shard that holds everything and is lost.
Bounds WithALostShard(uint32_t min_workers) {
  Bounds bounds = Small(2, min_workers, 0);
  bounds.shards = 1;
  bounds.coordinator_share = false;
  bounds.shard_losses = 1;
  return bounds;
}

// The aggregator reduces what it believes to be where the lost shard's bytes are now.
TEST(ExploreMutations, TakingALostShardsBytesForThereReducesWhatIsNot) {
  Bounds bounds = WithALostShard(2);
  ExpectSound(bounds);
  bounds.rules.keeps_lost_chunks = true;
  ExpectViolation(bounds, "The aggregator's core is broken");
}

// A member that has not received the prepared results waits for them for ever.
TEST(ExploreMutations, LeavingPreparedResultsLostIsStuck) {
  Bounds bounds = WithALostShard(2);
  bounds.rules.leaves_results_lost = true;
  ExpectViolation(bounds, kStuck);
}

// A worker is lost after it has contributed, and then the shard with what it had pushed.
TEST(ExploreMutations, AwaitingWhatALostWorkerCannotPushAgainIsStuck) {
  Bounds bounds = WithALostShard(1);
  bounds.deaths = 1;
  ExpectSound(bounds);
  bounds.rules.awaits_lost_contributors = true;
  ExpectViolation(bounds, kStuck);
}

}  // namespace
}  // namespace basin::explore
