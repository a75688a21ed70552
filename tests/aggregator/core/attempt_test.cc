// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds whose workers are lost or late, become too few, or reconnect.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/core/round_waits.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Attempt, Fault_W1_ALostContributionIsDroppedFromEveryTensor) {
  Three t;
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);  // This chunk is reduced.
  t.Lose("c");
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 1u);
  EXPECT_EQ(t.Notes(NoteKind::kContributionDropped), 1u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{3, 2}));
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{3, 2}));
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
  EXPECT_THAT(t.a.verdict().value.dropped, IsEmpty()) << "it was never effective";
}

TEST(Attempt, TheNormForgetsWhatOnlyTheLostHadPushed) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute(Spec(ReduceOp::kAverage), kLane, {1});
  t.c.Begin();
  t.c.PushTensor(1);  // It is reduced from c alone.
  t.Lose("c");
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 1u);
  EXPECT_EQ(t.a.lane().delivered[1].count({1, 0}), 0u);
  EXPECT_EQ(t.a.verdict().value.facts.squared_norm, 3.0);
}

TEST(Attempt, Fault_W1_NothingReducedNoAttempt) {
  Three t;
  t.a.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  t.Lose("c");
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 0u);
  t.b.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{3, 2}));
}

TEST(Attempt, Fault_W1_ThePolicyMayBeToAbort) {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  Three t(Settings(1, 4, 3), config);
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  t.Lose("c");
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
  EXPECT_THAT(t.a.verdict().value.reason, HasSubstr("worker c was lost"));
  EXPECT_EQ(t.b.lane().last, 1u);
  EXPECT_THAT(t.a.lane().delivered[1], IsEmpty());
}

TEST(Attempt, Fault_W2_AnEffectiveContributionCounts) {
  Three t;
  t.c.Contribute();
  t.Lose("c");
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
  EXPECT_THAT(t.a.verdict().next.members, ElementsAre("a", "b"));
}

TEST(Attempt, Fault_W2_UnlessALaterLossNeedsBytesThatAreGone) {
  Three t;
  t.c.Contribute();
  t.a.Contribute();
  t.b.Begin();
  t.b.PushTensor(0);  // Now the chunk is reduced, and the bytes of c are freed.
  t.Lose("c");
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 0u);
  t.Lose("b");
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 1u);
  EXPECT_THAT(t.a.verdict().value.dropped, ElementsAre("c")) << "the verdict reports it";
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{1, 1}));
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{1, 1}));
}

TEST(Attempt, ADepartedContributionWhoseBytesAreParkedStays) {
  Three t;
  t.c.Contribute();
  t.a.Contribute();
  t.Lose("c");
  t.b.Begin();
  t.Lose("b");
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{5, 2}));
}

TEST(Attempt, AReductionOfAnOlderAttemptIsIgnored) {
  Three t;
  t.reduces = false;
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  const std::vector<Shell::Reduction> old = std::exchange(t.reductions, {});
  ASSERT_EQ(old.size(), 1u);
  t.Lose("c");
  t.Finish(old[0]);
  EXPECT_EQ(t.a.lane().results.size(), 0u);
  t.reduces = true;
  t.FinishReduces();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{3, 2}));
}

TEST(Attempt, ALossAfterPreparedStartsNoAttempt) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.Lose("c");
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 0u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Attempt, TheLossLeavesEveryOpenLaneInOneStep) {
  Cluster t(Settings(1, 2, 2));
  for (const char* id : {"a", "b"}) {
    t.Worker(id).Connect();
    t[id].Register({Tensor("w")}, "generator");
    t[id].Register({Tensor("w")}, "discriminator");
    t[id].Ready();
  }
  t["a"].Contribute(Spec(ReduceOp::kSum), "generator");
  t["a"].Contribute(Spec(ReduceOp::kSum), "discriminator");
  t.Step(WorkerExited{kJob, "b"});
  EXPECT_EQ(t["a"].lane("generator").last, 1u);
  EXPECT_EQ(t["a"].lane("discriminator").last, 1u);
}

