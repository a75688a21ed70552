// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trainer's side: deadlines, wrong calls, ownership of memory, and many threads at once.

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

bool Waits(const Runner& runner) {
  const auto& round = runner.core().lanes()[0].round;
  return round.has_value() && round->wait().until().has_value();
}

TEST(Calls, ADeadlineThatPassesIsNoOutcomeAndALaterWaitIs) {
  Rig rig;
  rig.Join();
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(4);
  auto waiting = std::async(std::launch::async,
                            [&] { return rig.worker->Wait(rig.lane.lane, absl::Seconds(30)); });
  rig.Until(Waits);
  EXPECT_EQ(CodeOf(rig.worker->Wait(rig.lane.lane, absl::ZeroDuration()).status()),
            ErrorCode::kFailedPrecondition);  // One thread at a time.
  rig.clock.Advance(absl::Seconds(30));
  EXPECT_EQ(CodeOf(waiting.get().status()), ErrorCode::kOutcomeUnknown);
  BeginRound begin;
  begin.lane = rig.lane.lane;
  begin.spec.op = ReduceOp::kSum;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kFailedPrecondition);

  rig.SendResults(Results(rig), 1);
  rig.Conclude(rig.ValueOf(Results(rig)), 1, 0);
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(CodeOf(rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()).status()),
            ErrorCode::kFailedPrecondition);  // An outcome is delivered once.
}

TEST(Calls, ADeadlineThatPassesSaysThatNoDataStreamIsOpen) {
  Rig rig(2);
  rig.Join();
  const auto trouble = [&] { return rig.worker->view().stream_trouble; };
  const auto until = [&](const std::string& text) {
    rig.Until([&](const Runner&) { return trouble().find(text) != std::string::npos; });
  };
  rig.aggregator.LoseStream(1);
  rig.aggregator.RefuseStream(1, rig.token);
  EXPECT_EQ(trouble(), "") << "the other one is open";
  rig.aggregator.LoseStream(0);
  until("connection reset");
  rig.aggregator.RefuseStream(0, rig.token);
  until("connection refused");
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  auto waiting = std::async(std::launch::async,
                            [&] { return rig.worker->Wait(rig.lane.lane, absl::Seconds(30)); });
  rig.Until(Waits);
  rig.clock.Advance(absl::Seconds(30));
  const absl::Status status = waiting.get().status();
  EXPECT_EQ(CodeOf(status), ErrorCode::kOutcomeUnknown);
  EXPECT_NE(status.message().find("no verdict arrived in time; no data stream to the aggregator is "
                                  "open: connection refused (UNAVAILABLE). The round continues"),
            std::string::npos)
      << status;
  rig.TakeStreams(rig.token);
  rig.Until([&](const Runner&) { return trouble().empty(); });
  EXPECT_EQ(rig.TakeContribution(4).at(1), rig.gradients.at(1));
}

