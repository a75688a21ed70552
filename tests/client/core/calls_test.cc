// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trainer's calls: registration, the mapping of handles to indexes, and wrong calls. The client
// refuses each wrong call with a sentence and changes nothing.

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RegisterTest, OnlyNewTensorsAreSent) {
  Harness worker;
  worker.Connect();
  EXPECT_EQ(worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("a", 1), F32("b", 2)}})
                .OneSent<Register>()
                .tensors.size(),
            2u);
  const Actions more =
      worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("b", 2), F32("c", 3)}});
  EXPECT_EQ(more.OneSent<Register>(), (Register{"g", LaneKind::kGradient, {F32("c", 3)}}));
  EXPECT_EQ(worker.lane().tensors[2].spec.name, "c") << "handles are given in order";
}

TEST(RegisterTest, ALaneWithoutTensorsIsNamed) {
  Harness worker;
  worker.Connect();
  EXPECT_EQ(worker.Do(RegisterTensors{"call/x", LaneKind::kCall, {}}).OneSent<Register>(),
            (Register{"call/x", LaneKind::kCall, {}}));
}

TEST(RegisterTest, LargeRegistrationsAreCut) {
  Config config = TestConfig();
  config.register_batch = 2;
  Harness worker(config);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  const std::vector<Register> sent = worker.Connect().Sent<Register>();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].tensors.size(), 2u);
  EXPECT_EQ(sent[1].tensors.size(), 1u);
}

TEST(RegisterTest, HandlesAreMappedByName) {
  Harness worker;
  worker.Connect();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("mine", 8), F32("ours", 9)}});
  LaneLayout layout = worker.MakeLayout();
  layout.tensors = {F32("theirs", 1), F32("ours", 9), F32("mine", 8)};
  EXPECT_EQ(worker.Receive(layout).OneSent<LayoutSeen>(), (LayoutSeen{kLane, 3}));
  EXPECT_EQ(worker.lane().tensors[0].index, TensorIndex{2});
  EXPECT_EQ(worker.lane().tensors[1].index, TensorIndex{1});
  // Another worker has put the tensor into the layout before this one registers it.
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("theirs", 1)}});
  EXPECT_EQ(worker.lane().tensors[2].index, TensorIndex{0});
  // The client acknowledges a layout that grows with its new version.
  layout.first = 3;
  layout.tensors = {F32("more", 1)};
  EXPECT_EQ(worker.Receive(layout).OneSent<LayoutSeen>(), (LayoutSeen{kLane, 4}));
}

TEST(RegisterTest, LayoutsOfLanesThatAreNotRegisteredHereAreIgnored) {
  Harness worker;
  worker.Connect();
  EXPECT_TRUE(worker.Receive(worker.MakeLayout()).all.empty());
}

// Two other workers have registered tensors of the lane, one of them before this worker registers
// it.
TEST(RegisterTest, WhatOthersAddBeforeTheAnswerIsNoContradiction) {
  Harness worker;
  worker.Connect();
  LaneLayout layout = worker.MakeLayout();
  layout.tensors = {F32("theirs", 1), F32("others", 2)};
  EXPECT_TRUE(worker.Receive(layout).all.empty());
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {}});
  LaneLayout more = layout;
  more.first = 2;
  more.tensors = {F32("more", 3)};
  EXPECT_TRUE(worker.Receive(more).all.empty());
  layout.tensors.push_back(F32("more", 3));
  EXPECT_EQ(worker.Receive(layout).OneSent<LayoutSeen>(), (LayoutSeen{kLane, 3}));
}

// The aggregator was replaced before the run had members, and the new one does not know the last
// tensors yet. The client uses the new indexes once it has received them.
TEST(RegisterTest, AnotherAggregatorMayHaveFewerTensors) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  ASSERT_EQ(worker.lane().layout.version(), 3u);
  worker.Do(SessionDown{});
  worker.Do(SessionUp{});
  worker.Receive(worker.MakeWelcome());
  LaneLayout layout = worker.MakeLayout();
  layout.tensors.Own().pop_back();
  EXPECT_EQ(worker.Receive(layout).OneSent<LayoutSeen>(), (LayoutSeen{kLane, 2}));
  EXPECT_EQ(worker.lane().tensors[2].index, std::nullopt);
}