TEST(Attempt, EveryoneLostAbortsTheRoundAndStartsANewLineage) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  const uint64_t chain = t.a.lane().chain;
  t.a.Contribute();
  t.Lose("a");
  t.Lose("b");
  t.Lose("c");
  EXPECT_EQ(t.job().state(), JobState::kForming);
  EXPECT_THAT(t.job().reason, HasSubstr("no worker with state is left"));
  EXPECT_EQ(t.job().lanes[0].next, 3u) << "the open round has used up its number";
  EXPECT_NE(t.job().lanes[0].chain, chain);
  EXPECT_EQ(t.kept_chunks(), 0u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Restart();
    worker->Connect();
  }
  t.a.Ready(10, 1);
  t.b.Ready(20, 2);
  t.c.Ready(20, 2);
  EXPECT_EQ(t.a.donor, "b") << "it has the highest step";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().round, 3u);
}

// ---- late, but alive

TEST(Late, Fault_W5_IsNamedAfterFiveSecondsWithWorkerAndTensor) {
  Three t;
  t.a.Contribute();
  t.c.Contribute();
  t.b.Begin();
  t.b.PushTensor(0);
  t.Sleep(absl::Milliseconds(4900));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  t.Sleep(absl::Milliseconds(200));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate), HasSubstr("Round 1 waits for worker b: tensor b"));
  EXPECT_EQ(t.a.Count<HeldUp>(), 1u);
  EXPECT_EQ(t.a.Last<HeldUp>().round, 1u);
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("worker b: tensor b (last seen "));
  EXPECT_EQ(t.c.Count<HeldUp>(), 1u);
  EXPECT_EQ(t.b.Count<HeldUp>(), 0u) << "b is the late worker";
  t.Sleep(absl::Seconds(60));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u) << "it is reported only once";
  EXPECT_EQ(t.a.Count<HeldUp>(), 1u);
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u) << "it is late but alive";
  t.b.PushTensor(1);
  t.b.Commit();
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
}

TEST(Late, EachIsNamedWithWhatItLacks) {
  Three t;
  t.a.Contribute();
  t.b.Begin();
  t.b.PushTensor(0);
  t.b.PushTensor(1);
  t.b.Send(Busy{"evaluation", absl::Minutes(3)});
  EXPECT_EQ(t.Notes(NoteKind::kWorkerBusy), 1u);
  t.Sleep(absl::Seconds(6));
  ASSERT_EQ(t.Notes(NoteKind::kWorkerLate), 2u);
  std::string all;
  for (const Note& note : t.notes) {
    if (note.kind == NoteKind::kWorkerLate) all += note.text;
  }
  EXPECT_THAT(all, HasSubstr("worker b: to commit (busy: evaluation; last seen "));
  EXPECT_THAT(all, HasSubstr("worker c: to begin the round"));
  EXPECT_THAT(t.a.Last<HeldUp>().text,
              AllOf(HasSubstr("worker b: to commit"), HasSubstr(", worker c: to begin the round")));
  t.b.Send(Busy{"", absl::ZeroDuration()});
  EXPECT_EQ(t.NoteText(NoteKind::kWorkerBusy), "It is no longer busy.");
}

// The workers make their calls in different orders. Each receives what the other one does instead.
TEST(Late, WhoWaitsInAnotherLaneIsNamedWithIt) {
  Cluster t(Settings(1, 2, 2));
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  for (TestWorker* worker : {&a, &b}) {
    worker->Register({Tensor("loss")}, "call/loss", LaneKind::kCall);
  }
  a.Contribute();
  b.Contribute(Spec(ReduceOp::kAverage), "call/loss");
  t.Sleep(absl::Seconds(6));
  EXPECT_THAT(a.Last<HeldUp>().text,
              HasSubstr("worker b: to begin the round (it waits for others in round 1 of lane "
                        "call/loss; last seen "));
  EXPECT_THAT(b.Last<HeldUp>().text,
              HasSubstr("worker a: to begin the round (it waits for others in round 1 of lane "
                        "model; last seen "));
}

// Worker c receives the error at once. The others receive it when they wait for c.
TEST(Late, Fault_W10_WhoBuiltAnotherModelIsNamedWithBothShapes) {
  Three t;
  t.c.Register({Tensor("w", 2)});
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
  t.a.Contribute();
  t.b.Contribute();
  t.Sleep(absl::Seconds(6));
  EXPECT_THAT(t.a.Last<HeldUp>().text,
              AllOf(HasSubstr("worker c: to begin the round"),
                    HasSubstr("its tensor w was refused: it is f32[131072], but the job has "
                              "f32[65536]; last seen ")));
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate), HasSubstr("f32[131072]"));
}

