// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What becomes of the time of a job's members, over schedules whose losses are known: of the value
// alone, and of a whole core with a clock that only the test moves.

#include "aggregator/core/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_goodput.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;

absl::Time Second(double seconds) { return absl::FromUnixSeconds(1000) + absl::Seconds(seconds); }

// The uses with time, in seconds: "worked 3, waiting 2".
void AddUse(std::string& text, TimeUse use, absl::Duration time) {
  if (time == absl::ZeroDuration()) return;
  absl::StrAppend(&text, text.empty() ? "" : ", ", TimeUseName(use), " ",
                  absl::ToDoubleSeconds(time));
}
std::string UsesOf(const Goodput& goodput) {
  std::string text;
  for (const TimeUse use : kTimeUses) AddUse(text, use, goodput.Total(use));
  return text;
}

// The same of the time since the last verdict.
std::string OpenOf(const GoodputView& view) {
  std::string text;
  for (const GoodputView::Use& use : view.uses) AddUse(text, use.use, use.open);
  return text;
}
std::string OpenOf(const Cluster& t) {
  return OpenOf(GoodputAsOf(t.job(), t.config, t.core->Lived(t.now)));
}

absl::Duration SumOf(const GoodputView& view) {
  absl::Duration sum;
  for (const GoodputView::Use& use : view.uses) sum += use.settled + use.open;
  return sum;
}

RoundTimes::Part Counted(Slot slot, double arrived) { return {slot, true, true, Second(arrived)}; }

RoundTimes Ended(double verdict, double last_at, const WorkerId& last,
                 std::vector<RoundTimes::Part> parts) {
  return {Second(verdict), Second(last_at), last, std::move(parts)};
}

// Members 0 and 1, which are "a" and "b".
struct TwoMembers {
  TwoMembers() {
    goodput.Join(0, Second(0), false);
    goodput.Join(1, Second(0), false);
  }
  Goodput goodput;
};

TEST(Goodput, IsAbsentBeforeTheFirstVerdict) {
  TwoMembers t;
  EXPECT_EQ(t.goodput.Ratio(), std::nullopt);
  EXPECT_EQ(UsesOf(t.goodput), "");
}