TEST(RegisterTest, ALayoutThatContradictsItselfEndsTheSession) {
  Harness worker;
  worker.BecomeMember();
  LaneLayout layout = worker.MakeLayout();
  layout.tensors.Own()[0] = F32("a", 5);
  const Actions actions = worker.Receive(layout);
  EXPECT_TRUE(actions.Has<CloseSession>());
  EXPECT_GT(actions.One<OpenSession>().delay, absl::ZeroDuration());
  EXPECT_TRUE(worker.client.has_history());
}

TEST(RegisterTest, RegistrationsThatTheAggregatorRefusesAreTold) {
  Harness worker;
  worker.BecomeMember();
  const Error error{ErrorCode::kMismatch, "tensor a differs"};
  EXPECT_EQ(worker.Receive(Rejected{error, std::nullopt, 0}).One<Refused>().error, error);
}

// A worker that only received the error would wait for a verdict for ever.
TEST(RegisterTest, ALaneThatTheAggregatorHasNoRoomForFailsItsRounds) {
  Harness worker;
  worker.BecomeMember();
  BeginRound begin;
  begin.lane = 1;
  worker.Do(RegisterTensors{"late", LaneKind::kGradient, {F32("d", 4), F32("e", 4)}});
  worker.Do(begin);
  worker.Do(PushTensor{1, 0, 0});
  const Rejected none{{ErrorCode::kResourceExhausted, "no memory"}, std::nullopt, 0, "late", ""};
  EXPECT_EQ(worker.Receive(none).One<FailRound>().error, none.error);
  EXPECT_EQ(worker.Do(begin).One<Refused>().error.code, ErrorCode::kResourceExhausted);
  // The client sends the registration again when the trainer repeats it, and in the next session.
  const auto again = worker.Do(RegisterTensors{"late", LaneKind::kGradient, {F32("d", 4)}});
  EXPECT_EQ(again.OneSent<Register>().lane, "late");
  worker.Receive(none);
  worker.Do(SessionDown{""});
  worker.Connect();
  EXPECT_FALSE(worker.Do(begin).Has<Refused>());
}

TEST(RegisterTest, ATensorThatTheAggregatorHasNoRoomForWithdrawsTheRound) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 4)}});
  worker.Begin();
  worker.Do(PushTensor{0, 3, 0});
  const Rejected none{{ErrorCode::kResourceExhausted, "no memory"}, std::nullopt, 0, "g", "d"};
  const Actions actions = worker.Receive(none);
  EXPECT_EQ(actions.One<RoundRejected>().error, none.error);
  EXPECT_EQ(actions.OneSent<Withdraw>().reason, "no memory");
  // In a round that begins later, the client refuses the push of the tensor.
  Harness other;
  other.BecomeMember();
  other.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 4)}});
  other.Receive(none);
  other.Begin();
  EXPECT_EQ(other.Do(PushTensor{0, 3, 0}).One<Refused>().error.code, ErrorCode::kResourceExhausted);
}

// The error names the tensor and both sides. The worker is not counted, and the others go on.
TEST(RegisterTest, Fault_W10_AMismatchedTensorIsRefused) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 4)}});
  LaneLayout layout = worker.MakeLayout();
  layout.first = 3;
  layout.tensors = {F32("d", 5)};
  worker.Receive(layout);
  worker.Begin();
  const Error error = worker.Do(PushTensor{0, 3, 0}).One<Refused>().error;
  EXPECT_EQ(error.code, ErrorCode::kMismatch);
  EXPECT_NE(error.text.find("f32[4]"), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("f32[5]"), std::string::npos) << error.text;
}