TEST(Late, IsNamedAlsoWhenTheOthersWindowsAreFull) {
  Config config;
  config.window_bytes = config.result_window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Begin();
  t.a.PushTensor(0);  // Its window is full, so it cannot become effective.
  t.Sleep(absl::Seconds(6));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 2u);
}

TEST(Late, NobodyIsLateWhileNobodyWaits) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Begin();
  t.a.PushTensor(0);
  t.Sleep(absl::Minutes(10));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u) << "all of them may still compute";
}

TEST(Late, Fault_W14_ThePolicyMayBeToEvict) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  Three t(Settings(1, 4, 3), config);
  t.a.Contribute();
  t.c.Contribute();
  t.Sleep(absl::Seconds(19));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u);
  EXPECT_EQ(t.b.ended->code, ErrorCode::kEvicted);
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
}

TEST(Late, WhoSaysThatItIsBusyIsNotEvictedBeforeItExpectsToBeBack) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  Three t(Settings(1, 4, 3), config);
  t.a.Contribute();
  t.c.Contribute();
  t.b.Send(Busy{"evaluation", absl::Minutes(3)});
  t.Sleep(absl::Minutes(3) - absl::Seconds(1));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u) << "it is late by its own estimate";
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
}

TEST(Late, WhoIsNoLongerBusyIsLateLikeAnybodyElse) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  Three t(Settings(1, 4, 3), config);
  t.a.Contribute();
  t.c.Contribute();
  t.b.Send(Busy{"evaluation", absl::InfiniteDuration()});
  t.Sleep(absl::Seconds(19));
  t.b.Send(Busy{"", absl::ZeroDuration()});
  t.Sleep(absl::Milliseconds(500));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u);
}

// Worker b has no room until c has pushed, so the round does not wait for b before that.
TEST(Late, WhoHadNoRoomIsNotLateAsSoonAsItHasSome) {
  Config config;
  config.window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Begin();
  t.a.PushTensor(0);
  t.a.Commit();  // It skips tensor 1 and waits until the round ends.
  t.b.PushTensor(0);
  t.Sleep(absl::Seconds(10));
  ASSERT_EQ(t.Notes(NoteKind::kWorkerLate), 1u) << "only c is late";
  t.c.PushTensor(0);
  t.Sleep(absl::Milliseconds(4900));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u);
  EXPECT_EQ(t.Notes(NoteKind::kStalled), 0u);
  t.Sleep(absl::Milliseconds(200));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 2u) << "now the round waits for b too";
}

TEST(SlowReader, Fault_W13_IsEvictedWhenItHoldsUpTheOthers) {
  Config config;
  config.window_bytes = config.result_window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  t.c.acks = false;
  t.a.obeys_windows = t.b.obeys_windows = true;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Begin();
    worker->PushTensor(0);
  }
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(1);
  EXPECT_EQ(t.a.lane().results.size(), 1u) << "the second result waits for room";
  t.Sleep(absl::Seconds(6));
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_THAT(t.c.ended->text, HasSubstr("did not receive the results"));
  for (TestWorker* worker : {&t.a, &t.b}) worker->Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
}

TEST(SlowReader, AnAcknowledgementOfWhatIsNotThereIsNoneLater) {
  Config config;
  config.window_bytes = config.result_window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  t.c.acks = false;
  t.c.Begin();
  t.c.Send(ResultAck{0, 1, t.round()->ballot, {{0, 0, 1}, {1, 0, 1}}});
  t.a.Begin();
  t.b.Begin();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(0);
  EXPECT_EQ(t.round()->held.bytes(), kChunkBytes);
  t.c.Send(ResultAck{0, 1, t.round()->ballot, {{0, 0, 1}}});
  EXPECT_EQ(t.round()->held.bytes(), 0u);
}

