// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Outcomes of calls that nobody has taken when their names are let go.

#include "client/transport/left_outcomes.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

RoundOutcome Failed(const std::string& text) { return absl::UnavailableError(text); }

TEST(LeftOutcomes, AreTakenOnce) {
  LeftOutcomes left;
  EXPECT_EQ(left.Keep(3, "call/a", Failed("a")), std::nullopt);
  EXPECT_EQ(left.Keep(4, "call/b", Failed("b")), std::nullopt);
  EXPECT_EQ(left.Named("call/a"), 3u);
  ASSERT_NE(left.Find(3), nullptr);
  EXPECT_EQ(left.Take(3)->status().message(), "a");
  EXPECT_FALSE(left.Take(3).has_value());
  EXPECT_EQ(left.Named("call/a"), std::nullopt);
  EXPECT_EQ(left.size(), 1u);
}

TEST(LeftOutcomes, AreThoseOfTheLastCallsWithTheirNames) {
  LeftOutcomes left;
  left.Keep(3, "call/a", Failed("before"));
  EXPECT_EQ(left.Keep(5, "call/a", Failed("last")), 3u);
  EXPECT_EQ(left.Named("call/a"), 5u);
  EXPECT_EQ(left.Find(3), nullptr);
}

TEST(LeftOutcomes, AreBounded) {
  LeftOutcomes left;
  LaneHandle handle = 0;
  for (; handle < kMostLeftOutcomes; ++handle) {
    ASSERT_EQ(left.Keep(handle, absl::StrCat("call/", handle), Failed("")), std::nullopt);
  }
  EXPECT_EQ(left.Keep(handle, "call/one more", Failed("")), 0u);
  EXPECT_EQ(left.size(), kMostLeftOutcomes);
  EXPECT_EQ(left.Named("call/0"), std::nullopt);
}

// A worker whose call has ended and was let go.
struct LetGoRig : Rig {
  LetGoRig() {
    Join();
    call = Register();
    BeginCall();
    EXPECT_TRUE(worker->Commit(call.lane).ok());
    EXPECT_EQ(aggregator.Await<Commit>().lane, index);
    RoundValue value;
    value.outcome = Outcome::kAborted;
    aggregator.Send(Prepared{index, 1, {kTerm, 1}, {kTerm, 1}, value});
    aggregator.Send(Verdict{index, RecordOf(value, 1, 0), std::nullopt});
    aggregator.Send(LetGo{index, 1});
    EXPECT_EQ(aggregator.Await<LetGo>(), (LetGo{index, 1}));
    aggregator.Send(LaneGone{index});
    Until([](const Runner& runner) { return runner.core().FindLane("call/x") == nullptr; });
  }
  Registration Register() {
    absl::StatusOr<Registration> registered =
        worker->Register("call/x", LaneKind::kCall, {F32("t", 10)});
    EXPECT_TRUE(registered.ok()) << registered.status();
    EXPECT_EQ(aggregator.Await<basin::Register>().lane, "call/x");
    ++index;
    aggregator.Send(
        LaneLayout{index, "call/x", LaneKind::kCall, 0, {F32("t", 10)}, 1, 64 * kChunkBytes});
    aggregator.Await<LayoutSeen>();
    return *registered;
  }
  void BeginCall() {
    BeginRound begin;
    begin.lane = call.lane;
    begin.spec.op = ReduceOp::kSum;
    const absl::Status status = worker->Begin(begin);
    EXPECT_TRUE(status.ok()) << status;
  }
  ErrorCode Wait(LaneHandle handle) {
    return CodeOf(worker->Wait(handle, absl::InfiniteDuration()).status());
  }
  LaneIndex index = 20;
  Registration call;
};

TEST(LeftOutcomes, OfACallThatWasLetGoCanBeTaken) {
  LetGoRig rig;
  const LaneHandle before = rig.call.lane;
  EXPECT_EQ(*rig.worker->Outstanding(before), true);
  EXPECT_EQ(*rig.worker->Left("call/x"), before);
  rig.call = rig.Register();
  EXPECT_NE(rig.call.lane, before);
  EXPECT_EQ(rig.Wait(before), ErrorCode::kRoundAborted);
  EXPECT_EQ(rig.Wait(before), ErrorCode::kNotFound) << "an outcome is delivered once";
  EXPECT_EQ(*rig.worker->Outstanding(before), false);
  EXPECT_EQ(*rig.worker->Left("call/x"), std::nullopt);
}

TEST(LeftOutcomes, AreDroppedWhenTheNextCallWithTheNameBegins) {
  LetGoRig rig;
  const LaneHandle before = rig.call.lane;
  rig.call = rig.Register();
  rig.BeginCall();
  EXPECT_EQ(rig.Wait(before), ErrorCode::kNotFound);
  EXPECT_EQ(*rig.worker->Outstanding(rig.call.lane), true) << "that of the new call is not taken";
}

}  // namespace
}  // namespace basin::client