TEST(RegisterTest, Fault_W10_AMismatchThatShowsAfterThePushWithdrawsTheRound) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 4)}});
  worker.Begin();
  worker.PushOne(kB);
  EXPECT_TRUE(worker.Do(PushTensor{0, 3, 0}).all.empty()) << "it has no index yet";
  worker.Do(CommitRound{0});
  LaneLayout layout = worker.MakeLayout();
  layout.first = 3;
  layout.tensors = {F32("d", 5)};
  const Actions actions = worker.Receive(layout);
  EXPECT_EQ(actions.One<RoundRejected>().error.code, ErrorCode::kMismatch);
  EXPECT_TRUE(actions.HasSent<Withdraw>());
  EXPECT_EQ(worker.lane().round->state(), RoundState::kWithdrawn);
}

TEST(RegisterTest, Fault_W10_ARoundWithdrawnForATensorIsPushedOnAndCommitted) {
  const auto refuse = [](Harness& worker) {
    worker.BecomeMember();
    worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 4)}});
    worker.Begin();
    EXPECT_TRUE(worker.Do(PushTensor{0, 3, 0}).all.empty()) << "it has no index yet";
    LaneLayout layout = worker.MakeLayout();
    layout.first = 3;
    layout.tensors = {F32("d", 5)};
    EXPECT_TRUE(worker.Receive(layout).HasSent<Withdraw>());
    EXPECT_EQ(worker.lane().round->state(), RoundState::kRefused);
  };
  Harness worker;
  refuse(worker);
  EXPECT_TRUE(worker.Do(WaitRound{0, absl::InfiniteFuture()}).Has<Refused>());
  EXPECT_TRUE(worker.Do(PushTensor{0, kA, 0}).all.empty());
  EXPECT_TRUE(worker.Do(CommitRound{0}).all.empty());
  EXPECT_EQ(worker.lane().round->state(), RoundState::kWithdrawn);
  EXPECT_FALSE(worker.Do(WaitRound{0, absl::InfiniteFuture()}).Has<Refused>());

  Harness withdraws;
  refuse(withdraws);
  EXPECT_TRUE(withdraws.Do(WithdrawRound{0, "a backward failed"}).all.empty()) << "is known";
  EXPECT_EQ(withdraws.lane().round->state(), RoundState::kWithdrawn);
}

TEST(RegisterTest, BoundsAndNonsenseAreRefused) {
  Config config = TestConfig();
  config.max_lanes = 2;
  config.max_tensors = 4;
  Harness worker(config);
  worker.BecomeMember();
  const struct {
    const char* what;
    RegisterTensors call;
    ErrorCode code;
  } cases[] = {
      {"kind changes", {"g", LaneKind::kCall, {}}, ErrorCode::kMismatch},
      {"shape changes", {"g", LaneKind::kGradient, {F32("b", 101)}}, ErrorCode::kMismatch},
      {"one name twice",
       {"g", LaneKind::kGradient, {F32("x", 1), F32("x", 2)}},
       ErrorCode::kMismatch},
      {"no dtype",
       {"g", LaneKind::kGradient, {{"x", DType::kUnspecified, {1}}}},
       ErrorCode::kInvalidArgument},
      {"too large",
       {"h", LaneKind::kGradient, {F32("x", uint64_t{1} << 62)}},
       ErrorCode::kInvalidArgument},
      {"no lane name", {"", LaneKind::kGradient, {}}, ErrorCode::kInvalidArgument},
      {"no tensor name", {"g", LaneKind::kGradient, {F32("", 1)}}, ErrorCode::kInvalidArgument},
      {"long name",
       {"g", LaneKind::kGradient, {F32(std::string(257, 'x'), 1)}},
       ErrorCode::kInvalidArgument},
      {"too many tensors",
       {"g", LaneKind::kGradient, {F32("x", 1), F32("y", 1)}},
       ErrorCode::kResourceExhausted},
  };
  for (const auto& test : cases) {
    const Client before = worker.client;
    const Actions actions = worker.Do(test.call);
    EXPECT_EQ(actions.One<Refused>().error.code, test.code) << test.what;
    EXPECT_EQ(actions.all.size(), 1u) << test.what;
    EXPECT_EQ(worker.client.lanes(), before.lanes()) << test.what;
  }
  worker.Do(RegisterTensors{"h", LaneKind::kGradient, {}});
  EXPECT_EQ(worker.Do(RegisterTensors{"i", LaneKind::kGradient, {}}).One<Refused>().error.code,
            ErrorCode::kResourceExhausted);
}

