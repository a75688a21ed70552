// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of a job: its terms, the pause, notices, writes of the state file, held hellos, and who
// can be a member.

#include <set>
#include <string>
#include <vector>

#include "aggregator/core/held_hellos.h"
#include "aggregator/core/membership.h"
#include "aggregator/core/notice.h"
#include "aggregator/core/pause.h"
#include "aggregator/core/promises.h"
#include "aggregator/core/state_writes.h"
#include "aggregator/core/term.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Time kNever = absl::InfiniteFuture();

// ---- terms

TEST(Terms, GoUpByTheClockAndByWhatWasWrittenDown) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const Term first = FirstTerm(now, 0, 5);
  EXPECT_GT(FirstTerm(now + absl::Seconds(2), 0, 0), first);
  // The clock was set back.
  EXPECT_GT(FirstTerm(now - absl::Hours(9000), first, 0), first);
  EXPECT_GT(FirstTerm(absl::InfinitePast(), first, 0), first);
}

TEST(Terms, OfTwoThatStartInTheSameSecondOrAboveTheSameTermAreDifferent) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_NE(FirstTerm(now, 0, 1), FirstTerm(now, 0, 2));
  EXPECT_NE(FirstTerm(now, ~Term{0} / 2, 1), FirstTerm(now, ~Term{0} / 2, 2));
  for (const uint64_t random : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, ~uint64_t{0}}) {
    EXPECT_GT(TermAbove(1000, random), 1000u);
    EXPECT_LE(TermAbove(1000, random), 1000 + (Term{1} << 20));
  }
}

// One worker moves from the first to the second, another one from the second to the first.
TEST(Terms, Fault_A5_OfTwoThatStepAboveEachOtherAreDifferent) {
  constexpr Term kKnown = 1000;
  EXPECT_NE(TermAbove(TermAbove(kKnown, 1), 2), TermAbove(TermAbove(kKnown, 2), 1));
}

// ---- promises

TEST(Promises, AllWhoWereCountedGiveTheirs) {
  const JobSettings settings{1, 3, 3};
  Promises promises;
  EXPECT_TRUE(promises.suffice());
  promises.Await({"a", "b"});
  EXPECT_FALSE(promises.Give("c", settings)) << "it was not counted";
  EXPECT_FALSE(promises.Give("a", settings));
  EXPECT_FALSE(promises.Give("a", settings)) << "once";
  EXPECT_FALSE(promises.suffice());
  EXPECT_TRUE(promises.Give("b", settings));
  EXPECT_TRUE(promises.suffice());
  EXPECT_FALSE(promises.Give("b", settings)) << "it stood before";
}

TEST(Promises, AsManySufficeAsAnOlderAggregatorCannotDoWithout) {
  const JobSettings all{3, 3, 3};
  Promises promises;
  promises.Await({"a", "b", "c"});
  EXPECT_TRUE(promises.Give("b", all)) << "the others are fewer than min_workers";
  const JobSettings two_of_three{2, 3, 3};
  promises.Await({"a", "b", "c"});
  EXPECT_FALSE(promises.Give("b", two_of_three));
  EXPECT_TRUE(promises.Give("c", two_of_three));
}

// ---- pause

TEST(Pause, IsNamedThenReportedThenSilent) {
  Config config;
  config.late_warning = absl::Seconds(5);
  config.pause_timeout = absl::Seconds(60);
  Pause pause;
  EXPECT_FALSE(pause.noted());
  EXPECT_EQ(pause.Due(config), kNever);
  pause.Begin(kNow);
  EXPECT_TRUE(pause.noted());
  EXPECT_FALSE(pause.named());
  EXPECT_EQ(pause.Due(config), kNow + absl::Seconds(5));
  EXPECT_EQ(pause.OnDue(), PauseState::kNamed);
  EXPECT_TRUE(pause.named());
  EXPECT_EQ(pause.Due(config), kNow + absl::Seconds(60));
  EXPECT_EQ(pause.OnDue(), PauseState::kReported);
  EXPECT_EQ(pause.Due(config), kNever);
  EXPECT_TRUE(pause.End());
  EXPECT_FALSE(pause.noted());
  EXPECT_FALSE(pause.End()) << "it is over";
}

