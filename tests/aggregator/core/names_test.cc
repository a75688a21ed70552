// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Names of calls: a job may use any number of them, one after another, and holds a bounded number.

#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "aggregator/core/lanes.h"
#include "aggregator/core/plausibility.h"
#include "aggregator/core/recovery.h"
#include "protocol/version.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;

const RoundSpec kSum = Spec(ReduceOp::kSum);

Config FewNames() {
  Config config;
  config.max_lane_names = 6;
  config.max_lanes = 6;
  return config;
}

// A job that trains, in which two workers make calls. The workers let go of names above three.
struct Calls : Cluster {
  Calls() : Cluster(Settings(1, 4, 2), FewNames()), a(Joined("a")), b(Joined("b")) {}
  TestWorker& Joined(const WorkerId& id) {
    Worker(id).features = kFeatureLetGo;
    return Join(id);
  }
  void Register(const std::string& name) {
    for (TestWorker* worker : {&a, &b}) worker->Register({Tensor("x")}, name, LaneKind::kCall);
  }
  void Call(const std::string& name) {
    now += absl::Milliseconds(1);
    Register(name);
    for (TestWorker* worker : {&a, &b}) worker->Contribute(kSum, name);
  }
  // Makes calls with so many new names.
  void CallOthers(int count) {
    for (int i = 0; i < count; ++i) Call(absl::StrCat("call/other/", ++others));
  }
  // Makes a call, whose name a lets go and b does not, and returns its lane.
  LaneIndex LetOnlyAGo() {
    Call("call/x");
    const LaneIndex index = a.lane("call/x").index;
    b.lets_go = false;
    CallOthers(3);
    return index;
  }
  TestWorker& a;
  TestWorker& b;
  int others = 0;
};

TEST(Names, ManyOneAfterAnotherNeedRoomForAFew) {
  Calls t;
  t.CallOthers(3);
  const uint64_t reserved = t.core->reserved_bytes();
  for (int i = 0; i < 200; ++i) {
    const std::string name = absl::StrCat("call/", i);
    t.Call(name);
    ASSERT_EQ(t.a.lane(name).last, 1u) << name;
    ASSERT_LE(t.job().lanes.size(), 4u);
    ASSERT_LE(t.core->reserved_bytes(), 2 * reserved);
  }
  EXPECT_EQ(t.a.Count<Rejected>() + t.b.Count<Rejected>(), 0u);
  EXPECT_GE(t.b.Count<LaneGone>(), 198u);
  EXPECT_LE(t.a.lanes.size(), 4u) << "a worker forgets them too";
  EXPECT_TRUE(t.job().lanes.Has(0)) << "a gradient lane stays";
}

TEST(Names, ThatAreGoneAreFreeForAnotherCall) {
  Calls t;
  t.Call("call/x");
  t.Call("call/x");
  const LaneIndex before = t.a.lane("call/x").index;
  t.CallOthers(4);
  ASSERT_FALSE(t.job().lanes.Has(before));
  const TensorSpec other{"x", DType::kF64, {7}};
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Register({other}, "call/x", LaneKind::kCall);
    EXPECT_EQ(worker->lane("call/x").last, 0u);
    worker->Contribute(kSum, "call/x");
  }
  EXPECT_GT(t.a.lane("call/x").index, before) << "an index is given once";
  EXPECT_EQ(t.a.lane("call/x").last, 1u);
  EXPECT_EQ(t.a.Count<Rejected>(), 0u) << "its tensor may have another shape";
}

TEST(Names, TheCallThatWasUsedLastStays) {
  Calls t;
  t.Call("call/x");
  for (int i = 0; i < 10; ++i) {
    t.CallOthers(1);
    t.Call("call/x");
  }
  EXPECT_EQ(t.a.lane("call/x").last, 11u);
}

TEST(Names, ACallInFlightStays) {
  Calls t;
  t.Register("call/x");
  t.a.Contribute(kSum, "call/x");
  t.CallOthers(10);
  t.b.Contribute(kSum, "call/x");
  EXPECT_EQ(t.a.lane("call/x").last, 1u);
  EXPECT_EQ(t.b.lane("call/x").last, 1u);
}

TEST(Names, StayUntilEveryWorkerHasLetThemGo) {
  Calls t;
  const LaneIndex index = t.LetOnlyAGo();
  EXPECT_TRUE(t.job().lanes.Has(index));
  EXPECT_EQ(t.a.Count<LaneGone>(), 0u);
  EXPECT_GE(t.b.Count<LetGo>(), 1u) << "it was asked";
  // A worker that is lost answers no more, and needs nothing.
  t.Step(WorkerExited{kJob, "b"});
  EXPECT_FALSE(t.job().lanes.Has(index));
  EXPECT_GE(t.a.Count<LaneGone>(), 1u);
}