// What is deferred is of the round before, and its verdict says that it was late.
TEST(CallsTest, OnlyWhatWasLateIsDeferred) {
  const auto begins = [](bool late, bool carries, RoundSpec spec = Harness::Average()) {
    Harness worker;
    worker.BecomeMember();
    worker.Contribute();
    worker.Stage();
    RoundValue value = worker.Value();
    if (late) value.late = {"w-0"};
    value.late_carries = carries;
    value.contributors.clear();
    worker.Receive(worker.MakeVerdict(value));
    BeginRound begin{0, spec, {}, 17, {}};
    begin.deferred = 1;
    const Actions actions = worker.Do(begin);
    if (actions.Has<Refused>()) {
      EXPECT_EQ(actions.One<Refused>().error.code, ErrorCode::kInvalidArgument);
      return false;
    }
    EXPECT_EQ(actions.OneSent<basin::Begin>().deferred, 1u);
    worker.Do(SessionDown{""});
    worker.Do(SessionUp{});
    EXPECT_EQ(worker.client.lanes()[0].round->begin().deferred, 1u);
    return true;
  };
  EXPECT_TRUE(begins(true, true));
  EXPECT_FALSE(begins(true, false));
  EXPECT_FALSE(begins(false, true));
  RoundSpec spec = Harness::Average();
  spec.denominator = Denominator::kPresent;
  EXPECT_FALSE(begins(true, true, spec));
  Harness first;
  first.BecomeMember();
  BeginRound begin{0, Harness::Average(), {}, 17, {}};
  begin.deferred = 1;
  EXPECT_TRUE(first.Do(begin).Has<Refused>()) << "no round was before it";
}