TEST(Pause, ATimeoutBelowTheWarningIsKept) {
  Config config;
  config.late_warning = absl::Seconds(5);
  config.pause_timeout = absl::Seconds(2);
  Pause pause;
  pause.Begin(kNow);
  EXPECT_EQ(pause.Due(config), kNow + absl::Seconds(2));
  pause.OnDue();
  EXPECT_EQ(pause.Due(config), kNow + absl::Seconds(2)) << "at once";
}

TEST(Notice, IsToldOnceAndTakenBackOnlyIfItWasTold) {
  Notice notice;
  EXPECT_EQ(notice.due(), kNever);
  notice.Plan(kNow + absl::Seconds(2));
  notice.Plan(kNow + absl::Seconds(9));
  EXPECT_EQ(notice.due(), kNow + absl::Seconds(2)) << "an earlier plan stands";
  notice.OnDue(false);
  EXPECT_EQ(notice.due(), kNever);
  EXPECT_FALSE(notice.Retract()) << "there was nobody to tell";
  notice.Plan(kNow);
  notice.OnDue(true);
  EXPECT_TRUE(notice.Retract());
  EXPECT_FALSE(notice.Retract());
}

// ---- the state file

TEST(StateWrites, AreAnsweredOnceAndGivenUpInOrder) {
  StateWrites writes;
  EXPECT_EQ(writes.due(), kNever);
  writes.Begin({1, 1}, kNow);
  writes.Begin({1, 2}, kNow + absl::Seconds(1));
  EXPECT_EQ(writes.newest(), (Generation{1, 2}));
  EXPECT_EQ(writes.oldest(), (Generation{1, 1}));
  EXPECT_TRUE(writes.End({1, 1}));
  EXPECT_FALSE(writes.End({1, 1})) << "nobody waits for it any more";
  EXPECT_EQ(writes.due(), kNow + absl::Seconds(1));
  EXPECT_TRUE(writes.End({1, 2}));
  EXPECT_EQ(writes.due(), kNever);
  EXPECT_EQ(writes.newest(), (Generation{1, 2})) << "its number is not given again";
}

TEST(SettingsWrites, AreReportedWhenTheyEndOrAreGivenUp) {
  SettingsWrites writes;
  EXPECT_EQ(writes.due(), kNever);
  writes.Begin("first", kNow);
  writes.Begin("second", kNow + absl::Seconds(1));
  EXPECT_EQ(writes.due(), kNow);
  EXPECT_EQ(writes.GiveUp(), "first");
  EXPECT_FALSE(writes.is_saved());
  EXPECT_EQ(writes.due(), kNow + absl::Seconds(1));
  EXPECT_EQ(writes.End(true), "") << "it was reported when it was given up";
  EXPECT_TRUE(writes.is_saved());
  EXPECT_EQ(writes.End(false), "second");
  EXPECT_FALSE(writes.is_saved());
  EXPECT_FALSE(writes.open());
  EXPECT_EQ(writes.due(), kNever);
}

Slot Add(Workers& workers, const WorkerId& id, WorkerState state, uint64_t ready_order = 0) {
  const Slot slot = workers.Add(id);
  workers.Apply(slot, WorkerInput::kAdmit);
  if (state != WorkerState::kAdmitted) workers.Apply(slot, WorkerInput::kReady);
  if (state == WorkerState::kMember) workers.Apply(slot, WorkerInput::kChoose);
  workers[slot].incarnation = {1, slot + 1};
  workers[slot].ready_order = ready_order;
  return slot;
}

TEST(PendingChange, IsNotMeantForAnotherLifeOfAWorker) {
  Workers workers;
  const Slot slot = Add(workers, "a", WorkerState::kMember);
  PendingChange change;
  change.next.members = {{"a"}};
  change.lives = {workers[slot].incarnation};
  EXPECT_TRUE(change.StillMeant(workers));
  workers.Apply(slot, WorkerInput::kLose);
  EXPECT_TRUE(change.StillMeant(workers)) << "it is let go of with the next change";
  workers.Apply(slot, WorkerInput::kAdmit);
  workers[slot].incarnation = {1, 9};
  EXPECT_FALSE(change.StillMeant(workers));
  workers.Apply(slot, WorkerInput::kLose);
  workers.Reuse(slot, "b");
  EXPECT_FALSE(change.StillMeant(workers)) << "its place was given to another worker";
}

// ---- hellos