TEST(Goodput, CountsEachMomentOnce) {
  TwoMembers t;
  t.goodput.End(Ended(4, 3, "b", {Counted(0, 1), Counted(1, 3)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 4, waiting 2, settling 2");
  EXPECT_EQ(t.goodput.Ratio(), 0.5);
  EXPECT_THAT(t.goodput.waited_for(), ElementsAre(testing::Pair("b", absl::Seconds(2))));
  EXPECT_EQ(t.goodput.LatenessOf(0).total, absl::ZeroDuration());
  EXPECT_EQ(t.goodput.LatenessOf(1).total, absl::Seconds(2));
  EXPECT_EQ(t.goodput.LatenessOf(1).rounds, 1u);
}

// The members are in both rounds at once: the second round counts what the first one left.
TEST(Goodput, OfLanesThatOverlapCountsEachMomentOnce) {
  TwoMembers t;
  t.goodput.End(Ended(4, 3, "b", {Counted(0, 1), Counted(1, 3)}));
  t.goodput.End(Ended(5, 4.5, "a", {Counted(0, 4.5), Counted(1, 2)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 4.5, waiting 2.5, settling 3");
}

TEST(Goodput, OfAnAbortedRoundIsDiscarded) {
  TwoMembers t;
  t.goodput.End(Ended(4, 3, "b", {{0, true, false, Second(1)}, {1, true, false, Second(3)}}));
  EXPECT_EQ(UsesOf(t.goodput), "discarded 8");
  EXPECT_EQ(t.goodput.Ratio(), 0);
}

TEST(Goodput, OfAPauseIsPausedWhateverTheMembersDid) {
  TwoMembers t;
  t.goodput.Hold(Second(0.5));
  t.goodput.Resume(Second(2.5));
  t.goodput.End(Ended(4, 3, "b", {Counted(0, 1), Counted(1, 3)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 1.5, waiting 0.5, paused 4, settling 2");
}

TEST(Goodput, OfAWorkerThatJoinsIsCatchingUpUntilItContributes) {
  TwoMembers t;
  t.goodput.Join(2, Second(1), true);
  t.goodput.End(Ended(4, 4, "c", {Counted(0, 4), Counted(1, 4), {2, true, false, Second(2)}}));
  t.goodput.End(Ended(7, 7, "c", {Counted(0, 7), Counted(1, 7), Counted(2, 7)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 14, catching_up 6");
  t.goodput.End(Ended(8, 8, "c", {Counted(0, 8), Counted(1, 8), Counted(2, 8)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 17, catching_up 6");
}

// b is slow until it falls silent at 3, and is lost at 10.
TEST(Goodput, OfALossIsWaitingThenDetecting) {
  TwoMembers t;
  t.goodput.Lose({1, "b", Second(3), false, true, true}, Second(10));
  t.goodput.End(Ended(11, 10, "b", {Counted(0, 1), {1, false, false, Second(10)}}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 1, waiting 2, detecting 14, discarded 3, settling 1");
  EXPECT_THAT(t.goodput.waited_for(), ElementsAre(testing::Pair("b", absl::Seconds(2))));
}

// b contributes, falls silent, and does not stage.
TEST(Goodput, OfALostWorkerWhoseContributionCountsIsWorked) {
  TwoMembers t;
  t.goodput.Lose({1, "b", Second(3), true, false, true}, Second(10));
  t.goodput.End(Ended(11, 2, "a", {Counted(0, 2), {1, false, true, Second(1)}}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 3, waiting 1, detecting 14, settling 3");
  EXPECT_THAT(t.goodput.waited_for(), ElementsAre(testing::Pair("a", absl::Seconds(1))));
}

// ---- the time since the last verdict

// a contributed, and b has not yet.
TEST(GoodputAsOf, OfAnOpenRoundIsWhatItIsAtTheMoment) {
  TwoMembers t;
  t.goodput.End(Ended(4, 4, "b", {Counted(0, 4), Counted(1, 4)}));
  const RoundTimes open = {Second(20), absl::InfiniteFuture(), "b", {Counted(0, 6)}};
  const GoodputView view = t.goodput.AsOf(Second(20), {}, {open});
  EXPECT_EQ(OpenOf(view), "waiting 14, pending 18");
  EXPECT_EQ(view.ratio, 0.2) << "8 s were worked, and 32 s more have passed";
  EXPECT_THAT(view.waited_for, ElementsAre(testing::Pair("b", absl::Seconds(14))));
  EXPECT_EQ(UsesOf(t.goodput), "worked 8") << "the verdict counts it";
  EXPECT_TRUE(t.goodput.waited_for().empty());

  t.goodput.End(Ended(20, 20, "b", {Counted(0, 6), Counted(1, 20)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 26, waiting 14");
  EXPECT_EQ(OpenOf(t.goodput.AsOf(Second(20), {}, {})), "");
}

TEST(GoodputAsOf, HasNoRatioBeforeTheFirstVerdict) {
  TwoMembers t;
  const GoodputView view = t.goodput.AsOf(Second(3), {}, {});
  EXPECT_EQ(OpenOf(view), "pending 6");
  EXPECT_EQ(view.ratio, std::nullopt);
}

TEST(GoodputAsOf, NamesNobodyWhileTheRoundWaitsForSeveral) {
  TwoMembers t;
  const RoundTimes open = {Second(9), absl::InfiniteFuture(), "", {Counted(0, 1)}};
  const GoodputView view = t.goodput.AsOf(Second(9), {}, {open});
  EXPECT_EQ(OpenOf(view), "waiting 8, pending 10");
  EXPECT_TRUE(view.waited_for.empty());
}

TEST(GoodputAsOf, OfASilentMemberIsDetecting) {
  TwoMembers t;
  const RoundTimes open = {Second(9), absl::InfiniteFuture(), "b", {Counted(0, 1)}};
  const LostMember silent{1, "b", Second(3), false, true, true};
  EXPECT_EQ(OpenOf(t.goodput.AsOf(Second(9), {silent}, {open})),
            "waiting 2, detecting 12, pending 4");
  // It was only late, and its verdict knows of no silence.
  t.goodput.End(Ended(10, 10, "b", {Counted(0, 1), Counted(1, 10)}));
  EXPECT_EQ(UsesOf(t.goodput), "worked 11, waiting 9");
}

TEST(GoodputAsOf, OfLanesThatOverlapCountsEachMomentOnce) {
  TwoMembers t;
  const RoundTimes first = {Second(9), absl::InfiniteFuture(), "b", {Counted(0, 2)}};
  const RoundTimes second = {Second(9), Second(5), "b", {Counted(0, 1), Counted(1, 5)}};
  EXPECT_EQ(OpenOf(t.goodput.AsOf(Second(9), {}, {first, second})),
            "waiting 7, settling 4, pending 7");
}

TEST(Goodput, RemembersTheWorkersThatCostMost) {
  Goodput goodput;
  goodput.Join(0, Second(0), false);
  for (int i = 1; i <= 1000; ++i) {
    goodput.End(Ended(2000 * i, 2000 * i, absl::StrCat("w", i), {Counted(0, 2000 * i - i)}));
  }
  EXPECT_EQ(goodput.waited_for().size(), 256u);
  EXPECT_EQ(goodput.waited_for().at("w1000"), absl::Seconds(1000));
  EXPECT_EQ(goodput.waited_for().count("w744"), 0u);
}

// Whatever happens, the parts add up to the time in which the workers were members, at each moment,
// and what is settled never becomes less.
TEST(Goodput, AddsUpToTheTimeOfTheMembers) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
    Goodput goodput;
    std::map<Slot, absl::Time> members;
    absl::Duration all;
    absl::Time now = Second(0);
    absl::Time verdict = now;
    // A moment between the last verdict and now.
    const auto moment = [&] {
      return verdict +
             absl::Seconds(draw(static_cast<uint32_t>((now - verdict) / absl::Seconds(1)) + 1));
    };
    std::map<TimeUse, absl::Duration> settled;
    for (int step = 0; step < 60; ++step) {
      now += absl::Seconds(draw(5));
      const Slot slot = draw(4);
      const bool member = members.count(slot) > 0;
      const uint32_t what = draw(6);
      if (what == 0 && !member) {
        goodput.Join(slot, now, draw(2) == 0);
        members[slot] = now;
      } else if (what <= 1 && member) {
        if (what == 0) {
          goodput.Leave(slot, now);
        } else {
          goodput.Lose({slot, absl::StrCat(slot), moment(), draw(2) == 0, draw(2) == 0, true}, now);
        }
        all += now - members[slot];
        members.erase(slot);
      } else if (what == 2) {
        goodput.Hold(now);
      } else if (what == 3) {
        goodput.Resume(now);
      } else if (what == 4) {
        std::vector<RoundTimes::Part> parts;
        for (Slot part = 0; part < 4; ++part) {
          parts.push_back({part, members.count(part) > 0, draw(4) > 0, moment()});
        }
        goodput.End({now, moment(), "0", parts});
        verdict = now;
      }
      std::vector<LostMember> silent;
      std::vector<RoundTimes> open(draw(3), {now, absl::InfiniteFuture(), "0", {}});
      absl::Duration passed = all;
      for (const auto& [member_slot, since] : members) {
        passed += now - since;
        const bool is_silent = draw(4) == 0;
        if (is_silent) {
          silent.push_back({member_slot, "s", moment(), draw(2) == 0, draw(2) == 0, true});
        }
        for (RoundTimes& round : open) {
          if (draw(2) == 0) round.last_at = moment();
          if (draw(2) == 0) round.parts.push_back({member_slot, !is_silent, true, moment()});
        }
      }
      ASSERT_EQ(SumOf(goodput.AsOf(now, silent, open)), passed) << "seed " << seed;
      for (const TimeUse use : kTimeUses) {
        ASSERT_GE(goodput.Total(use), settled[use]) << TimeUseName(use) << ", seed " << seed;
        settled[use] = goodput.Total(use);
      }
    }
    for (const auto& [slot, since] : members) all += now - since;
    goodput.LeaveAll(now);
    absl::Duration sum;
    for (const TimeUse use : kTimeUses) sum += goodput.Total(use);
    ASSERT_EQ(sum, all) << "seed " << seed;
  }
}

// ---- with the core

// b arrives 2 s after a, which computes for a second, in each of 10 rounds.
TEST(GoodputOfAJob, WithALateWorkerNamesIt) {
  Running t;
  const Goodput before = t.job().goodput;
  for (int round = 0; round < 10; ++round) {
    t.Sleep(absl::Seconds(1));
    t.a.Contribute();
    t.Sleep(absl::Seconds(2));
    t.b.Contribute();
  }
  EXPECT_EQ(UsesOf(before), "");
  const Goodput& goodput = t.job().goodput;
  EXPECT_EQ(UsesOf(goodput), "worked 40, waiting 20");
  EXPECT_DOUBLE_EQ(*goodput.Ratio(), 2.0 / 3);
  EXPECT_THAT(goodput.waited_for(), ElementsAre(testing::Pair("b", absl::Seconds(20))));
  EXPECT_EQ(goodput.LatenessOf(*t.job().workers.Find("b")).total, absl::Seconds(20));
  EXPECT_EQ(goodput.LatenessOf(*t.job().workers.Find("a")).total, absl::ZeroDuration());
}

TEST(GoodputOfAJob, WithAPauseOfFiveSecondsLosesThemForEachMember) {
  Running t;
  t.Sleep(absl::Seconds(1));
  t.Step(SuspendJob{kJob});
  t.Sleep(absl::Seconds(5));
  t.Step(ResumeJob{kJob});
  t.Sleep(absl::Seconds(2));
  t.Round();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 6, paused 10");
}

TEST(GoodputOfAJob, WithAnAbortedRoundDiscardsIt) {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  Three t(Settings(1, 4, 3), config);
  t.Sleep(absl::Seconds(1));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 3");
  t.Sleep(absl::Seconds(3));
  t.a.Contribute();
  t.Lose("c");
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 3, discarded 9");
  t.Sleep(absl::Seconds(1));
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 5, discarded 9");
}

TEST(GoodputOfAJob, WithASilentWorkerIsDetectingUntilItIsLost) {
  Running t;
  t.b.heartbeats = false;
  t.Sleep(absl::Seconds(1));
  t.a.Contribute();
  t.Sleep(t.config.lease);
  EXPECT_EQ(t.a.lane().last, 2u);
  const Goodput& goodput = t.job().goodput;
  EXPECT_EQ(absl::ToInt64Seconds(goodput.Total(TimeUse::kWorked)), 1);
  EXPECT_EQ(goodput.Total(TimeUse::kWaiting), absl::ZeroDuration()) << "b was silent before";
  EXPECT_GE(goodput.Total(TimeUse::kDetecting), 2 * t.config.lease - absl::Seconds(2));
}

TEST(GoodputOfAJob, WithAJoinerCountsItAsCatchingUp) {
  Running t;
  TestWorker& c = t.Join("c");
  t.Round();
  ASSERT_EQ(c.rank(), 2);
  t.Sleep(absl::Seconds(3));
  t.Round();
  c.Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 6, catching_up 3");
}

TEST(GoodputOfAJob, OfANodeCountsTheWorkersWhoseGradientsAreCarried) {
  Three t;
  t.Sleep(absl::Seconds(1));
  t.c.Begin();
  t.c.Withdraw("", kLane, false);
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 3");
}

// The next aggregator knows the members when the recovery ends, and how long they waited for it.
TEST(GoodputOfAJob, OfARecoveryIsPaused) {
  Running t;
  t.Crash(t.config.term + 1);
  t.a.Connect();
  t.Sleep(absl::Seconds(1));
  t.b.Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  t.Sleep(absl::Seconds(2));
  t.Round();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 4, paused 2");
}

// ---- while a round is open

// b hangs for an hour, and its client sends heartbeats.
TEST(GoodputOfAJob, ThatIsStalledShowsTheStallWhileItLasts) {
  Running t;
  t.Sleep(absl::Seconds(2));
  t.Round();
  t.Sleep(absl::Seconds(1));
  t.a.Contribute();
  t.Sleep(absl::Hours(1));
  const GoodputView view = GoodputAsOf(t.job(), t.config, t.now);
  EXPECT_EQ(OpenOf(view), "waiting 3600, pending 3602");
  EXPECT_DOUBLE_EQ(view.ratio.value(), 4.0 / 7206);
  EXPECT_THAT(view.waited_for, ElementsAre(testing::Pair("b", absl::Hours(1))));
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 4") << "as before the stall";
  t.b.Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 3606, waiting 3600");
  EXPECT_EQ(OpenOf(t), "");
}

// No round is open, and the aggregator cannot know whether the members compute.
TEST(GoodputOfAJob, InWhichNobodyContributesIsPending) {
  Running t;
  t.Sleep(absl::Minutes(10));
  EXPECT_EQ(OpenOf(t), "pending 1200");
}

// b is silent from the beginning, but not lost yet.
TEST(GoodputOfAJob, WithASilentWorkerIsDetectingBeforeItIsLost) {
  Running t;
  t.b.heartbeats = false;
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(OpenOf(t), "pending 2") << "a heartbeat may be late";
  t.a.Contribute();
  t.Sleep(absl::Seconds(3));
  EXPECT_EQ(OpenOf(t), "detecting 7, pending 1");
  t.b.Contribute();
  EXPECT_EQ(UsesOf(t.job().goodput), "worked 5, waiting 3");
}

// b's connection is cut.
TEST(GoodputOfAJob, WithADisconnectedWorkerIsDetectingAtOnce) {
  Running t;
  t.Sleep(absl::Seconds(1));
  t.a.Contribute();
  t.b.Cut();
  t.Sleep(absl::Milliseconds(50));
  EXPECT_EQ(OpenOf(t), "detecting 0.1, pending 2");
}

TEST(GoodputOfAJob, ThatIsSuspendedIsPausedMeanwhile) {
  Running t;
  t.Sleep(absl::Seconds(1));
  t.Step(SuspendJob{kJob});
  t.Sleep(absl::Seconds(5));
  EXPECT_EQ(OpenOf(t), "paused 10, pending 2");
}

TEST(GoodputOfAJob, ThatStagesIsSettlingMeanwhile) {
  Running t;
  t.b.stages = false;
  t.Sleep(absl::Seconds(1));
  t.Round();
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(OpenOf(t), "settling 4, pending 2");
}

// The round has lost c, and will be aborted once b has staged that.
TEST(GoodputOfAJob, WhoseRoundIsAbortedIsPendingUntilItsVerdict) {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  Three t(Settings(1, 4, 3), config);
  t.Sleep(absl::Seconds(1));
  t.b.stages = false;
  t.a.Contribute();
  t.Sleep(absl::Seconds(1));
  t.Lose("c");
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(OpenOf(t), "pending 6");
}

TEST(GoodputOfAJob, WithAJoinerIsCatchingUpMeanwhile) {
  Running t;
  TestWorker& c = t.Join("c");
  t.Round();
  ASSERT_EQ(c.rank(), 2);
  t.Sleep(absl::Seconds(3));
  EXPECT_EQ(OpenOf(t), "catching_up 3, pending 6");
}

// ---- who was last, and with what

TEST(Arrivals, NameTheLastAndTheTensorThatItLacked) {
  Three t;
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  t.Sleep(absl::Seconds(1));
  t.a.Contribute();
  t.Sleep(absl::Seconds(2));
  t.c.PushTensor(1);
  t.c.Commit();
  const RoundSummary& round = t.job().lanes[0].past.back();
  EXPECT_EQ(round.waited_for, "c");
  EXPECT_EQ(round.waited, absl::Seconds(2));
  EXPECT_EQ(round.owed.what, Awaited::What::kTensor);
  EXPECT_EQ(round.owed.tensor, 1u);
  EXPECT_EQ(round.first, absl::ZeroDuration());
  ASSERT_EQ(round.arrivals.size(), 3u);
  EXPECT_EQ(round.arrivals[0].worker, "b");
  EXPECT_EQ(round.arrivals[2].after, absl::Seconds(3));
}

// A warning within a second, which names the worker, the tensor and since when.
TEST(LateWarning, OfASecondNamesTheTensorWithinASecond) {
  Config config;
  config.late_warning = absl::Seconds(1);
  Running t(Settings(1, 4, 2), config);
  t.a.Contribute();
  t.b.Begin();
  t.Sleep(absl::Milliseconds(900));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  t.Sleep(absl::Milliseconds(200));
  ASSERT_EQ(t.Notes(NoteKind::kWorkerLate), 1u);
  EXPECT_EQ(t.LastNote(NoteKind::kWorkerLate).worker, "b");
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate),
              testing::AllOf(testing::HasSubstr("Round 2 waits for worker b: tensor w (it lacks 2 "
                                                "tensors: w, b; last seen "),
                             testing::HasSubstr("; waited for 1s)")));
}

}  // namespace
}  // namespace basin::aggregator