// Tries each wrong call in each situation; `prepare` leads to the situation.
TEST(CallsTest, WrongCallsAreRefusedAndChangeNothing) {
  const auto member = [](Harness& worker) { worker.BecomeMember(); };
  const auto begun = [](Harness& worker) {
    worker.BecomeMember();
    worker.Begin();
  };
  const auto pushed = [](Harness& worker) {
    worker.BecomeMember();
    worker.Begin();
    worker.PushOne(kA);
    worker.Do(SkipTensor{0, kB});
  };
  const auto committed = [](Harness& worker) {
    worker.BecomeMember();
    worker.Contribute();
  };
  const auto withdrawn = [](Harness& worker) {
    worker.BecomeMember();
    worker.Begin();
    worker.Do(WithdrawRound{0, "bad batch"});
  };
  const auto unknown = [](Harness& worker) {
    worker.BecomeMember();
    worker.Contribute();
    worker.Do(WaitRound{0, worker.now + absl::Seconds(1)});
    worker.Pass(absl::Seconds(1));
  };
  const auto joiner = [](Harness& worker) {
    worker.Connect();
    worker.RegisterModel();
  };
  using Prepare = std::function<void(Harness&)>;
  const struct {
    const char* what;
    Prepare prepare;
    Event call;
    ErrorCode code;
    const char* says;
  } cases[] = {
      {"begin of a joiner", joiner, BeginRound{}, ErrorCode::kFailedPrecondition, "not a member"},
      {"begin of an unknown lane", member, BeginRound{9, {}, {}, 0, {}}, ErrorCode::kNotFound,
       "lane handle 9"},
      {"begin twice", begun, BeginRound{}, ErrorCode::kFailedPrecondition, "already begun"},
      {"begin while committed", committed, BeginRound{}, ErrorCode::kFailedPrecondition,
       "not known yet"},
      {"begin while the outcome is unknown", unknown, BeginRound{}, ErrorCode::kFailedPrecondition,
       "not known yet"},
      {"push without begin", member, PushTensor{0, kA, 0}, ErrorCode::kFailedPrecondition,
       "begin a round first"},
      {"push of an unknown lane", member, PushTensor{1, kA, 0}, ErrorCode::kNotFound, "handle 1"},
      {"push of an unknown tensor", begun, PushTensor{0, 3, 0}, ErrorCode::kNotFound, "handle 3"},
      {"push twice", pushed, PushTensor{0, kA, 0}, ErrorCode::kFailedPrecondition,
       "tensor a was pushed"},
      {"push after skip", pushed, PushTensor{0, kB, 0}, ErrorCode::kFailedPrecondition,
       "tensor b was skipped"},
      {"push after commit", committed, PushTensor{0, kA, 0}, ErrorCode::kFailedPrecondition,
       "after the round was committed"},
      {"push after withdraw", withdrawn, PushTensor{0, kA, 0}, ErrorCode::kFailedPrecondition,
       "after the round was withdrawn"},
      {"skip without begin", member, SkipTensor{0, kA}, ErrorCode::kFailedPrecondition,
       "begin a round first"},
      {"skip after push", pushed, SkipTensor{0, kA}, ErrorCode::kFailedPrecondition,
       "tensor a was pushed"},
      {"commit without begin", member, CommitRound{0}, ErrorCode::kFailedPrecondition,
       "without begin"},
      {"commit of an unknown lane", member, CommitRound{7}, ErrorCode::kNotFound, "handle 7"},
      {"commit twice", committed, CommitRound{0}, ErrorCode::kFailedPrecondition,
       "already committed"},
      {"commit after withdraw", withdrawn, CommitRound{0}, ErrorCode::kFailedPrecondition,
       "withdrawn"},
      {"withdraw without begin", member, WithdrawRound{0, ""}, ErrorCode::kFailedPrecondition,
       "without begin"},
      {"withdraw after commit", committed, WithdrawRound{0, ""}, ErrorCode::kFailedPrecondition,
       "the commit holds"},
      {"withdraw twice", withdrawn, WithdrawRound{0, ""}, ErrorCode::kFailedPrecondition,
       "already withdrawn"},
      {"wait before commit", begun, WaitRound{0, absl::InfiniteFuture()},
       ErrorCode::kFailedPrecondition, "wait before commit"},
      {"wait for an unknown lane", member, WaitRound{4, absl::InfiniteFuture()},
       ErrorCode::kNotFound, "handle 4"},
      {"ready as a member", member, DeclareReady{}, ErrorCode::kFailedPrecondition,
       "member already"},
  };
  for (const auto& test : cases) {
    Harness worker;
    test.prepare(worker);
    const Client before = worker.client;
    const Actions actions = worker.Do(test.call);
    const Error error = actions.One<Refused>().error;
    EXPECT_EQ(error.code, test.code) << test.what;
    EXPECT_NE(error.text.find(test.says), std::string::npos) << test.what << ": " << error.text;
    EXPECT_NE(error.text.find("Job train, worker w-0"), std::string::npos) << error.text;
    EXPECT_EQ(actions.all.size(), 1u) << test.what;
    EXPECT_EQ(worker.client.lanes(), before.lanes()) << test.what;
  }
}

TEST(CallsTest, WaitingForARoundThatHasEndedIsNothing) {
  Harness worker;
  worker.BecomeMember();
  EXPECT_TRUE(worker.Do(WaitRound{0, worker.now}).all.empty());
  EXPECT_EQ(worker.lane().NextDeadline(), absl::InfiniteFuture());
}

