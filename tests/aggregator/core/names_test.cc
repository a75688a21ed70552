// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Names of calls: a job may use any number of them, one after another, and holds a bounded number.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
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
  t.Call("call/x");
  const LaneIndex index = t.a.lane("call/x").index;
  t.b.lets_go = false;
  t.CallOthers(3);
  EXPECT_TRUE(t.job().lanes.Has(index));
  EXPECT_EQ(t.a.Count<LaneGone>(), 0u);
  EXPECT_GE(t.b.Count<LetGo>(), 1u) << "it was asked";
  // A worker that is lost answers no more, and needs nothing.
  t.Step(WorkerExited{kJob, "b"});
  EXPECT_FALSE(t.job().lanes.Has(index));
  EXPECT_GE(t.a.Count<LaneGone>(), 1u);
}

TEST(Names, ARoundVoidsTheAnswers) {
  Calls t;
  t.Call("call/x");
  const LaneIndex index = t.a.lane("call/x").index;
  t.b.lets_go = false;
  t.CallOthers(3);
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

TEST(Names, Fault_A1_ACallThatOnlyALostWorkerRemembersIsOver) {
  Calls t;
  t.Call("call/x");
  t.Call("call/x");
  Hello a = t.a.MakeHello();
  Hello b = t.b.MakeHello();
  Hello lost = b;
  lost.worker = "lost";
  const auto of_x = [](Hello& hello) {
    return std::find_if(hello.lanes.begin(), hello.lanes.end(),
                        [](const LaneHistory& lane) { return lane.name == "call/x"; });
  };
  const LaneIndex index = of_x(lost)->lane;
  // The others have let the call go since they go on without it.
  for (Hello* hello : {&a, &b}) {
    ++hello->membership.generation.counter;
    hello->lanes.erase(of_x(*hello));
  }
  RecoveryFacts facts;
  const auto decide = [&] {
    return DecideRecovery({{"a", a}, {"b", b}, {"lost", lost}}, facts, Rules{});
  };
  const auto lane_of = [](const RecoveryDecision& decision) -> const RecoveredLane* {
    for (const RecoveredLane& lane : decision.lanes) {
      if (lane.name == "call/x") return &lane;
    }
    return nullptr;
  };
  RecoveryDecision decision = decide();
  EXPECT_THAT(decision.members, ElementsAre("a", "b")) << "they need not remember it";
  EXPECT_EQ(lane_of(decision), nullptr);
  // Its name is that of another lane, which has fewer rounds.
  LaneHistory later;
  later.name = "call/x";
  later.kind = LaneKind::kCall;
  later.lane = index + 3;
  for (Hello* hello : {&a, &b}) hello->lanes.push_back(later);
  decision = decide();
  EXPECT_THAT(decision.members, ElementsAre("a", "b"));
  ASSERT_NE(lane_of(decision), nullptr);
  EXPECT_EQ(lane_of(decision)->lane, later.lane);
  EXPECT_EQ(lane_of(decision)->last_verdict, 0u);
  // Without anybody who goes on, what is left is all that there is.
  a.membership = b.membership = Membership{};
  facts.forced = true;
  decision = decide();
  ASSERT_NE(lane_of(decision), nullptr);
  EXPECT_EQ(lane_of(decision)->last_verdict, 2u);
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
