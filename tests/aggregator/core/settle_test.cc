// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round is settled: who must stage, who receives the verdict, and what it reports.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "aggregator/core/round_waits.h"
#include "protocol/version.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Settle, TheVerdictIsToldOnlyWhenEveryoneHasStaged) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  EXPECT_EQ(t.a.lane().last, 0u);
  EXPECT_EQ(t.c.Last<Prepared>().value.divisor, 3u);
  EXPECT_THAT(WaitsFor(*t.round(), t.job().lanes[0].layout), "worker c: to stage the result");
  t.c.Stage();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.c.lane().last, 1u);
}

TEST(Settle, AStagedOfAnOlderBallotDoesNotCount) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.c.Send(Staged{0, 1, Ballot{t.config.term, 9}});
  EXPECT_EQ(t.a.lane().last, 0u);
}

TEST(Settle, AMemberThatDoesNotStageIsEvictedAfterItsLease) {
  Three t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.Sleep(t.config.lease - absl::Milliseconds(100));
  EXPECT_EQ(t.a.lane().last, 0u);
  t.Sleep(absl::Milliseconds(200));
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u) << "its contribution counts";
  EXPECT_THAT(t.c.ended->text, HasSubstr("did not stage the result in time"));
}

// The gradients of c are in the contribution of a, which also brings c the results.
struct Together : Three {
  explicit Together(Config config = {}) : Three(Settings(1, 4, 3), std::move(config)) {
    c.Begin();
    c.Withdraw("carried", kLane, true);
  }
  void Contribute() {
    a.Contribute();
    b.Contribute();
  }
};

TEST(Settle, AMemberThatGetsTheResultsAnotherWayIsSentNoneAndStages) {
  Together t;
  t.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  EXPECT_TRUE(t.c.lane().results.empty());
  EXPECT_EQ(t.round()->held.bytes(), 0u) << "none are held for it";
  EXPECT_EQ(t.a.lane().last, 0u) << "it has not staged";
  t.c.lane().results = t.a.lane().results;
  t.c.lane().result_round = t.a.lane().result_round;
  t.c.lane().result_ballot = t.a.lane().result_ballot;
  t.c.Stage();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.c.lane().delivered[1], t.a.lane().delivered[1]);
}

TEST(Settle, AMemberThatGetsTheResultsAnotherWayMayRequestThemAfterAll) {
  Together t;
  t.Contribute();
  t.c.Send(Need{0, 1, t.c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.c.lane().delivered[1], t.a.lane().delivered[1]);
}

TEST(Settle, ResultsThatAreLostWithAllWhoHadThemEndTheRoundOfAMemberWithoutResults) {
  Together t;
  t.Contribute();
  for (const char* id : {"a", "b"}) t.Lose(id);
  t.c.Send(Need{0, 1, t.c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  ASSERT_TRUE(t.c.ended.has_value()) << "the round is run again";
  t.c.Connect();
  EXPECT_EQ(t.c.verdict().value.outcome, Outcome::kAborted);
  EXPECT_EQ(t.c.verdict().value.abort_cause, AbortCause::kNoContributor);
}

// Its results would be lost as they are reduced, and no one would free the room that they take.
TEST(Settle, TheLastMemberThatIsSentResultsHandsThatOver) {
  Config config;
  config.frame_bytes = config.result_window_bytes = kChunkBytes;
  Together t(config);
  t.a.acks = t.a.stages = t.b.acks = t.b.stages = false;
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.round()->phase(), RoundPhase::kCollect) << "there is room for one result";
  for (const char* id : {"a", "b"}) t.Lose(id);
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.c.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.c.lane().delivered[1].size(), 2u);
}

TEST(Settle, SomebodyIsAlwaysSentResults) {
  Together t;
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Begin();
    worker->Withdraw("carried", kLane, true);
  }
  EXPECT_EQ(t.round() == nullptr || t.round()->members().size() == 3, true);
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
}

TEST(Settle, AMemberThatWantsResultsAfterAllIsSentThoseThatAreHeld) {
  Together t;
  t.a.acks = t.a.stages = false;
  t.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.c.Withdraw("carried", kLane, false);
  EXPECT_EQ(t.c.lane().results, t.b.lane().results) << "a has not acknowledged them";
}