TEST(CallsTest, TheOutcomeIsUnknownAtTheDeadlineAndKnownLater) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.ReceiveAllResults();
  const absl::Time deadline = worker.now + absl::Milliseconds(100);
  EXPECT_TRUE(worker.Do(WaitRound{0, deadline}).all.empty());
  EXPECT_EQ(worker.client.NextDeadline(), deadline);
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(99)).Has<FailRound>());
  const FailRound fail = worker.Pass(absl::Milliseconds(1)).One<FailRound>();
  EXPECT_EQ(fail.error.code, ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(fail.round, 1u);
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(1)).Has<FailRound>()) << "told once";
  EXPECT_TRUE(worker.lane().round.has_value()) << "the round goes on";
  worker.Do(WaitRound{0, worker.now + absl::Seconds(10)});
  worker.Receive(worker.MakePrepared());
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
}

TEST(CallsTest, TheDeadlineNamesWhyTheJobIsPaused) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(100)});
  const HeldUp pause{0, 0, "Job job is paused: 1 worker is left and min_workers is 2."};
  EXPECT_EQ(worker.Receive(pause).One<JobPaused>().text, pause.text);
  EXPECT_TRUE(worker.Receive(pause).all.empty()) << "old news";
  EXPECT_THAT(worker.Pass(absl::Milliseconds(100)).One<FailRound>().error.text,
              HasSubstr("no verdict arrived in time; Job job is paused: 1 worker is left and "
                        "min_workers is 2. The round continues"));
  // The wait for a value ends as well.
  worker.Do(GetBlob{{"g", "a", 7}, std::nullopt, "w-2", worker.now + absl::Milliseconds(100)});
  EXPECT_THAT(worker.Pass(absl::Milliseconds(100)).One<BlobFailed>().error.text,
              HasSubstr("it did not arrive in time from worker w-2. Job job is paused: 1 worker"));
  // The job continues.
  EXPECT_EQ(worker.Receive(HeldUp{0, 0, ""}).One<JobPaused>().text, "");
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(100)});
  EXPECT_THAT(worker.Pass(absl::Milliseconds(100)).One<FailRound>().error.text,
              Not(HasSubstr("paused")));
  // When a session ends, its reports may be outdated.
  worker.Receive(pause);
  EXPECT_EQ(worker.Do(SessionDown{""}).One<JobPaused>().text, "");
}

TEST(CallsTest, TheDeadlineNamesWhomTheRoundWaitsFor) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(100)});
  const HeldUp held_up_by_b{kLane, 1, "worker b: to commit (last seen 1s ago)"};
  EXPECT_TRUE(worker.Receive(HeldUp{kLane, 2, "x"}).all.empty()) << "of another round";
  const RoundHeldUp held_up = worker.Receive(held_up_by_b).One<RoundHeldUp>();
  EXPECT_THAT(held_up.text, HasSubstr("waits for worker b: to commit (last seen 1s ago)."));
  const FailRound fail = worker.Pass(absl::Milliseconds(100)).One<FailRound>();
  EXPECT_THAT(fail.error.text,
              HasSubstr("no verdict arrived in time; it waits for worker b: to commit"));
  // The late commit has arrived.
  worker.Stage();
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(100)});
  EXPECT_THAT(worker.Pass(absl::Milliseconds(100)).One<FailRound>().error.text,
              Not(HasSubstr("worker b")));
  // A worker has joined meanwhile and takes long to load the state.
  worker.Receive(HeldUp{kLane, 1, "worker j: to load the state and begin"});
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(100)});
  EXPECT_THAT(worker.Pass(absl::Milliseconds(100)).One<FailRound>().error.text,
              HasSubstr("it waits for worker j: to load the state and begin"));
}

TEST(CallsTest, APauseEndsTheWaitAndNotTheRound) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Rejected paused{{ErrorCode::kPaused, "2 of 3 workers"}, std::nullopt, 0};
  EXPECT_FALSE(worker.Receive(paused).Has<FailRound>()) << "nobody waits";
  worker.Do(WaitRound{0, absl::InfiniteFuture()});
  EXPECT_EQ(worker.Receive(paused).One<FailRound>().error.code, ErrorCode::kPaused);
  EXPECT_TRUE(worker.lane().round.has_value());
}