TEST(Names, AWorkerThatComesBackIsAskedAgainAndTheOthersAreNot) {
  Calls t;
  const LaneIndex index = t.LetOnlyAGo();
  ASSERT_TRUE(t.job().lanes.Has(index));
  const size_t asked_a = t.a.Count<LetGo>();
  const size_t asked_b = t.b.Count<LetGo>();
  t.b.Cut();
  t.b.Connect();
  EXPECT_EQ(t.a.Count<LetGo>(), asked_a) << "its answers hold";
  EXPECT_EQ(t.b.Count<LetGo>(), 2 * asked_b) << "it may not have heard the questions";
  t.b.Send(LetGo{index, 1});
  EXPECT_FALSE(t.job().lanes.Has(index)) << "the answer of a was not forgotten";
}

TEST(Names, AnswersOfOthersAreNone) {
  Calls t;
  t.Call("call/x");
  t.Worker("c").sees_layouts = false;  // It waits for the next members, and registers no call.
  TestWorker& c = t.Joined("c");
  const LaneIndex index = t.a.lane("call/x").index;
  t.b.lets_go = false;
  t.CallOthers(3);
  ASSERT_TRUE(t.job().lanes.Has(index));
  for (int i = 0; i < 3; ++i) {
    c.Send(LetGo{index, 1});
    t.a.Send(LetGo{index, 1});
  }
  EXPECT_TRUE(t.job().lanes.Has(index)) << "b has not answered";
  c.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  t.b.Send(LetGo{index, 1});
  EXPECT_TRUE(t.job().lanes.Has(index)) << "now c knows it too, and was not asked";
}

TEST(Names, AnotherProcessOfAWorkerNeedsNothingOfTheFirst) {
  Calls t;
  const LaneIndex index = t.LetOnlyAGo();
  ASSERT_TRUE(t.job().lanes.Has(index));
  t.b.Restart();
  t.b.Connect();
  EXPECT_FALSE(t.job().lanes.Has(index));
}

TEST(Names, ARoundVoidsTheAnswers) {
  Calls t;
  const LaneIndex index = t.LetOnlyAGo();
  t.a.Begin(kSum, "call/x");
  t.b.Send(LetGo{index, 1});  // It was on its way.
  ASSERT_TRUE(t.job().lanes.Has(index));
  t.a.PushTensor(0, "call/x");
  t.a.Commit("call/x");
  t.b.Contribute(kSum, "call/x");
  EXPECT_EQ(t.a.lane("call/x").last, 2u);
  t.a.Send(LetGo{index, 2});
  t.b.Send(LetGo{index, 2});
  EXPECT_TRUE(t.job().lanes.Has(index)) << "nobody asked after round 2";
}

TEST(Names, WhatIsOnItsWayToALaneThatIsGoneReachesNoOther) {
  Calls t;
  t.Call("call/x");
  const LaneIndex index = t.a.lane("call/x").index;
  t.CallOthers(4);
  ASSERT_TRUE(t.job().lanes.IsGone(index));
  t.ClearLog();
  t.a.Send(basin::Begin{index, 2, kSum, {}, 0, {}});
  t.a.Send(basin::Commit{index, 2, 1, Bitmap(1), 0, 0, 0});
  t.a.Send(ResultAck{index, 1, {1, 1}, {{0, 0, 1}}});
  t.a.Send(basin::Skip{index, 2, {0}});
  EXPECT_EQ(t.a.Count<Rejected>(), 0u) << "the worker learns that it is gone";
  for (const Lane& lane : t.job().lanes) EXPECT_FALSE(lane.round.has_value()) << lane.name;
}

TEST(Names, AWorkerThatWasAwayLearnsWhatIsGone) {
  Calls t;
  t.Call("call/x");
  const LaneIndex index = t.b.lane("call/x").index;
  t.b.lets_go = false;
  t.CallOthers(3);
  // Its answer arrives, but not what follows from it.
  t.b.lane("call/x").let_go = true;
  const TestWorker::LaneView remembered = t.b.lane("call/x");
  t.b.Send(LetGo{index, 1});
  ASSERT_FALSE(t.job().lanes.Has(index));
  t.b.Cut();
  t.b.lanes["call/x"] = remembered;
  t.a.Register({Tensor("x")}, "call/x", LaneKind::kCall);  // Another lane by that name.
  t.b.lets_go = true;
  t.b.Connect();
  EXPECT_FALSE(t.b.ended.has_value()) << "no other history, but one that is over";
  EXPECT_EQ(t.b.role, Role::kMember);
  t.Call("call/x");
  EXPECT_EQ(t.b.lane("call/x").last, 1u);
  EXPECT_GT(t.b.lane("call/x").index, index);
}

