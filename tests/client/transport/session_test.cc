// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Connections that are lost, results that arrive broken, and the end of an incarnation.

#include <future>

#include <gtest/gtest.h>

#include "proto/wire/session.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

void ExpectDelivered(const Rig& rig, const RoundOutcome& outcome) {
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (const auto& [tensor, expected] : Results(rig)) {
    std::string bytes(expected.size(), '\0');
    ASSERT_TRUE((*outcome)->CopyTo(tensor, bytes.data(), bytes.size()).ok());
    EXPECT_EQ(bytes, expected);
  }
}

TEST(Session, IsOpenedAgainAfterRefusals) {
  Rig rig;
  for (int refusal = 0; refusal < 2; ++refusal) {
    rig.aggregator.RefuseSession();
    // Not at once, but after a backoff.
    rig.Until([&](const Runner& runner) {
      return !runner.core().trouble().text.empty() && runner.NextDeadline() > rig.clock.Now();
    });
    rig.clock.Advance(absl::Seconds(2));
  }
  EXPECT_NE(rig.worker->view().trouble.text.find("connection refused"), std::string::npos);
  rig.Join();
  EXPECT_EQ(rig.worker->view().rank, 0u);
  EXPECT_EQ(rig.worker->view().membership, rig.membership);
  EXPECT_EQ(rig.worker->view().joins, 1u);
}

TEST(Session, BeatsWhenItIsTime) {
  Rig rig;
  rig.Join();
  rig.Until([&](const Runner& runner) { return runner.NextDeadline() > rig.clock.Now(); });
  rig.aggregator.passed.clear();
  rig.clock.Advance(absl::Milliseconds(500));
  EXPECT_GT(rig.aggregator.Await<Heartbeat>().progress, 0u);
}

TEST(Session, ALostOneIsRepeatedAndWhatIsMissingIsSentAgain) {
  Rig rig(2);
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.aggregator.AwaitQueued(3);
  rig.aggregator.LoseSession();
  rig.aggregator.AcceptSession();
  EXPECT_EQ(rig.aggregator.queued(), 0u);  // The streams of the old session release it.
  const Hello hello = rig.aggregator.Await<Hello>();
  EXPECT_EQ(hello.incarnation, (Incarnation{kTerm, 1}));
  EXPECT_EQ(hello.lanes.at(0).begun, 1u);
  // b and the first chunk of a had arrived.
  Welcome welcome = rig.WelcomeBack(1);
  welcome.open = {{kLane, 1, RoundPhase::kCollect, {kTerm, 1}, {{0, 0, 1}, {1, 0, 1}}, rig.window}};
  rig.aggregator.Send(welcome);
  rig.TakeStreams(welcome.token);
  EXPECT_EQ(rig.aggregator.Await<Begin>().round, 1u);
  const std::map<TensorIndex, std::string> again = rig.TakeContribution(2);
  EXPECT_EQ(again.at(0).substr(kChunkBytes), rig.gradients.at(0).substr(kChunkBytes));
  EXPECT_EQ(again.count(1), 0u);
  EXPECT_EQ(rig.aggregator.Await<Commit>().chunks, 4u);
  rig.SendResults(Results(rig), 1);
  rig.Conclude(rig.ValueOf(Results(rig)), 1, 0);
  ExpectDelivered(rig, rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()));
}

// With more tensors than one gRPC message can describe.
TEST(Session, ALongHelloIsSaidInPieces) {
  Rig rig;
  rig.Join();
  LaneLayout grown{kLane, "g", LaneKind::kGradient, 3, {}, 1, rig.window};
  for (uint32_t i = 0; i < 20000; ++i) {
    std::string name = std::to_string(i) + "/";
    name.resize(250, 'x');
    grown.tensors.push_back(F32(name, 1));
  }
  rig.aggregator.Send(grown);
  EXPECT_EQ(rig.aggregator.Await<LayoutSeen>().version, 20003u);
  rig.aggregator.LoseSession();
  rig.aggregator.AcceptSession();
  const Hello hello = rig.aggregator.Await<Hello>();
  ASSERT_EQ(hello.lanes.at(0).layout.size(), 20003u);
  EXPECT_EQ(hello.lanes.at(0).layout.back(), grown.tensors.back());
  EXPECT_GT(wire::Encode(ToAggregator(hello))->size(), kMaxMessageBytes);
  rig.aggregator.Send(rig.WelcomeBack(1));
  rig.TakeStreams(rig.token + 1);
  EXPECT_EQ(rig.aggregator.Await<basin::Register>().tensors, rig.model);
  rig.Until([&](const Runner&) { return rig.aggregator.unconsumed() == 0; });
}

TEST(Session, ALostDataStreamIsOpenedAgainAndItsFramesAreSentAgain) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  rig.aggregator.AwaitQueued(3);
  rig.aggregator.LoseStream(0);
  rig.TakeStreams(rig.token);
  const auto pushed = rig.TakeContribution(4);
  EXPECT_EQ(pushed.at(0), rig.gradients.at(0));
  EXPECT_EQ(pushed.at(1), rig.gradients.at(1));
}

TEST(Session, WhatAnOldConnectionSaysIsIgnored) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.aggregator.LoseSession();
  rig.aggregator.LoseSession();  // Reports it twice.
  rig.aggregator.AcceptSession();
  rig.aggregator.Await<Hello>();
  rig.aggregator.Send(rig.WelcomeBack(1));
  rig.TakeStreams(rig.token + 1);
  rig.PushAll();
  EXPECT_EQ(rig.TakeContribution(4).at(1), rig.gradients.at(1));
}