Hello HelloOf(const WorkerId& worker, Nonce nonce, bool remembers) {
  Hello hello;
  hello.worker = worker;
  hello.nonce = nonce;
  if (remembers) hello.membership = {{1, 1}, {{worker}}};
  return hello;
}

TEST(HeldHellos, AHelloOutlivesItsSessionAndIsChargedOnce) {
  MemoryBudget memory;
  memory.total = 1 << 20;
  HeldHellos held;
  ASSERT_TRUE(held.Hold(memory, 1, HelloOf("a", 7, true)));
  const uint64_t once = memory.reserved;
  EXPECT_GT(once, sizeof(Hello) - 1);
  ASSERT_TRUE(held.Hold(memory, 2, HelloOf("a", 7, true)));
  EXPECT_EQ(memory.reserved, once);
  EXPECT_EQ(held.SessionOf("a"), 2u);
  held.LoseSession(2);
  EXPECT_EQ(held.SessionOf("a"), std::nullopt);
  ASSERT_NE(held.Find("a"), nullptr);
  EXPECT_EQ(held.TakeHellos(memory).size(), 1u);
  EXPECT_EQ(memory.reserved, 0u);
  EXPECT_EQ(held.bytes(), 0u);
}

TEST(HeldHellos, AProcessWithoutMemoryDoesNotPushOutOneThatRemembers) {
  MemoryBudget memory;
  memory.total = 1 << 20;
  HeldHellos held;
  ASSERT_TRUE(held.Hold(memory, 1, HelloOf("a", 7, true)));
  EXPECT_TRUE(held.KeepsOut(HelloOf("a", 8, false)));
  EXPECT_FALSE(held.KeepsOut(HelloOf("a", 8, true))) << "it remembers as well";
  EXPECT_FALSE(held.KeepsOut(HelloOf("a", 7, false))) << "the same process";
  EXPECT_FALSE(held.KeepsOut(HelloOf("b", 8, false)));
  held.LoseSession(1);
  EXPECT_FALSE(held.KeepsOut(HelloOf("a", 8, false))) << "the other process is away";
}

TEST(HeldHellos, WithoutMemoryTheEarlierHelloStays) {
  MemoryBudget memory;
  memory.total = sizeof(Hello) + 200;
  HeldHellos held;
  ASSERT_TRUE(held.Hold(memory, 1, HelloOf("a", 7, true)));
  Hello longer = HelloOf("a", 7, true);
  longer.run = std::string(1000, 'x');
  EXPECT_FALSE(held.Hold(memory, 2, longer));
  EXPECT_FALSE(held.Hold(memory, 3, HelloOf("b", 8, true)));
  EXPECT_EQ(held.refused(), 2u);
  EXPECT_EQ(held.Find("a")->run, "");
  EXPECT_EQ(held.SessionOf("a"), std::nullopt);
}

// ---- members

TEST(ChooseMembers, KeepsTheOrderAndAppendsTheReady) {
  Workers workers;
  Add(workers, "b", WorkerState::kMember);
  Add(workers, "a", WorkerState::kMember);
  Add(workers, "z", WorkerState::kCandidate, 1);
  Add(workers, "y", WorkerState::kCandidate, 2);
  EXPECT_THAT(ChooseMembers({"b", "gone", "a"}, workers, {true, false, 3}),
              ElementsAre("b", "a", "z"));
  EXPECT_THAT(ChooseMembers({"b", "a"}, workers, {false, false, 3}), ElementsAre("b", "a"));
  workers[*workers.Find("b")].draining = true;
  EXPECT_THAT(ChooseMembers({"b", "a"}, workers, {true, false, 3}), ElementsAre("a", "z", "y"));
  EXPECT_THAT(ChooseMembers({"b", "a"}, workers, {true, true, 3}), ElementsAre("b", "a", "z"));
  EXPECT_TRUE(AnyRevived({"a", "z"}, workers)) << "z is no member yet";
  EXPECT_FALSE(AnyRevived({"a", "b"}, workers));
}

TEST(FirstMembers, AreRankedByTheirIds) {
  Workers workers;
  EXPECT_THAT(FirstMembers(workers, 2), IsEmpty());
  Add(workers, "c", WorkerState::kCandidate, 3);
  Add(workers, "b", WorkerState::kCandidate, 1);
  Add(workers, "a", WorkerState::kCandidate, 2);
  EXPECT_THAT(FirstMembers(workers, 2), ElementsAre("a", "b")) << "c came last";
}

