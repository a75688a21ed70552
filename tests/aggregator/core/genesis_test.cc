// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a run starts: which workers become members and when, with which ranks, and from whose state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Genesis, FormsWhenStartWorkersAreReady) {
  Cluster c(Settings(2, 3, 2));
  TestWorker& b = c.Join("b");
  EXPECT_EQ(c.job().state(), JobState::kForming);
  EXPECT_EQ(b.role, Role::kJoiner);
  TestWorker& a = c.Join("a");
  EXPECT_EQ(c.job().state(), JobState::kRunning);
  // Ranks follow the ids, not the order of arrival.
  EXPECT_THAT(a.membership.members, ElementsAre("a", "b"));
  EXPECT_EQ(a.rank(), 0);
  EXPECT_EQ(b.rank(), 1);
  EXPECT_EQ(b.role, Role::kMember);
  EXPECT_EQ(b.donor, std::nullopt);
  EXPECT_EQ(b.membership.generation, (Generation{c.config.term, 1}));
}

TEST(Genesis, CountsFromReadyNotFromHello) {
  Cluster c(Settings(1, 2, 2));
  c.Join("a");
  c.Worker("b").Connect();
  EXPECT_EQ(c.job().state(), JobState::kForming);
  c.Worker("b").Ready();
  EXPECT_EQ(c.job().state(), JobState::kRunning);
}

TEST(Genesis, DefaultsComeFromMaxWorkers) {
  Cluster c(Settings(0, 3, 0));
  TestWorker& a = c.Join("a");
  EXPECT_EQ(a.welcome->settings, (Settings(3, 3, 3)));
  c.Join("b");
  EXPECT_EQ(c.job().state(), JobState::kForming);
  c.Join("c");
  EXPECT_EQ(c.job().state(), JobState::kRunning);
}

TEST(Genesis, StartsAtTheTimeoutWithMinWorkers) {
  Cluster c(Settings(2, 4, 4));
  c.Join("a");
  c.Sleep(c.config.start_timeout + absl::Seconds(1));
  EXPECT_EQ(c.job().state(), JobState::kForming) << "one is below min_workers";
  c.Join("b");
  EXPECT_EQ(c.job().state(), JobState::kRunning) << "two are enough after the timeout";
}

TEST(Genesis, TheTimeoutFormsWithWhoIsThere) {
  Cluster c(Settings(2, 4, 4));
  c.Join("a");
  c.Join("b");
  c.Sleep(c.config.start_timeout - absl::Seconds(1));
  EXPECT_EQ(c.job().state(), JobState::kForming);
  c.Sleep(absl::Seconds(1));
  EXPECT_EQ(c.job().state(), JobState::kRunning);
}

// The message comes after a delay, so that workers that start together receive none, and one
// message reports all changes of that time.
TEST(Genesis, WhoWaitsForTheOthersIsToldHowManyAreReady) {
  Cluster c(Settings(2, 4, 3));
  TestWorker& a = c.Join("a");
  EXPECT_EQ(a.Count<HeldUp>(), 0u);
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(a.Last<HeldUp>().text, "Job job starts with 3 workers, and 1 is ready: a.");
  c.Sleep(absl::Minutes(1));
  EXPECT_EQ(a.Count<HeldUp>(), 1u) << "nothing has changed";
  c.Join("b");
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(a.Last<HeldUp>().text, "Job job starts with 3 workers, and 2 are ready: a, b.");
  c.Step(WorkerExited{kJob, "b"});
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(a.Last<HeldUp>().text, "Job job starts with 3 workers, and 1 is ready: a.");
  c.Join("c");
  TestWorker& d = c.Join("d");
  ASSERT_EQ(a.role, Role::kMember);
  EXPECT_EQ(a.Last<HeldUp>().text, "") << "it goes on";
  c.Sleep(absl::Minutes(1));
  EXPECT_EQ(d.Count<HeldUp>(), 1u);
}

TEST(Genesis, NobodyIsToldOfWorkersThatStartTogether) {
  Cluster c(Settings(2, 2, 2));
  TestWorker& a = c.Join("a");
  c.Sleep(absl::Seconds(1));
  c.Join("b");
  c.Sleep(absl::Minutes(1));
  EXPECT_EQ(a.Count<HeldUp>(), 0u);
}