TEST(Calls, WrongOnesAreRefusedWithAReason) {
  Rig rig;
  BeginRound begin;
  begin.lane = 7;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kInvalidArgument);  // No op.
  begin.spec.op = ReduceOp::kSum;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kNotFound);
  begin.spec.prescale = 0;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kInvalidArgument);
  begin.spec.prescale = 1;
  begin.lane = rig.lane.lane;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kFailedPrecondition);  // No member yet.
  EXPECT_EQ(CodeOf(rig.worker->Push(7, {0, nullptr, 0})), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(rig.worker->Push(rig.lane.lane, {99, nullptr, 0})), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(rig.worker->Skip(rig.lane.lane, 99)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(rig.worker->Commit(rig.lane.lane)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(rig.worker->Commit(7)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(rig.worker->Wait(7, absl::ZeroDuration()).status()), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(rig.worker->Register("g", LaneKind::kGradient, {F32("a", 1)}).status()),
            ErrorCode::kMismatch);
  EXPECT_EQ(CodeOf(rig.worker->Register("g\n", LaneKind::kGradient, {}).status()),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(rig.worker->Register("h", LaneKind::kGradient, {F32("", 1)}).status()),
            ErrorCode::kInvalidArgument);
  rig.Join();
  rig.Begin();
  EXPECT_EQ(CodeOf(rig.worker->Wait(rig.lane.lane, absl::ZeroDuration()).status()),
            ErrorCode::kFailedPrecondition);
  rig.PushAll();
  const std::string& again = rig.gradients[1];
  EXPECT_EQ(CodeOf(rig.worker->Push(rig.lane.lane, {1, again.data(), again.size() - 1})),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {1, again.data(), again.size()}).ok());
  const absl::Status twice = rig.worker->Commit(rig.lane.lane);
  EXPECT_EQ(CodeOf(twice), ErrorCode::kFailedPrecondition);
  EXPECT_NE(twice.message().find("tensor b was pushed already"), std::string::npos) << twice;
  // The first push stands, whatever came second.
  EXPECT_EQ(rig.TakeContribution(4).at(1), rig.gradients.at(1));
  EXPECT_TRUE(rig.worker->Withdraw({rig.lane.lane, "pushed twice"}).ok());

  WorkerOptions options;
  options.core.job = "no job / has this name";
  options.core.worker = "w0";
  EXPECT_EQ(CodeOf(Worker::Connect(options, rig.aggregator, rig.clock).status()),
            ErrorCode::kInvalidArgument);
}

TEST(Calls, MembershipThatDoesNotComeSaysWhy) {
  Rig rig;
  rig.Connect();
  auto waiting =
      std::async(std::launch::async, [&] { return rig.worker->AwaitMember(absl::Minutes(5)); });
  // Advances until the wait, which began at some moment of the clock, is over.
  while (waiting.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    rig.clock.Advance(absl::Minutes(1));
  }
  const absl::Status status = waiting.get();
  EXPECT_EQ(CodeOf(status), ErrorCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("job job"), std::string::npos) << status;
}

TEST(Calls, AWorkerThatLeavesDoesNotWaitForMembership) {
  Rig rig;
  rig.Connect();
  auto waiting = std::async(std::launch::async,
                            [&] { return rig.worker->AwaitMember(absl::InfiniteDuration()); });
  ASSERT_TRUE(rig.worker->Call(WillLeave{}).ok());
  const absl::Status status = waiting.get();
  EXPECT_EQ(CodeOf(status), ErrorCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("is about to leave"), std::string::npos) << status;
}

TEST(Calls, TheOutcomeIsToldWhenTheTransportHasLetGo) {
  Rig rig;
  rig.Join();
  rig.Begin();
  std::map<TensorHandle, std::unique_ptr<std::string>> lent;
  for (TensorHandle tensor = 0; tensor < 3; ++tensor) {
    lent[tensor] = std::make_unique<std::string>(rig.gradients[tensor]);
    ASSERT_TRUE(
        rig.worker->Push(rig.lane.lane, {tensor, lent[tensor]->data(), lent[tensor]->size()}).ok());
  }
  std::promise<bool> told;
  std::future<bool> committed = told.get_future();
  ASSERT_TRUE(rig.worker
                  ->Commit(rig.lane.lane,
                           [&](const RoundOutcome& ended) {
                             // The memory belongs to the trainer again: any access reads freed
                             // memory.
                             lent.clear();
                             told.set_value(ended.ok());
                           })
                  .ok());
  rig.aggregator.AwaitQueued(3);
  // This looks as if another worker's loss had ended the round before these frames were written.
  rig.SendResults(Results(rig), 1);
  rig.Conclude(rig.ValueOf(Results(rig)), 1, 0);
  rig.Until([](const Runner& runner) { return runner.core().lanes()[0].last_verdict == 1; });
  EXPECT_EQ(committed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(rig.TakeContribution(4).at(0), rig.gradients.at(0));
  EXPECT_TRUE(committed.get());
  EXPECT_TRUE(lent.empty());
}

TEST(Calls, AStreamThatDoesNotLetGoIsClosed) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto lent = std::make_unique<std::string>(rig.gradients[0]);
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, lent->data(), lent->size()}).ok());
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.aggregator.AwaitQueued(2);
  auto results = Results(rig);
  rig.SendResults(results, 1);
  rig.Conclude(rig.ValueOf(results), 1, 0);
  rig.Until([](const Runner& runner) { return runner.core().lanes()[0].last_verdict == 1; });
  auto waiting = std::async(std::launch::async, [&] {
    return rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  });
  rig.clock.Advance(absl::Milliseconds(200));
  rig.aggregator.AwaitStreamClosed(0);
  const RoundOutcome outcome = waiting.get();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  lent.reset();
  rig.TakeStreams(rig.token);  // Opened again, for the next round.
  rig.Begin();
  rig.PushAll();
  EXPECT_EQ(rig.TakeContribution(4, 2).at(1), rig.gradients.at(1));
}