// A client that acknowledges nothing, or the same chunk again, has taken nothing.
TEST(SlowReader, Fault_W13_AnAcknowledgementOfNothingNewIsNoProgress) {
  Config config;
  config.window_bytes = config.result_window_bytes = config.frame_bytes = kChunkBytes;
  for (const std::vector<ChunkRange>& repeated :
       {std::vector<ChunkRange>{}, std::vector<ChunkRange>{{0, 0, 1}}}) {
    Three t(Settings(1, 4, 3), config);
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
      worker->obeys_windows = true;
      worker->Begin();
      worker->PushTensor(0);  // All acknowledge the result.
    }
    t.c.acks = false;
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Register({Tensor("x"), Tensor("y")});
    for (const TensorIndex tensor : {1, 2, 3}) {
      for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(tensor);
    }
    for (int second = 0; second < 8 && !t.c.ended.has_value(); ++second) {
      t.Sleep(absl::Seconds(1));
      if (!t.c.ended.has_value()) t.c.Send(ResultAck{0, 1, t.round()->ballot, repeated});
    }
    ASSERT_TRUE(t.c.ended.has_value());
    EXPECT_THAT(t.c.ended->text, HasSubstr("did not receive the results"));
  }
}

TEST(SlowReader, Fault_W13_ItIsNoProgressOfARoundThatIsPreparedEither) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  const Ballot ballot = t.round()->ballot;
  for (int second = 0; second < 12 && !t.c.ended.has_value(); ++second) {
    t.Sleep(absl::Seconds(1));
    if (t.c.ended.has_value()) break;
    t.c.Send(ResultAck{0, 1, ballot, {{0, 0, 1}}});
    t.c.Send(Need{0, 1, ballot, {{0, 0, 1}}});
  }
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_THAT(t.c.ended->text, HasSubstr("did not stage the result in time"));
  EXPECT_EQ(t.a.lane().last, 1u);
}

// Three workers and a lane of twelve chunks; there is room for the results of four. Worker c takes
// one every four seconds, which is within its lease but delays the others.
struct OneReadsSlowly : Three {
  explicit OneReadsSlowly(LatePolicy policy) : Three(Settings(1, 4, 3), Configured(policy)) {
    c.acks = false;
    for (TestWorker* worker : {&a, &b, &c}) worker->Register({Tensor("x", 10)});
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
  }
  static Config Configured(LatePolicy policy) {
    Config config;
    config.frame_bytes = kChunkBytes;
    config.result_window_bytes = 4 * kChunkBytes;
    config.late_policy = policy;
    config.evict_late_after = absl::Seconds(10);
    return config;
  }
  // Worker c acknowledges a chunk.
  void Take(uint32_t flat) {
    const ChunkRange range =
        flat < 2 ? ChunkRange{flat, 0, 1} : ChunkRange{TensorIndex{2}, flat - 2, 1};
    c.Send(ResultAck{0, 1, round()->ballot, {range}});
  }
};

TEST(SlowReader, Fault_W13_IsNamedLikeASlowSender) {
  OneReadsSlowly t(LatePolicy::kWait);
  ASSERT_EQ(t.round()->phase(), RoundPhase::kCollect) << "eight chunks wait for room";
  for (uint32_t flat = 0; flat < 4; ++flat) {
    t.Sleep(absl::Seconds(4));
    t.Take(flat);
  }
  EXPECT_FALSE(t.c.ended.has_value()) << "it is late but alive";
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u) << "only c is named, and only once";
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate),
              HasSubstr("Round 1 waits for worker c: to take its results"));
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("worker c: to take its results"));
  EXPECT_EQ(t.b.Count<HeldUp>(), 1u);
  EXPECT_EQ(t.c.Count<HeldUp>(), 0u) << "c is the late worker";
  EXPECT_EQ(WaitsFor(*t.round(), t.job().lanes[0].layout), "worker c: to take its results");
}

TEST(SlowReader, Fault_W14_ThePolicyMayBeToEvict) {
  OneReadsSlowly t(LatePolicy::kEvict);
  for (uint32_t flat = 0; flat < 4 && !t.c.ended.has_value(); ++flat) {
    t.Sleep(absl::Seconds(4));
    if (!t.c.ended.has_value()) t.Take(flat);
  }
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_THAT(t.c.ended->text, HasSubstr("is late, and round.late_policy is evict"));
  EXPECT_EQ(t.a.lane().last, 1u);
}

// Results that are held for a worker delay the others only when there is no room for more.
TEST(SlowReader, IsNotLateBeforeAnybodyWaitsForIt) {
  Config config;
  config.frame_bytes = kChunkBytes;
  config.result_window_bytes = 2 * kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  t.c.acks = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Register({Tensor("x", 6)});
    worker->Begin();
    worker->PushTensor(0);
  }
  t.Sleep(absl::Minutes(1));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(2);
  t.Sleep(absl::Seconds(4));
  EXPECT_FALSE(t.c.ended.has_value()) << "its lease starts when the others wait for it";
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  t.Sleep(absl::Seconds(2));
  EXPECT_TRUE(t.c.ended.has_value());
}