TEST(Genesis, AWorkerAboveMaxIsSpare) {
  Cluster c(Settings(1, 2, 2));
  c.Join("a");
  c.Join("b");
  TestWorker& s = c.Join("s");
  EXPECT_EQ(s.role, Role::kSpare);
  EXPECT_THAT(s.membership.members, ElementsAre("a", "b"));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerSpare), 1u);
}

TEST(Genesis, ASpareTakesThePlaceOfWhoLeaves) {
  Cluster c(Settings(1, 2, 2));
  c.Join("a");
  c.Join("b");
  TestWorker& s = c.Join("s");
  c["a"].Send(Leave{});
  EXPECT_EQ(s.role, Role::kMember) << "before the first round that need not wait";
  EXPECT_THAT(s.membership.members, ElementsAre("b", "s"));
}

TEST(Genesis, MembersChangeAtOnceBeforeTheFirstRound) {
  Cluster c(Settings(1, 3, 1));
  TestWorker& b = c.Join("b");
  EXPECT_THAT(b.membership.members, ElementsAre("b"));
  TestWorker& a = c.Join("a");
  // Later workers are appended, so earlier members keep their relative order.
  EXPECT_THAT(b.membership.members, ElementsAre("b", "a"));
  EXPECT_EQ(a.rank(), 1);
  EXPECT_EQ(b.membership.generation.counter, 2u);
}

TEST(Genesis, EqualStatesNeedNoDonor) {
  Cluster c(Settings(2, 2, 2));
  c.Worker("a").Connect();
  c.Worker("b").Connect();
  c["a"].Ready(100, 7);
  c["b"].Ready(100, 7);
  EXPECT_EQ(c["a"].donor, std::nullopt);
  EXPECT_EQ(c["b"].donor, std::nullopt);
}

TEST(Genesis, TheFurthestStateIsTheDonor) {
  Cluster c(Settings(3, 3, 3));
  for (const char* id : {"a", "b", "c"}) c.Worker(id).Connect();
  c["a"].Ready(100, 7);
  c["b"].Ready(200, 8);
  c["c"].Ready(200, 9);
  EXPECT_EQ(c["a"].donor, "b");
  EXPECT_EQ(c["b"].donor, "b") << "it has the state, and hears that it is to serve it";
  EXPECT_EQ(c["c"].donor, "b") << "same step, other content";
}

TEST(Genesis, ALateStarterBeforeTheFirstRoundGetsTheStateOfTheFurthest) {
  Cluster c(Settings(1, 2, 1));
  c.Worker("a").Connect();
  c["a"].Ready(200, 8);
  c.Worker("b").Connect();
  c["b"].Ready(100, 7);
  EXPECT_EQ(c["b"].donor, "a");
  EXPECT_EQ(c["a"].donor, "a");
}

// The members may already compute with their state, so they must keep it.
TEST(Genesis, ALateStarterThatIsFurtherTakesTheStateOfTheMembers) {
  Cluster c(Settings(1, 3, 1));
  c.Worker("a").Connect();
  c["a"].Ready(100, 7);
  c.Worker("b").Connect();
  c["b"].Ready(200, 8);
  EXPECT_EQ(c["b"].donor, "a");
  EXPECT_EQ(c["a"].donor, "a");
  // While a member lacks the state, every member learns which worker serves it.
  c.Worker("c").Connect();
  c["c"].Ready(100, 7);
  EXPECT_EQ(c["c"].donor, "a");
  EXPECT_EQ(c["a"].donor, "a");
}

TEST(Genesis, ALateStarterWithTheSameStateNeedsNoDonor) {
  Cluster c(Settings(1, 2, 1));
  c.Worker("a").Connect();
  c["a"].Ready(100, 7);
  c.Worker("b").Connect();
  c["b"].Ready(100, 7);
  EXPECT_EQ(c["a"].donor, std::nullopt);
  EXPECT_EQ(c["b"].donor, std::nullopt);
}