TEST(ChooseMembers, AGroupJoinsTogetherOrNotAtAll) {
  Workers workers;
  const auto add = [&](const WorkerId& id, WorkerState state, uint64_t order) {
    workers[Add(workers, id, state, order)].group = {"node-1", 2};
  };
  Add(workers, "a", WorkerState::kMember);
  add("x", WorkerState::kCandidate, 1);
  Add(workers, "b", WorkerState::kCandidate, 2);
  const NextMembers all = {true, false, 9};
  EXPECT_THAT(ChooseMembers({"a"}, workers, all), ElementsAre("a", "b")) << "y is not here";
  EXPECT_THAT(CandidatesOf(workers).waiting, ElementsAre(*workers.Find("x")));
  add("y", WorkerState::kAdmitted, 3);
  EXPECT_THAT(ChooseMembers({"a"}, workers, all), ElementsAre("a", "b")) << "y is not ready";
  workers.Apply(*workers.Find("y"), WorkerInput::kFindFull);
  EXPECT_THAT(ChooseMembers({"a"}, workers, all), ElementsAre("a", "x", "y", "b"));
  EXPECT_THAT(ChooseMembers({"a"}, workers, {true, false, 2}), ElementsAre("a", "b"))
      << "there is no room for two";
  EXPECT_THAT(FirstMembers(workers, 2), ElementsAre("x", "y"));
  EXPECT_THAT(FirstMembers(workers, 1), ElementsAre("b"));
  // One of them is a member already, so the other one is that of a newer process.
  workers.Apply(*workers.Find("x"), WorkerInput::kChoose);
  EXPECT_THAT(ChooseMembers({"a", "x"}, workers, all), ElementsAre("a", "x", "b", "y"));
  workers.Apply(*workers.Find("x"), WorkerInput::kLose);
  EXPECT_THAT(ChooseMembers({"a"}, workers, all), ElementsAre("a", "b"));
  workers[*workers.Find("y")].joins_alone = true;
  EXPECT_THAT(ChooseMembers({"a"}, workers, all), ElementsAre("a", "b", "y"));
}

TEST(ChooseDonor, IsOneThatHoldsTheStateWhileSomebodyLacksIt) {
  Workers workers;
  const Slot a = Add(workers, "a", WorkerState::kMember);
  const Slot b = Add(workers, "b", WorkerState::kMember);
  Add(workers, "j", WorkerState::kCandidate);
  workers[a].holds_state = workers[b].holds_state = true;
  workers[b].session = 1;
  const std::vector<WorkerId> current = {"a", "b"};
  EXPECT_EQ(ChooseDonor(current, current, workers, true), std::nullopt) << "nobody lacks it";
  EXPECT_EQ(ChooseDonor(current, {"a", "b", "j"}, workers, true), "b") << "a is away";
  EXPECT_EQ(ChooseDonor(current, {"a", "b", "j"}, workers, false), std::nullopt)
      << "before the first round it declares the same state";
  workers[b].finishing = true;
  EXPECT_EQ(ChooseDonor(current, {"a", "j"}, workers, true), "a") << "b may lack the last rounds";
  workers[a].holds_state = false;
  EXPECT_TRUE(AnyMemberLacksState(workers));
  EXPECT_TRUE(AnyMemberHoldsState(workers));
  EXPECT_TRUE(DonorServes("b", workers));
  EXPECT_FALSE(DonorServes("a", workers));
  EXPECT_FALSE(DonorServes(std::nullopt, workers));
}

TEST(ChooseFirstDonor, IsTheOneThatIsFurthest) {
  Workers workers;
  const Slot a = Add(workers, "a", WorkerState::kCandidate);
  const Slot b = Add(workers, "b", WorkerState::kCandidate);
  EXPECT_EQ(ChooseFirstDonor({"a", "b"}, workers), std::nullopt) << "all declare the same";
  workers[a].state_hash = 1;
  EXPECT_EQ(ChooseFirstDonor({"a", "b"}, workers), "a") << "the lowest id among equals";
  workers[b].step_label = 5;
  EXPECT_EQ(ChooseFirstDonor({"a", "b"}, workers), "b");
  EXPECT_EQ(ChooseFirstDonor({}, workers), std::nullopt);
}

}  // namespace
}  // namespace basin::aggregator