// A large model may take long on a slow link. A worker that takes each result soon is not late.
TEST(SlowReader, NobodyIsLateWhoTakesWhatIsHeldForItSoon) {
  OneReadsSlowly t(LatePolicy::kEvict);
  for (TestWorker* worker : {&t.a, &t.b}) worker->acks = false;
  const auto take = [&](uint32_t flat) {
    const ChunkRange range =
        flat < 2 ? ChunkRange{flat, 0, 1} : ChunkRange{TensorIndex{2}, flat - 2, 1};
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
      worker->Send(ResultAck{0, 1, t.round()->ballot, {range}});
    }
  };
  for (uint32_t flat = 0; flat < 8; ++flat) {
    t.Sleep(absl::Seconds(1));
    take(flat);
  }
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
}

// ---- below the minimum

TEST(Pause, BelowMinWorkersNoRoundIsSettled) {
  Three t(Settings(3, 3, 3));
  t.a.Contribute();
  t.b.Contribute();
  t.Lose("c");
  EXPECT_TRUE(t.job().Paused());
  EXPECT_EQ(t.a.lane().last, 0u);
  EXPECT_EQ(t.Notes(NoteKind::kPaused), 1u);
  EXPECT_THAT(t.job().reason, HasSubstr("2 workers are left and min_workers is 3"));
  EXPECT_THAT(t.job().reason, HasSubstr("--min-workers"));
}

// Workers that wait receive the reason of a pause, as they receive the names of late workers.
TEST(Pause, ThoseWhoWaitAreToldWhyAndWhenItIsOver) {
  Three t(Settings(3, 3, 3));
  t.a.Contribute();
  t.Lose("c");
  t.Sleep(absl::Milliseconds(4900));
  EXPECT_EQ(t.a.Count<HeldUp>(), 0u) << "a replacement may join soon";
  t.Sleep(absl::Milliseconds(200));
  for (TestWorker* worker : {&t.a, &t.b}) {
    EXPECT_EQ(worker->Last<HeldUp>().round, 0u) << "a pause delays all rounds";
    EXPECT_EQ(worker->Last<HeldUp>().text, t.job().reason);
  }
  EXPECT_THAT(t.a.Last<HeldUp>().text,
              HasSubstr("2 workers are left and min_workers is 3 (missing: c)."));
  const auto of_pause = [](const TestWorker& worker) {
    const std::vector<HeldUp> all = worker.All<HeldUp>();
    return std::count_if(all.begin(), all.end(),
                         [](const HeldUp& held_up) { return held_up.round == 0; });
  };
  t.Sleep(absl::Seconds(60));
  EXPECT_EQ(of_pause(t.a), 1) << "it is reported only once";
  // Another worker is lost, so the reason changes.
  t.Lose("b");
  EXPECT_EQ(of_pause(t.a), 2);
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("1 worker is left"));
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("(missing: b, c)"));
  // A new session receives the reason again, also that of a worker that joins.
  t.a.Cut();
  t.a.Connect();
  EXPECT_EQ(of_pause(t.a), 3);
  t.b.Restart();
  t.b.Connect();
  EXPECT_EQ(of_pause(t.b), 2);
  for (TestWorker* worker : {&t.a, &t.b}) {
    EXPECT_THAT(worker->Last<HeldUp>().text, HasSubstr("(missing: c; not ready yet: b)"));
  }
  t.b.Ready();
  for (TestWorker* worker : {&t.a, &t.b}) {
    EXPECT_THAT(worker->Last<HeldUp>().text, HasSubstr("(missing: c)"));
  }
  t.c.Restart();
  t.c.Connect();
  t.c.Ready();
  EXPECT_FALSE(t.job().Paused());
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    EXPECT_EQ(worker->Last<HeldUp>().round, 0u);
    EXPECT_EQ(worker->Last<HeldUp>().text, "") << worker->id << " receives the end of the pause";
  }
}