// Otherwise the round would wait for the member, which waits for another member, which waits for
// the rest of the results.
TEST(Settle, ResultsThatComeAnotherWayTakeNoRoom) {
  Config config;
  config.frame_bytes = config.result_window_bytes = kChunkBytes;
  Together t(config);
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.round()->phase(), RoundPhase::kPrepared);
}

// Its withdrawal is repeated on another session, and had another form on the first.
TEST(Settle, ResultsThatAreHeldForAMemberAreReleasedWhenTheyComeAnotherWay) {
  Three t;
  t.c.acks = t.c.stages = false;
  t.c.Begin();
  t.c.Withdraw();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  EXPECT_GT(t.round()->held.bytes(), 0u);
  t.c.Withdraw("carried", kLane, true);
  EXPECT_EQ(t.round()->held.bytes(), 0u);
}

TEST(Settle, ProgressExtendsTheStageDeadline) {
  Three t;
  t.c.stages = t.c.acks = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  const Ballot ballot = t.round()->value_ballot;
  t.Sleep(absl::Seconds(4));
  t.c.Send(ResultAck{0, 1, ballot, {{0, 0, 1}}});
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Settle, AMissedVerdictIsToldOnTheNextSession) {
  Three t;
  t.a.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.c.Cut();
  t.a.Stage();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.c.lane().last, 0u);
  t.c.Connect();
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.c.lane().chain, t.a.lane().chain);
}

TEST(Settle, WhoActsInARoundWithAVerdictIsToldTheVerdict) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.a.inbox.clear();
  t.a.Send(basin::Begin{0, 1, Spec(ReduceOp::kAverage), {}, 0, {}});
  EXPECT_EQ(t.a.Last<Verdict>().record.round, 1u);
  for (int i = 0; i < 3; ++i) {
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  }
  t.a.inbox.clear();
  t.a.Send(basin::Begin{0, 1, Spec(ReduceOp::kAverage), {}, 0, {}});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kStale) << "the aggregator no longer has this verdict";
}

TEST(Settle, FactsDoNotDependOnWhoRegisteredFirst) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.facts.squared_norm, 14.0);
  EXPECT_FALSE(t.a.verdict().value.facts.overflow);
}

TEST(Settle, TheLastWorkerIsNamedWithWhatItMadeTheOthersWait) {
  Three t;
  t.b.Contribute();
  t.Stall(absl::Milliseconds(10));
  t.a.Contribute();
  t.Stall(absl::Milliseconds(300));
  t.c.Contribute();
  const auto prepared = std::find_if(t.notes.begin(), t.notes.end(), [](const Note& note) {
    return note.kind == NoteKind::kRoundPrepared;
  });
  ASSERT_NE(prepared, t.notes.end());
  EXPECT_EQ(prepared->waited_for, "c");
  EXPECT_EQ(prepared->waited, absl::Milliseconds(300));
}

TEST(Settle, Criterion_3_8_TheReplySaysWhatWasComputedAndFromWhat) {
  Three t;
  t.a.squared_norm = 4;
  t.c.squared_norm = std::numeric_limits<double>::infinity();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.generation, t.a.membership.generation);
  EXPECT_EQ(value.contract_version, kContractVersion);
  ASSERT_EQ(value.contributors.size(), 3u);
  EXPECT_EQ(value.contributors[0].squared_norm, 4);
  EXPECT_EQ(value.contributors[1].squared_norm, std::nullopt);
  EXPECT_EQ(value.contributors[2].squared_norm, std::numeric_limits<double>::infinity());
  EXPECT_THAT(value.facts.tensor_squared_norms, ElementsAre(7, 7));
  EXPECT_EQ(value.facts.squared_norm, 14);
  ASSERT_EQ(t.Notes(NoteKind::kContributionUnusual), 1u) << "the norm of c is not finite";
}

