// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of a lane: how it grows, which part of it each session receives, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

TEST(LayoutTest, GrowsInTheMiddleOfARound) {
  Three t;
  t.a.Contribute();
  t.b.Begin();
  t.b.Register({Tensor("late", 2)});
  EXPECT_EQ(t.a.lane().tensors.size(), 3u) << "everybody learns it";
  for (TensorIndex tensor : {0u, 1u, 2u}) t.b.PushTensor(tensor);
  t.b.Commit();
  t.c.Contribute();
  // Worker a had committed without it, so its contribution skips it.
  EXPECT_EQ(t.a.lane().delivered[1].at({2, 1}), (Reduced{6, 3}));
  EXPECT_EQ(t.a.verdict().value.layout_version, 3u);
}

// A runner must find the tensor of a frame without asking the core.
TEST(LayoutTest, TheRunnerIsGivenTheTensors) {
  Three t;
  t.b.Begin();
  t.ClearLog();
  t.b.Register({Tensor("late", 2)});
  std::vector<NameTensors> names = t.Actions<NameTensors>();
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(names[0].first, 2u);
  ASSERT_EQ(names[0].tensors.size(), 1u);
  EXPECT_EQ(names[0].tensors[0].name, "late");
  t.ClearLog();
  t.b.Register({Tensor("late", 2)});
  EXPECT_TRUE(t.Actions<NameTensors>().empty()) << "nothing is new";
}

// A layout can take megabytes, and a client registers it in pieces.
TEST(LayoutTest, ASessionIsSentTheWholeLayoutOnce) {
  Three t;  // Each has registered w and b, and received both in answer.
  t.a.Register({Tensor("w"), Tensor("b")});
  LaneLayout answer = t.a.Last<LaneLayout>();
  EXPECT_EQ(answer.first, 2u) << "nothing has come since";
  EXPECT_TRUE(answer.tensors.empty());
  EXPECT_EQ(answer.round, 1u);
  EXPECT_GT(answer.window, 0u);

  // Every session receives what others add, so an answer has only what its own request added.
  t.b.Register({Tensor("late")});
  EXPECT_EQ(t.a.Last<LaneLayout>().first, 2u);
  t.a.Register({Tensor("late"), Tensor("later")});
  answer = t.a.Last<LaneLayout>();
  EXPECT_EQ(answer.first, 3u);
  EXPECT_EQ(answer.tensors, (std::vector<TensorSpec>{Tensor("later")}));
  EXPECT_EQ(t.a.lane().tensors.size(), 4u);

  // Another lane and a new session need the whole layout.
  t.a.Register({Tensor("x")}, "other");
  t.b.Register({Tensor("x")}, "other");
  EXPECT_EQ(t.b.Last<LaneLayout>().first, 0u);
  EXPECT_EQ(t.b.Last<LaneLayout>().tensors.size(), 1u);
  t.a.Cut();
  const size_t before = t.a.Count<LaneLayout>();
  t.a.Connect();  // It also registers its lanes again.
  EXPECT_EQ(t.a.Count<LaneLayout>(), before + 2);
  EXPECT_EQ(t.a.Last<LaneLayout>().first, 0u);
  t.a.Register({Tensor("w")});
  EXPECT_EQ(t.a.Last<LaneLayout>().first, 4u);

  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(LayoutTest, ResultsWaitUntilTheTensorIsKnown) {
  Three t;
  t.c.sees_layouts = false;
  t.a.Register({Tensor("late")});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.c.Contribute(Spec(ReduceOp::kAverage), kLane, {2});
  EXPECT_EQ(t.c.lane().results.count({2, 0}), 0u);
  EXPECT_EQ(t.a.lane().last, 0u);
  t.c.Send(LayoutSeen{0, 3});
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.c.lane().delivered[1].at({2, 0}), (Reduced{3, 3}));
  t.c.Send(LayoutSeen{0, 2});   // An older version than the known one.
  t.c.Send(LayoutSeen{0, 99});  // A version that does not exist.
  t.c.Send(LayoutSeen{9, 1});
  EXPECT_EQ(t.c.rejected(), ErrorCode::kNotFound);
}

TEST(LayoutTest, Fault_W10_AShapeThatDiffersIsRefusedAndTheOthersGoOn) {
  Three t;
  t.c.Register({Tensor("w", 2), Tensor("fine")});
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
  EXPECT_THAT(t.c.Last<Rejected>().error.text,
              HasSubstr("worker c registers tensor w as f32[131072], but the job has f32[65536]"));
  EXPECT_EQ(t.c.lane().tensors.size(), 3u) << "what fits is registered";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(LayoutTest, ALaneIsOfOneKind) {
  Three t;
  t.c.Register({Tensor("x")}, kLane, LaneKind::kCall);
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
}

TEST(LayoutTest, EmptyTensorsNeedNoBytes) {
  Cluster t(Settings(1, 1, 1));
  t.Worker("a").Connect();
  t["a"].Register({{"none", DType::kF32, {0, 5}}, Tensor("w"), {"zero", DType::kF32, {0}}});
  t["a"].Ready();
  t["a"].Begin();
  t["a"].PushTensor(1);
  basin::Commit commit = t["a"].MakeCommit();
  for (size_t i = 0; i < 3; ++i) commit.present.Set(i);
  t["a"].Send(commit);
  EXPECT_EQ(t["a"].verdict().value.outcome, Outcome::kCommitted);
  EXPECT_TRUE(HasResult(t["a"].verdict().value, 0)) << "it has a result: nothing";
}

}  // namespace
}  // namespace basin::aggregator