TEST(Pause, AWaitForABroadcastIsHeldUpToo) {
  Three t(Settings(3, 3, 3));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.Lose("c");
  EXPECT_EQ(t.Notes(NoteKind::kPaused), 0u) << "no worker waits";
  t.a.Send(Get{{kLane, "w", 1}, std::nullopt, "c", 0, 0, absl::Seconds(10)});
  EXPECT_EQ(t.Notes(NoteKind::kPaused), 1u);
  t.Sleep(absl::Seconds(6));
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("(missing: c)"));
  t.Sleep(absl::Seconds(5));
  EXPECT_THAT(t.a.Last<GetFailed>().error.text,
              HasSubstr("which did not publish it in time. Job job is paused: 2 workers"));
}

TEST(Pause, AReplacementJoinsTheOpenRoundWithTheStateOfTheLastVerdict) {
  Three t(Settings(3, 3, 3));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  t.Lose("c");
  t.c.Restart();
  t.c.Connect();
  t.c.Ready();
  EXPECT_FALSE(t.job().Paused());
  EXPECT_EQ(t.Notes(NoteKind::kResumed), 1u);
  EXPECT_EQ(t.c.role, Role::kMember);
  EXPECT_EQ(t.c.donor, "a");
  EXPECT_EQ(t.c.lane().next(), 2u) << "it starts with the open round";
  EXPECT_EQ(t.c.rank(), 2);
  t.c.Contribute();
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
  EXPECT_EQ(t.a.lane().delivered[2].at({0, 0}), (Reduced{7, 3}));
}

TEST(Pause, AWorkerThatComesBackCountsOnceInTheRound) {
  Three t(Settings(3, 3, 3));
  t.c.Contribute();
  t.Lose("c");  // Its contribution is effective, so it is kept.
  t.c.Restart();
  t.c.Connect();
  t.c.Ready();
  ASSERT_EQ(t.c.role, Role::kMember);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.a.verdict().value.contributors[2].incarnation, t.c.incarnation);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Pause, AValueThatIsLostWithAllWhoHadItIsRunAgain) {
  Three t(Settings(3, 3, 3));
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.Lose("c");
  t.c.Restart();
  t.c.Connect();
  t.c.Ready();
  t.c.Begin();
  const Prepared prepared = t.c.Last<Prepared>();
  ASSERT_NE(prepared.ballot, prepared.value_ballot);
  t.Lose("a");
  t.Lose("b");
  t.c.Send(Need{0, 1, prepared.value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  ASSERT_TRUE(t.c.ended.has_value()) << "it must reconnect and report what it has";
  EXPECT_EQ(t.c.ended->code, ErrorCode::kUnavailable);
  t.c.stages = true;
  t.c.Connect();
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Restart();
    worker->Connect();
    worker->Ready();
  }
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

// An empty commit outlives its worker. When the round is run again, the commit also skips a tensor
// that was registered after the value had been prepared.
TEST(Pause, ACommitOfNothingSkipsATensorThatCameWhenTheValueWasPrepared) {
  Three t(Settings(3, 3, 3));
  t.c.stages = false;
  t.a.Contribute();
  t.b.Contribute(Spec(ReduceOp::kAverage), kLane, {0, 1});
  t.c.Contribute();
  t.Lose("c");
  t.c.Restart();
  t.c.Connect();
  t.c.Ready();
  t.c.Register({Tensor("late")});
  t.c.Begin();
  const Prepared prepared = t.c.Last<Prepared>();
  t.Lose("a");
  t.Lose("b");
  t.c.Send(Need{0, 1, prepared.value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  ASSERT_TRUE(t.c.ended.has_value()) << "the round is run again";
  t.c.stages = true;
  t.c.Connect();
  t.a.Restart();
  t.a.Connect();
  t.a.Ready();
  TestWorker& d = t.Join("d");
  for (TestWorker* worker : {&t.a, &t.c, &d}) worker->Contribute();
  ASSERT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.c.verdict().value.contributors.size(), 4u) << "b skipped everything";
}

TEST(Pause, FinishedWorkersCountTowardsEnough) {
  Three t(Settings(3, 3, 3));
  t.c.Send(Finished{});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.Lose("b");
  EXPECT_TRUE(t.job().Paused());
  t.b.Restart();
  t.b.Connect();
  t.b.Ready();
  EXPECT_FALSE(t.job().Paused());
  EXPECT_EQ(t.b.role, Role::kMember);
}

TEST(Pause, TheTimeoutGivesWaitersATypedErrorAndTheRoundStaysOpen) {
  Config config;
  config.pause_timeout = absl::Seconds(30);
  Three t(Settings(3, 3, 3), config);
  t.a.Contribute();
  t.Lose("c");
  t.Sleep(absl::Seconds(29));
  EXPECT_EQ(t.a.rejected(), ErrorCode::kOk);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.a.rejected(), ErrorCode::kPaused);
  EXPECT_EQ(t.a.Count<Rejected>(), 1u);
  EXPECT_NE(t.round(), nullptr);
}

TEST(Pause, Fault_W19_AllWorkersDieAndTheJobIsKeptForAWhile) {
  Three t(Settings(3, 3, 3));
  t.a.Contribute();
  for (const char* id : {"a", "b", "c"}) t.Lose(id);
  t.Sleep(t.config.idle_job_timeout - absl::Seconds(1));
  EXPECT_NE(t.core->FindJob(kJob), nullptr);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.core->FindJob(kJob), nullptr);
  EXPECT_EQ(t.Notes(NoteKind::kJobEnded), 1u);
  EXPECT_EQ(t.core->reserved_bytes(), 0u);
  EXPECT_EQ(t.core->NextDeadline(), absl::InfiniteFuture()) << "no deadline is left";
}

// The script of b has not reached the call, whose round will be aborted. Its client ignores
// Prepared before it has registered the lane, so b is not asked to stage until then.
TEST(Attempt, Fault_W1_AWorkerThatHasNotNamedTheLaneStagesOnceItDoes) {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  Cluster c(Settings(1, 3, 3), config);
  for (const char* id : {"a", "b", "d"}) c.Join(id);
  TestWorker& b = c["b"];
  for (const char* id : {"a", "d"}) {
    c[id].Register({Tensor("x")}, "call/eval", LaneKind::kCall);
  }
  c["a"].Contribute(Spec(ReduceOp::kSum), "call/eval");
  c.Step(WorkerExited{kJob, "d"});
  EXPECT_EQ(b.Count<Prepared>(), 0u);
  c.Sleep(3 * c.config.lease);
  ASSERT_EQ(b.role, Role::kMember) << "b is not lost";
  b.Register({Tensor("x")}, "call/eval", LaneKind::kCall);
  EXPECT_EQ(b.Count<Prepared>(), 1u);
  EXPECT_EQ(c["a"].verdict("call/eval").value.outcome, Outcome::kAborted);
}

TEST(Suspend, AnOperatorHoldsTheVerdictAndLetsItGo) {
  Three t;
  t.Step(SuspendJob{kJob});
  EXPECT_THAT(t.job().reason, HasSubstr("suspended by an operator"));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 0u);
  EXPECT_TRUE(t.job().suspended());
  t.Step(ResumeJob{kJob});
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.job().reason, "");
}