// The trainer leaves at the end of its step, which a paused job does not reach.
TEST(CallsTest, ATrainerThatLeavesDoesNotWaitInAPausedJob) {
  const HeldUp pause{0, 0, "Job job is paused: 1 worker is left and min_workers is 2."};
  const auto expect_released = [](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kPaused);
    EXPECT_THAT(error.text, HasSubstr("min_workers is 2. Worker w-0 is about to leave"));
  };
  for (const bool pause_first : {false, true}) {
    Harness worker;
    worker.BecomeMember();
    worker.Contribute();
    worker.Do(WaitRound{0, absl::InfiniteFuture()});
    worker.Do(GetBlob{{"g", "a", 7}, std::nullopt, "w-2", absl::InfiniteFuture()});
    // Neither of the two alone ends a wait.
    EXPECT_FALSE((pause_first ? worker.Receive(pause) : worker.Do(WillLeave{})).Has<FailRound>());
    const Actions actions = pause_first ? worker.Do(WillLeave{}) : worker.Receive(pause);
    expect_released(actions.One<FailRound>().error);
    expect_released(actions.One<BlobFailed>().error);
    EXPECT_TRUE(worker.lane().round.has_value()) << "it ends when the worker leaves";
    // Another wait ends at once,
    expect_released(worker.Do(WaitRound{0, absl::InfiniteFuture()}).One<FailRound>().error);
    const GetBlob get{{"g", "a", 8}, std::nullopt, "w-2", absl::InfiniteFuture()};
    expect_released(worker.Do(get).One<BlobFailed>().error);
    // but not when the job continues.
    worker.Receive(HeldUp{0, 0, ""});
    EXPECT_FALSE(worker.Do(WaitRound{0, absl::InfiniteFuture()}).Has<FailRound>());
  }
}

// What it knows may decide how the last round ended.
TEST(CallsTest, ATrainerThatLeavesWaitsForARecovery) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(WaitRound{0, absl::InfiniteFuture()});
  worker.Do(SessionDown{""});
  worker.Pass(absl::Seconds(1));
  worker.Do(SessionUp{});
  worker.Do(WillLeave{});
  const Actions actions = worker.Receive(HeldUp{0, 0, "Job job is recovering."});
  EXPECT_TRUE(actions.Has<JobPaused>());
  EXPECT_FALSE(actions.Has<FailRound>());
}

TEST(CallsTest, AbandonEndsTheIncarnation) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Actions actions = worker.Do(AbandonRounds{});
  EXPECT_TRUE(actions.HasSent<Abandon>());
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(actions.Has<CloseSession>());
  EXPECT_EQ(actions.One<OpenSession>().delay, absl::ZeroDuration());
  EXPECT_EQ(actions.One<MembershipNow>().role, Role::kJoiner);
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.membership, Membership{});
  EXPECT_TRUE(hello.lanes.empty());
  EXPECT_EQ(hello.nonce, 99u);
  EXPECT_EQ(hello.incarnation, (Incarnation{kTerm, 1})) << "which one is given up";

  // The client sends the message again, because it may not have arrived, until the welcome has
  // another incarnation.
  const Actions same = worker.Receive(worker.MakeWelcome(Role::kMember));
  EXPECT_TRUE(same.HasSent<Abandon>());
  EXPECT_TRUE(same.Has<CloseSession>());
  Welcome other = worker.MakeWelcome();
  other.incarnation = {kTerm, 2};
  const Actions fresh = worker.Connect(other);
  EXPECT_FALSE(fresh.HasSent<Abandon>());
  EXPECT_FALSE(fresh.HasSent<Ready>()) << "readiness must be declared again";
  EXPECT_TRUE(fresh.HasSent<Register>());
  EXPECT_EQ(worker.client.incarnation(), (Incarnation{kTerm, 2}));
}