TEST(Names, Fault_W3_AnEvictedWorkerMayRememberWhatIsGone) {
  Calls t;
  t.Call("call/x");
  t.b.Cut();
  const Hello late = t.b.MakeHello();
  t.Step(WorkerExited{kJob, "b"});
  for (int i = 0; i < 5; ++i) {
    const std::string name = absl::StrCat("call/", i);
    t.a.Register({Tensor("x")}, name, LaneKind::kCall);
    t.a.Contribute(kSum, name);
  }
  ASSERT_EQ(t.job().lanes.Named("call/x"), nullptr);
  t.a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  t.b.Connect(late);
  EXPECT_FALSE(t.b.ended.has_value()) << "it rejoins with state, like any other";
  EXPECT_EQ(t.b.role, Role::kJoiner);
}

TEST(Names, Fault_A1_ARecoveryKeepsWhoHasForgottenWhatOthersRemember) {
  Calls t;
  t.Call("call/x");
  Hello a = t.a.MakeHello();
  Hello b = t.b.MakeHello();
  const auto of_x = [](Hello& hello) {
    return std::find_if(hello.lanes.begin(), hello.lanes.end(),
                        [](const LaneHistory& lane) { return lane.name == "call/x"; });
  };
  // Its last round counted both, and only a has heard that it is gone.
  a.lanes.erase(of_x(a));
  EXPECT_THAT(DecideRecovery({{"a", a}, {"b", b}}, RecoveryFacts{}, Rules{}).members,
              ElementsAre("b"))
      << "a is behind, unless b has let it go";
  of_x(b)->let_go = true;
  EXPECT_THAT(DecideRecovery({{"a", a}, {"b", b}}, RecoveryFacts{}, Rules{}).members,
              ElementsAre("a", "b"));
  // Another lane has the name meanwhile, and b has not heard of that either.
  LaneHistory later;
  later.name = "call/x";
  later.kind = LaneKind::kCall;
  later.lane = of_x(b)->lane + 3;
  a.lanes.push_back(later);
  const RecoveryDecision decision = DecideRecovery({{"a", a}, {"b", b}}, RecoveryFacts{}, Rules{});
  EXPECT_THAT(decision.members, ElementsAre("a", "b"));
  for (const RecoveredLane& lane : decision.lanes) {
    if (lane.name == "call/x") {
      EXPECT_EQ(lane.last_verdict, 0u) << "of the later lane";
    }
  }
}

// A job in which b was lost silently, and was the only one that had not let go of call/x.
struct LostCalls : Calls {
  LostCalls() {
    Call("call/x");
    index = a.lane("call/x").index;
    b.lets_go = false;
    CallOthers(3);
    b.Cut();
    Sleep(config.lease + absl::Seconds(1));
    EXPECT_EQ(Notes(NoteKind::kWorkerLost), 1u);
  }
  LaneIndex index = 0;
};

TEST(Names, Fault_A1_ALostMemberMayComeBackToAnotherAggregatorWithWhatItRemembers) {
  LostCalls t;
  EXPECT_TRUE(t.job().lanes.Has(t.index)) << "b is a member until another list is known";
  t.Crash(5000);
  t.a.Connect();
  t.b.Connect();
  EXPECT_THAT(t.job().membership().members, ElementsAre("a", "b"))
      << "a is not behind, because it has what b has";
}

TEST(Names, GoWhenALostWorkerIsNoMemberAnyMore) {
  LostCalls t;
  ASSERT_TRUE(t.job().lanes.Has(t.index));
  t.a.Contribute();
  ASSERT_THAT(t.job().membership().members, ElementsAre("a"));
  EXPECT_FALSE(t.job().lanes.Has(t.index));
  EXPECT_EQ(t.a.lanes.count("call/x"), 0u);
}

TEST(Names, Fault_A1_WhatOnlyAFormerMemberRemembersIsGone) {
  LostCalls t;
  t.a.Contribute();
  ASSERT_EQ(t.a.lanes.count("call/x"), 0u);
  // The next aggregator hears of both. A has the newer list, without b.
  t.Crash(5000);
  t.b.Connect();
  t.a.Connect();
  t.Sleep(t.config.recovery_window);
  EXPECT_THAT(t.job().membership().members, ElementsAre("a"));
  EXPECT_FALSE(t.a.ended.has_value());
  EXPECT_EQ(t.a.role, Role::kMember) << "it is not behind b, which was not asked";
  EXPECT_EQ(t.b.role, Role::kJoiner);
}