TEST(Calls, AbandonGivesTheMemoryBackAndTheIncarnationUp) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto lent = std::make_unique<std::string>(rig.gradients[0]);
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, lent->data(), lent->size()}).ok());
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.aggregator.AwaitQueued(2);
  const absl::Status status = rig.worker->Abandon();
  EXPECT_TRUE(status.ok()) << status;
  lent.reset();
  rig.aggregator.Await<Abandon>();
  EXPECT_EQ(CodeOf(rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration()).status()),
            ErrorCode::kEvicted);
  EXPECT_EQ(rig.worker->view().role, Role::kJoiner);
}

TEST(Calls, AbandonGivesTheMemoryBackOfAWorkerThatIsOver) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto lent = std::make_unique<std::string>(rig.gradients[0]);
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, lent->data(), lent->size()}).ok());
  std::optional<OutgoingFrame> frame = rig.aggregator.HoldFrame();
  rig.aggregator.Send(Ended{{ErrorCode::kSuperseded, "a newer process has this id"}});
  auto abandoning = std::async(std::launch::async, [&] { return rig.worker->Abandon(); });
  rig.Until([](const Runner& runner) { return runner.idle_awaited(); });
  EXPECT_EQ(abandoning.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  frame.reset();
  EXPECT_EQ(CodeOf(abandoning.get()), ErrorCode::kSuperseded);
  lent.reset();
}

TEST(Calls, TheDestructorGivesTheMemoryBack) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto lent = std::make_unique<std::string>(rig.gradients[0]);
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, {0, lent->data(), lent->size()}).ok());
  rig.aggregator.AwaitQueued(2);
  std::thread reader([&] { rig.aggregator.AwaitFrame(); });
  reader.join();
  rig.worker.reset();
  lent.reset();
  EXPECT_EQ(rig.aggregator.queued(), 0u);
  rig.aggregator.AwaitSessionClosed();
}

TEST(Calls, LeaveIsSaidAndAnswered) {
  Rig rig;
  rig.Join();
  rig.Begin();
  auto leaving = std::async(std::launch::async, [&] { return rig.worker->Leave(); });
  rig.aggregator.Await<Leave>();
  rig.aggregator.LoseSession();  // The aggregator confirms it.
  const absl::Status status = leaving.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(rig.worker->view().left);
  EXPECT_EQ(CodeOf(rig.worker->Commit(rig.lane.lane)), ErrorCode::kEvicted);
  EXPECT_EQ(CodeOf(rig.worker->Call(DeclareReady{})), ErrorCode::kFailedPrecondition);
}

TEST(Calls, BusyFinishedAndProgressAreSaid) {
  Rig rig;
  rig.Join();
  ASSERT_TRUE(rig.worker->Call(SetBusy{"evaluates", absl::Seconds(9)}).ok());
  const basin::Busy busy = rig.aggregator.Await<basin::Busy>();
  EXPECT_EQ(busy.reason, "evaluates");
  EXPECT_EQ(busy.expected, absl::Seconds(9));
  ASSERT_TRUE(rig.worker->Call(Progress{}).ok());
  ASSERT_TRUE(rig.worker->Call(Finish{}).ok());
  rig.aggregator.Await<basin::Finished>();
  BeginRound begin;
  begin.lane = rig.lane.lane;
  begin.spec.op = ReduceOp::kSum;
  EXPECT_EQ(CodeOf(rig.worker->Begin(begin)), ErrorCode::kFailedPrecondition);
}