TEST(Settle, Criterion_3_3_WhatIsNotFiniteWithWeightZeroIsInTheReplyAndAlarmsNobody) {
  RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  spec.weight_by = WeightBy::kTokens;
  Three t;
  t.a.squared_norm = 4;
  t.c.squared_norm = std::numeric_limits<double>::infinity();
  t.a.Contribute(spec, kLane, {}, Counts{{}, 3, {}});
  t.b.Contribute(spec, kLane, {}, Counts{{}, 5, {}});
  t.c.Contribute(spec, kLane, {}, Counts{{}, 0, {}});
  const RoundValue& value = t.a.verdict().value;
  ASSERT_EQ(value.contributors.size(), 3u);
  EXPECT_EQ(value.contributors[2].weight, 0u);
  EXPECT_EQ(value.contributors[2].squared_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(value.divisor, 8u);
  EXPECT_EQ(t.Notes(NoteKind::kContributionUnusual), 0u) << "c has weight zero and adds nothing";
}

TEST(Settle, Criterion_3_8_AnAbsurdNumberInACallAlarmsAsInAGradient) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Register({Tensor("loss")}, "call/loss", LaneKind::kCall);
  }
  for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kMax}) {
    for (int round = 0; round < 30; ++round) {
      for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
        worker->squared_norm = round == 29 && worker == &t.c ? 1e60 : 4;
        worker->Contribute(Spec(op), "call/loss");
      }
    }
    EXPECT_EQ(t.Notes(NoteKind::kContributionUnusual), 1u) << "a maximum has no usual norm";
  }
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual), HasSubstr("worker c to round 30"));
}

TEST(Settle, Criterion_3_1_TheReplyCountsTheMembersThatDidNotContributeToo) {
  Three t;
  t.a.Begin();
  t.a.Withdraw();
  t.b.Contribute();
  t.c.Contribute();
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.contributors.size(), 2u);
  EXPECT_EQ(value.world_size, 3u);
  t.c.Send(Leave{});
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.a.verdict().value.world_size, 3u) << "members change only at a verdict";
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.a.verdict().value.world_size, 2u);
}

TEST(Settle, Criterion_3_8_ALossScaleThatChangesAlarmsNobody) {
  Three t;
  RoundSpec spec = Spec(ReduceOp::kAverage);
  for (uint64_t round = 0; round < 40; ++round) {
    spec.loss_scale = round < 30 ? 65536 : 1024;
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
      worker->squared_norm = spec.loss_scale * spec.loss_scale;
      if (round == 39 && worker == &t.b) *worker->squared_norm *= 1e6;
    }
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(spec);
    EXPECT_EQ(t.Notes(NoteKind::kContributionUnusual), round == 39 ? 1u : 0u) << round;
  }
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual),
              HasSubstr("norm 1e+03 without its loss scale"));
  t.a.squared_norm = std::numeric_limits<double>::infinity();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(spec);
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual),
              HasSubstr("not finite; so does one whose loss scale, 1024, is too high"));
}

TEST(Settle, Criterion_3_8_AWorkerWithAnUnusualNormIsNamed) {
  Config config;
  config.norm_alarm = 6;
  Three t(Settings(1, 3, 3), config);
  for (uint64_t round = 0; round < 30; ++round) {
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
      worker->squared_norm = round % 2 == 0 ? 1.0 : 1.2;
      if (round == 29 && worker == &t.b) worker->squared_norm = 1e6;
    }
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
    EXPECT_EQ(t.Notes(NoteKind::kContributionUnusual), round == 29 ? 1u : 0u);
  }
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual), HasSubstr("worker b"));
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual), HasSubstr("norm 1e+03"));
}

TEST(Settle, Fault_W12_TheFirstNonFiniteInputIsReported) {
  Three t;
  t.reduces = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  const std::vector<Reduce> asked = std::exchange(t.reduces_asked, {});
  ASSERT_EQ(asked.size(), 2u);
  for (size_t i = asked.size(); i-- > 0;) {
    ReduceDone done{asked[i].job, 0, 1, asked[i].ballot, asked[i].ranges, {1}, {}};
    done.facts.overflow = i == 0;
    done.facts.nonfinite = NonFinite{i == 0 ? "c" : "b", asked[i].ranges.front().tensor, 5};
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->stages = worker->acks = false;
    std::vector<Action> actions;
    t.core->Step(done, t.now, actions);
    for (const Action& action : actions) {
      if (const auto* all = std::get_if<SendAll>(&action)) t.a.Take(all->message);
    }
  }
  const RoundFacts& facts = t.a.Last<Prepared>().value.facts;
  EXPECT_TRUE(facts.overflow);
  EXPECT_EQ(facts.nonfinite, (NonFinite{"c", 0, 5}))
      << "the lowest tensor counts, not the first report";
}

}  // namespace
}  // namespace basin::aggregator