TEST(Names, Fault_A1_AFormerMemberDoesNotBringBackAnEarlierLaneOfTheName) {
  LostCalls t;
  t.a.Contribute();
  // Another lane has the name, and fewer rounds than that of b.
  t.a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  const LaneIndex later = t.a.lane("call/x").index;
  ASSERT_GT(later, t.index);
  t.Crash(5000);
  t.b.Connect();
  t.a.Connect();
  t.Sleep(t.config.recovery_window);
  ASSERT_NE(t.job().lanes.Named("call/x"), nullptr);
  EXPECT_EQ(t.job().lanes.Named("call/x")->index, later);
  EXPECT_THAT(t.job().membership().members, ElementsAre("a"));
  EXPECT_EQ(t.a.role, Role::kMember);
}

TEST(Names, Fault_A1_ARecoveryNumbersLanesAnewBeforeTheNumbersEnd) {
  Calls t;
  t.Call("call/x");
  std::map<WorkerId, Hello> hellos = {{"a", t.a.MakeHello()}, {"b", t.b.MakeHello()}};
  for (auto& [id, hello] : hellos) {
    for (LaneHistory& lane : hello.lanes) lane.lane += kMostLaneIndexes - 3;
    EXPECT_EQ(WhyNotPlausible(hello, t.job().term, t.config), "") << "an aggregator gave it";
  }
  const RecoveryDecision decision = DecideRecovery(hellos, RecoveryFacts{}, Rules{});
  EXPECT_THAT(decision.members, ElementsAre("a", "b"));
  ASSERT_EQ(decision.lanes.size(), 2u);
  EXPECT_EQ(decision.lanes[0].name, kLane);
  EXPECT_EQ(decision.lanes[0].lane, 0u);
  EXPECT_EQ(decision.lanes[1].lane, 1u);
}

TEST(Names, Fault_A1_AreLetGoAfterARestartToo) {
  Calls t;
  t.CallOthers(3);
  t.Crash(5000);
  t.a.Connect();
  t.b.Connect();
  ASSERT_EQ(t.job().membership().members.size(), 2u);
  t.CallOthers(10);
  EXPECT_LE(t.job().lanes.size(), 4u);
  EXPECT_EQ(t.a.Count<Rejected>(), 0u);
}

// The library takes the layout that another worker's registration brings.
TEST(Names, AWorkerWhoseRegistrationWasRefusedKnowsTheLaneOfAnother) {
  Config config;
  config.max_lanes = 2;
  Cluster t(Settings(1, 4, 2), config);
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  for (TestWorker* worker : {&a, &b}) worker->Register({Tensor("x")}, "call/y", LaneKind::kCall);
  a.Contribute(kSum, "call/y");
  b.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  ASSERT_EQ(b.Count<Rejected>(), 1u) << "a call in flight has the last place";
  b.Contribute(kSum, "call/y");
  a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  for (TestWorker* worker : {&a, &b}) worker->Contribute(kSum, "call/x");
  EXPECT_EQ(a.lane("call/x").last, 1u);
  EXPECT_EQ(b.lane("call/x").last, 1u);
}

// The worker learns that the lane before is gone, and drops what the aggregator has sent meanwhile.
TEST(Names, ALayoutThatAWorkerHasNotSeenIsSentAsAWhole) {
  Calls t;
  const basin::Register request{"call/fresh", LaneKind::kCall, {Tensor("x")}};
  const auto layouts = [&] {
    std::vector<TensorIndex> firsts;
    for (const LaneLayout& layout : t.a.All<LaneLayout>()) {
      if (layout.name == request.lane) firsts.push_back(layout.first);
    }
    return firsts;
  };
  t.a.Send(request);
  t.a.Send(request);
  EXPECT_THAT(layouts(), ElementsAre(0, 0));
  const LaneIndex index = *t.job().lanes.IndexOf(request.lane);
  t.a.Send(LayoutSeen{index, 1});
  t.a.Send(request);
  EXPECT_THAT(layouts(), ElementsAre(0, 0, 1));
}

TEST(Names, AWorkerThatDoesNotKnowKeepsAll) {
  Calls t;
  t.CallOthers(1);
  TestWorker& old = t.Join("old");  // Its client has not the feature.
  ASSERT_EQ(old.role, Role::kJoiner);
  t.CallOthers(3);
  EXPECT_EQ(t.a.Count<LetGo>() + old.Count<LetGo>(), 0u);
  EXPECT_EQ(t.job().lanes.size(), 5u);
}

}  // namespace
}  // namespace basin::aggregator