TEST(CallsTest, AbandonWhileAwayIsSaidWithTheNextWelcome) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(SessionDown{""});
  const Actions actions = worker.Do(AbandonRounds{});
  EXPECT_TRUE(actions.Has<FailRound>());
  EXPECT_FALSE(actions.Has<OpenSession>()) << "one is on its way";
  worker.Do(SessionUp{});
  EXPECT_TRUE(worker.Receive(worker.MakeWelcome(Role::kMember)).HasSent<Abandon>());
}

TEST(CallsTest, CommitOfARoundLeavesOutWhatWasNotPushed) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.PushOne(kB);
  const Commit commit = worker.Do(CommitRound{0}).OneSent<Commit>();
  EXPECT_EQ(commit.round, 1u);
  EXPECT_EQ(commit.layout_version, 3u);
  EXPECT_FALSE(commit.present.Test(0));
  EXPECT_TRUE(commit.present.Test(1));
  EXPECT_FALSE(commit.present.Test(2));
  EXPECT_EQ(commit.chunks, 1u);
  EXPECT_EQ(commit.bytes, 400u);
  EXPECT_EQ(commit.digest, PushDigest(kB));
}

TEST(CallsTest, SkipAndWithdrawAreSaidAtOnce) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  EXPECT_EQ(worker.Do(SkipTensor{0, kB}).OneSent<Skip>(), (Skip{kLane, 1, {1}}));
  EXPECT_EQ(worker.Do(WithdrawRound{0, "NaN"}).OneSent<Withdraw>(), (Withdraw{kLane, 1, "NaN"}));
}

TEST(CallsTest, ARejectedContributionIsToldAndTheRoundGoesOn) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.ReceiveAllResults();
  const Error error{ErrorCode::kMismatch, "SUM against AVERAGE"};
  const RoundRejected rejected = worker.Receive(Rejected{error, kLane, 1}).One<RoundRejected>();
  EXPECT_EQ(rejected.lane, 0u);
  EXPECT_EQ(rejected.round, 1u);
  EXPECT_EQ(rejected.error, error);
  EXPECT_TRUE(worker.Receive(Rejected{error, kLane, 2}).all.empty()) << "of another round";
  EXPECT_TRUE(worker.Receive(Rejected{error, 77, 1}).all.empty()) << "of another lane";
  worker.Receive(worker.MakePrepared());
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
}

TEST(CallsTest, ARoundThatTheWorkerIsNoMemberOfFails) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  const Error error{ErrorCode::kFailedPrecondition, "not a member of round 1"};
  EXPECT_EQ(worker.Receive(Rejected{error, kLane, 1}).One<FailRound>().error, error);
  EXPECT_FALSE(worker.lane().round.has_value());
}

TEST(CallsTest, AWorkerThatIsBehindGivesUp) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  const Actions actions = worker.Receive(Rejected{{ErrorCode::kStale, "at round 9"}, kLane, 1});
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(actions.HasSent<Abandon>());
}

TEST(CallsTest, AnExpiredCallLaneIsNamedAgainOnce) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(RegisterTensors{"call/x", LaneKind::kCall, {F32("x", 5)}});
  LaneLayout layout{4, "call/x", LaneKind::kCall, 0, {F32("x", 5), F32("y", 5)}, 1, kWindow};
  worker.Receive(layout);
  worker.Do(BeginRound{1, {}, {}, 0, {}});
  worker.Do(PushTensor{1, 0, 1});
  const Rejected gone{{ErrorCode::kNotFound, "no lane 4"}, std::nullopt, 0};
  EXPECT_EQ(worker.Receive(gone).OneSent<Register>(),
            (Register{"call/x", LaneKind::kCall, {F32("x", 5)}}));
  EXPECT_TRUE(worker.Receive(gone).all.empty());
  // The lane gets a new layout; the client sends what it had begun again, with the new indexes.
  layout.tensors = {F32("z", 5), F32("x", 5)};
  const Actions again = worker.Receive(layout);
  EXPECT_EQ(again.MessageNames(), "LayoutSeen Begin");
  EXPECT_EQ(again.One<SendContribution>().ranges, (ChunkRanges{{1, 0, 1}}));
}

}  // namespace
}  // namespace basin::client