TEST(Calls, ACallbackMayCallWhatDoesNotWait) {
  Rig rig;
  rig.Join();
  rig.Begin();
  std::promise<ErrorCode> waited;
  std::promise<bool> posted;
  ASSERT_TRUE(rig.worker
                  ->Withdraw({rig.lane.lane, "test"},
                             [&](const RoundOutcome&) {
                               waited.set_value(CodeOf(rig.worker->Call(DeclareReady{})));
                               posted.set_value(rig.worker->Skip(rig.lane.lane, 0).ok());
                             })
                  .ok());
  RoundValue value;
  value.outcome = Outcome::kAborted;
  rig.Conclude(value, 1, 0);
  EXPECT_EQ(waited.get_future().get(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(posted.get_future().get());
}

// Each thread has a lane of its own, and the aggregator answers all of them.
TEST(Calls, ManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr RoundNumber kRounds = 5;
  Rig rig(2);
  rig.Join();
  std::vector<Registration> lanes;
  for (int i = 0; i < kThreads; ++i) {
    const std::string name = "lane" + std::to_string(i);
    lanes.push_back(*rig.worker->Register(name, LaneKind::kGradient, {F32("t", 1000)}));
    const auto index = static_cast<LaneIndex>(10 + i);
    EXPECT_EQ(rig.aggregator.Await<basin::Register>().lane, name);
    rig.aggregator.Send(
        LaneLayout{index, name, LaneKind::kGradient, 0, {F32("t", 1000)}, 1, 64 * kChunkBytes});
    rig.aggregator.Await<LayoutSeen>();
  }
  std::vector<std::thread> trainers;
  trainers.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    trainers.emplace_back([&rig, &lanes, i] {
      for (RoundNumber round = 1; round <= kRounds; ++round) {
        // Freed as soon as the outcome is delivered.
        const std::string gradient = Noise(4000, 1000 * static_cast<uint64_t>(i) + round);
        BeginRound begin;
        begin.lane = lanes[static_cast<size_t>(i)].lane;
        begin.spec.op = ReduceOp::kSum;
        ASSERT_TRUE(rig.worker->Begin(begin).ok());
        ASSERT_TRUE(rig.worker->Push(begin.lane, {0, gradient.data(), gradient.size()}).ok());
        ASSERT_TRUE(rig.worker->Commit(begin.lane).ok());
        ASSERT_TRUE(rig.worker->Call(Progress{}).ok());
        const RoundOutcome outcome = rig.worker->Wait(begin.lane, absl::InfiniteDuration());
        EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kRoundAborted);
        EXPECT_TRUE(rig.worker->view().rank.has_value());
      }
    });
  }
  std::map<LaneIndex, uint64_t> chains;
  RoundValue value;
  value.outcome = Outcome::kAborted;
  for (uint64_t turn = 0; turn < kThreads * kRounds; ++turn) {
    const TakenFrame frame = rig.aggregator.AwaitFrame();
    const auto& header = std::get<wire::ContributionHeader>(frame.header.kind);
    EXPECT_EQ(frame.payload, Noise(4000, 1000 * (header.lane - 10) + header.round));
    // The commit of this lane, or of another.
    const Commit commit = rig.aggregator.Await<Commit>();
    rig.aggregator.Send(Prepared{commit.lane, commit.round, {kTerm, 1}, {kTerm, 1}, value});
    const VerdictRecord record = rig.RecordOf(value, commit.round, chains[commit.lane]);
    chains[commit.lane] = record.chain;
    rig.aggregator.Send(Verdict{commit.lane, record, std::nullopt});
  }
  for (std::thread& trainer : trainers) trainer.join();
}

}  // namespace
}  // namespace basin::client