// One worker may have loaded the donor's state already, and another one not, so they must report
// again what they have.
TEST(Genesis, WhoLostTheDonorBeforeTheFirstRoundComesInAnew) {
  Cluster c(Settings(1, 3, 3));
  for (const char* id : {"a", "b", "c"}) c.Worker(id).Connect();
  c["a"].Ready(100, 7);
  c["b"].Ready(150, 8);
  c["c"].Ready(200, 9);
  ASSERT_EQ(c["a"].donor, "c");
  ASSERT_EQ(c["b"].donor, "c");
  c["c"].Send(Leave{});
  EXPECT_EQ(c.job().state(), JobState::kForming);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(c[id].ended.has_value()) << id;
    EXPECT_EQ(c[id].ended->code, ErrorCode::kEvicted);
    c[id].Forget();
    c[id].Connect();
  }
  c["a"].Ready(200, 9);  // It had loaded the state of c.
  c["b"].Ready(150, 8);
  c.Sleep(c.config.start_timeout);
  EXPECT_EQ(c.job().state(), JobState::kRunning);
  EXPECT_EQ(c["a"].donor, "a");
  EXPECT_EQ(c["b"].donor, "a");
}

// The same happens while the change that followed is being written down.
TEST(Genesis, WhoLostTheDonorWhileAChangeWasWrittenDownComesInAnew) {
  Config config;
  config.state_file = true;
  Cluster c(Settings(1, 3, 2), config);
  for (const char* id : {"a", "b"}) c.Worker(id).Connect();
  c["a"].Ready(100, 7);
  c["b"].Ready(200, 8);
  ASSERT_EQ(c["a"].donor, "b");
  c.saves = false;
  c.Worker("d").Connect();
  c["d"].Ready(100, 7);
  c["b"].Send(Leave{});
  c.FinishSaves();
  EXPECT_EQ(c["a"].ended->code, ErrorCode::kEvicted);
  EXPECT_NE(c["d"].role, Role::kMember) << "nobody can give it the state";
}

TEST(Genesis, EveryLaneStartsAtRoundOne) {
  Cluster c(Settings(1, 1, 1));
  TestWorker& a = c.Worker("a");
  a.Connect();
  a.Register({Tensor("w")}, "generator");
  a.Register({Tensor("w")}, "discriminator");
  a.Ready();
  const auto start = a.Last<MembershipChanged>().start;
  ASSERT_EQ(start.size(), 2u);
  EXPECT_EQ(start[0].lane, "generator");
  EXPECT_EQ(start[1].lane, "discriminator");
  EXPECT_EQ(start[1].index, 1u);
  EXPECT_EQ(start[1].round, 1u);
}

TEST(Genesis, AnUnknownRunIsFreshOnceTheRecoveryWindowIsOver) {
  Cluster c(Settings(1, 1, 1));
  c.Worker("a").fresh = false;
  c.Join("a");
  EXPECT_EQ(c.job().state(), JobState::kRecovering) << "nobody vouches for it";
  c.Sleep(c.config.recovery_window);
  EXPECT_EQ(c.job().state(), JobState::kForming);

  Cluster later(Settings(1, 1, 1));
  later.now += later.config.recovery_window;
  later.Worker("a").fresh = false;
  later.Join("a");
  EXPECT_EQ(later.job().state(), JobState::kRunning);
}

TEST(Genesis, SettingsThatCannotBeMetAreRefused) {
  for (const JobSettings& settings : {Settings(3, 2, 2), Settings(2, 3, 1), Settings(1, 2, 3)}) {
    Cluster c(settings);
    c.Join("a");
    ASSERT_TRUE(c["a"].ended.has_value());
    EXPECT_EQ(c["a"].ended->code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(c["a"].ended->text, HasSubstr("min_workers"));
  }
}

// The service keeps thousands of notes, of jobs of any size.
TEST(Genesis, TheNoteOfAGenerationNamesAtMost64Members) {
  Cluster t(Settings(70, 70, 70));
  for (int i = 10; i < 80; ++i) t.Join(absl::StrCat("w", i));
  EXPECT_THAT(t.NoteText(NoteKind::kGeneration), HasSubstr("w72, w73 and 6 more."));
}

}  // namespace
}  // namespace basin::aggregator