TEST(Session, ABrokenResultIsAskedForAgain) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(4);
  const auto results = Results(rig);
  std::string broken = results.at(1);
  broken[42] = static_cast<char>(broken[42] ^ 1);
  rig.aggregator.SendResult(0, 1, {kTerm, 1}, {1, 0, 1}, "b", broken, results.at(1));
  auto rest = results;
  rest.erase(1);
  rig.SendResults(rest, 1);
  const RoundValue value = rig.ValueOf(results);
  rig.aggregator.Send(Prepared{kLane, 1, {kTerm, 1}, {kTerm, 1}, value});
  const Need need = rig.aggregator.Await<Need>();
  EXPECT_EQ(rig.aggregator.Passed<Staged>(), 0u);
  uint64_t chunks = 0;
  for (const ChunkRange& range : need.ranges) chunks += range.count;
  EXPECT_EQ(chunks, 4u);
  rig.Until([](const Runner& runner) { return runner.counters().corrupt_chunks == 1; });
  rig.SendResults(results, 1);
  EXPECT_EQ(rig.aggregator.Await<Staged>().round, 1u);
  rig.aggregator.Send(Verdict{kLane, rig.RecordOf(value, 1, 0), std::nullopt});
  ExpectDelivered(rig, rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()));
}

TEST(Session, AResultOfTheWrongSizeEndsTheSession) {
  Rig rig;
  rig.Join();
  rig.Begin();
  const std::string bytes = Noise(96, 1);  // b has 100.
  rig.aggregator.SendResult(0, 1, {kTerm, 1}, {1, 0, 1}, "b", bytes, bytes);
  rig.aggregator.AwaitSessionClosed();
}

TEST(Session, AnEvictedWorkerFailsItsRoundAndRejoins) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  rig.aggregator.AwaitQueued(3);
  // A worker joins, and this worker serves it, but not after it was evicted itself.
  Membership grown = rig.membership;
  ++grown.generation.counter;
  std::vector<WorkerId> members = grown.members;
  members.push_back("w9");
  grown.members = members;
  rig.aggregator.Send(MembershipChanged{grown, Role::kMember, "w0", {}});
  rig.aggregator.Send(Ended{{ErrorCode::kEvicted, "lost for 5 s"}});
  rig.aggregator.AcceptSession();
  EXPECT_EQ(rig.aggregator.Await<Hello>().membership.generation, Generation());
  const absl::Status commit = rig.worker->Commit(rig.lane.lane);
  EXPECT_EQ(CodeOf(commit), ErrorCode::kEvicted) << commit;
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kEvicted);
  const absl::Status member = rig.worker->AwaitMember(absl::InfiniteDuration());
  EXPECT_EQ(CodeOf(member), ErrorCode::kEvicted) << "it is not ready to be one: " << member;
  EXPECT_EQ(rig.aggregator.queued(), 0u);
  EXPECT_FALSE(rig.worker->view().rank.has_value());
  EXPECT_FALSE(rig.worker->view().donor.has_value());

  Welcome welcome = rig.WelcomeBack(2);
  welcome.role = Role::kJoiner;
  welcome.incarnation = {kTerm, 9};
  rig.aggregator.Send(welcome);
  rig.TakeStreams(welcome.token);
  rig.membership.generation.counter = 2;
  rig.membership.members = {{"w1", "w0"}};
  rig.Admit(2, 7);
  EXPECT_EQ(rig.worker->view().rank, 1u);
  EXPECT_EQ(rig.worker->view().joins, 2u);
  rig.Begin();
  rig.PushAll();
  EXPECT_EQ(rig.TakeContribution(4, 2).at(0), rig.gradients.at(0));
}

TEST(Session, WhoHasLeftOrIsSupersededIsNoMember) {
  for (const bool leaves : {true, false}) {
    Rig rig;
    rig.Join();
    ErrorCode code = ErrorCode::kSuperseded;
    if (leaves) {
      code = ErrorCode::kFailedPrecondition;
      auto leaving = std::async(std::launch::async, [&] { return rig.worker->Leave(); });
      rig.aggregator.Await<Leave>();
      rig.aggregator.LoseSession();  // The aggregator confirms it.
      ASSERT_TRUE(leaving.get().ok());
    } else {
      rig.aggregator.Send(Ended{{code, "a newer process has this id"}});
    }
    EXPECT_EQ(CodeOf(rig.worker->AwaitMember(absl::InfiniteDuration())), code);
    const JobView view = rig.worker->view();
    EXPECT_EQ(view.role, Role::kJoiner);
    EXPECT_FALSE(view.rank.has_value());
    EXPECT_EQ(view.membership, rig.membership) << "the others are those that they were";
  }
}

TEST(Session, SupersededIsFatal) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto waiting = std::async(std::launch::async, [&] {
    return rig.worker->values().Get({"g", "a", 1}, std::nullopt, std::nullopt,
                                    absl::InfiniteDuration());
  });
  rig.aggregator.Await<Get>();
  rig.aggregator.Send(Ended{{ErrorCode::kSuperseded, "a newer process has this id"}});
  EXPECT_EQ(CodeOf(waiting.get().status()), ErrorCode::kSuperseded);
  EXPECT_EQ(CodeOf(rig.worker->Commit(rig.lane.lane)), ErrorCode::kSuperseded);
  EXPECT_EQ(rig.worker->view().fatal->code, ErrorCode::kSuperseded);
  EXPECT_EQ(CodeOf(rig.worker->Call(DeclareReady{})), ErrorCode::kSuperseded);
  rig.aggregator.AwaitSessionClosed();
}

}  // namespace
}  // namespace basin::client