TEST(Suspend, ASettledRoundWaitsToo) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.Step(SuspendJob{kJob});
  t.c.Stage();
  EXPECT_EQ(t.a.lane().last, 0u);
  t.Step(ResumeJob{kJob});
  EXPECT_EQ(t.a.lane().last, 1u);
}

// ---- reconnects in the middle

TEST(Reconnect, Fault_N2_WhatIsHeldIsNotPushedAgain) {
  Three t;
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.Cut();
  t.a.lane().pushed.insert({1, 0});  // Its client continues to push.
  t.ClearLog();
  t.a.Connect();
  ASSERT_EQ(t.a.welcome->open.size(), 1u);
  EXPECT_THAT(t.a.welcome->open[0].have, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.Actions<KeepChunks>().size(), 1u);
  t.a.Commit();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Reconnect, MissedResultsAreSentAgain) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Contribute();
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.PushTensor(1);
  t.a.Commit();
  t.b.Contribute();
  t.a.Cut();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.a.Connect();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.a.lane().delivered[2].at({1, 0}), (Reduced{7, 3}));
}

TEST(Reconnect, HeldResultsAreNotSentAgain) {
  Three t;
  t.a.stages = t.a.acks = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  ASSERT_EQ(t.a.lane().results.size(), 2u);
  t.a.Cut();
  t.ClearLog();
  t.a.acks = t.a.stages = true;
  t.a.Connect();
  EXPECT_THAT(t.Actions<Publish>(), IsEmpty());
  EXPECT_EQ(t.a.lane().last, 1u);
}

}  // namespace
}  // namespace basin::aggregator
