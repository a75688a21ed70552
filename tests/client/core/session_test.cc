// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Connecting, greeting, backoff, heartbeats, data streams, and how a session ends.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

TEST(SessionTest, TheFirstEventOpensTheSession) {
  Harness worker;
  EXPECT_EQ(worker.client.NextDeadline(), absl::InfinitePast());
  EXPECT_EQ(worker.Do(Tick{}).One<OpenSession>().delay, absl::ZeroDuration());
  EXPECT_EQ(worker.client.NextDeadline(), worker.now + absl::Seconds(2));
  EXPECT_TRUE(worker.Do(Tick{}).all.empty());
}

TEST(SessionTest, ThatNoAnswerComesIsSaidSoon) {
  Harness worker;
  worker.Do(Tick{});
  worker.Pass(absl::Seconds(2) - absl::Milliseconds(1));
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kOk);
  worker.Pass(absl::Milliseconds(1));
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kUnavailable);
  EXPECT_THAT(worker.client.trouble().text,
              testing::HasSubstr("The aggregator at a-0:7070 has not answered for 2s"));
  EXPECT_EQ(worker.client.NextDeadline(), absl::InfiniteFuture()) << "once";
  worker.Connect(worker.MakeWelcome());
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kOk);
}

TEST(SessionTest, WhyAJobThatRecoversWelcomesNobodyIsHeard) {
  Harness worker;
  worker.Do(Tick{});
  worker.Do(SessionUp{});
  const HeldUp why{0, 0, "Job train recovers and waits up to 6s more for its workers."};
  EXPECT_EQ(worker.Receive(why).One<JobPaused>().text, why.text);
  worker.Pass(absl::Seconds(2));
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kOk) << "it was answered";
  EXPECT_EQ(worker.Receive(worker.MakeWelcome()).One<JobPaused>().text, "");
}

TEST(SessionTest, SaysHelloWithoutHistory) {
  Harness worker;
  worker.Do(Tick{});
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.job, "train");
  EXPECT_EQ(hello.run, "run-1");
  EXPECT_EQ(hello.worker, "w-0");
  EXPECT_EQ(hello.nonce, 99u);
  EXPECT_EQ(hello.settings, (JobSettings{2, 3, 3}));
  EXPECT_EQ(hello.incarnation, Incarnation{});
  EXPECT_EQ(hello.membership, Membership{});
  EXPECT_TRUE(hello.lanes.empty());
  EXPECT_TRUE(worker.Do(SessionUp{}).all.empty()) << "one hello";
}

TEST(SessionTest, RemembersWhetherItWasWelcomedBeforeTheRunHadMembers) {
  const auto again = [](const Welcome& welcome) {
    Harness worker;
    worker.Connect(welcome);
    worker.Do(SessionDown{});
    return worker.Do(SessionUp{}).OneSent<Hello>();
  };
  Harness harness;
  Welcome welcome = harness.MakeWelcome();
  EXPECT_TRUE(again(welcome).from_start);
  welcome.membership = {{kTerm, 1}, {{"w-1"}}};
  EXPECT_FALSE(again(welcome).from_start);
}

TEST(SessionTest, WelcomeOpensTheStreamsAndTellsWhatIsKnown) {
  Harness worker;
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  worker.Do(DeclareReady{7, 8});
  worker.Do(SetBusy{"checkpoint", absl::Seconds(9)});
  worker.Do(SessionUp{});
  const Actions actions = worker.Receive(worker.MakeWelcome());
  const std::vector<OpenStream> streams = actions.Of<OpenStream>();
  ASSERT_EQ(streams.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(streams[i].stream, i);
    EXPECT_EQ(streams[i].token, 4711u);
    EXPECT_EQ(streams[i].delay, absl::ZeroDuration());
  }
  EXPECT_EQ(actions.OneSent<Register>(), (Register{"g", LaneKind::kGradient, Model()}));
  EXPECT_EQ(actions.OneSent<Ready>(), (Ready{7, 8}));
  EXPECT_EQ(actions.OneSent<Busy>(), (Busy{"checkpoint", absl::Seconds(9)}));
  EXPECT_TRUE(worker.client.connected());
  EXPECT_EQ(worker.client.incarnation(), (Incarnation{kTerm, 1}));
}

TEST(SessionTest, BackoffDoublesWithJitterUpToItsLimit) {
  Harness worker;
  worker.Do(Tick{});
  absl::Duration full = absl::Milliseconds(100);
  for (int i = 0; i < 12; ++i) {
    const absl::Duration delay = worker.Do(SessionDown{"refused"}).One<OpenSession>().delay;
    EXPECT_GE(delay, full / 2);
    EXPECT_LE(delay, full);
    full = std::min(full * 2, absl::Seconds(2));
  }
  EXPECT_EQ(worker.client.trouble().text, "refused");
}

TEST(SessionTest, AllAddressesAreTriedSeveralTimesBeforeTheBackoffGrows) {
  Config config = TestConfig();
  config.addresses = 2;
  Harness worker(config);
  worker.Do(Tick{});
  const auto next = [&] { return worker.Do(SessionDown{"refused"}).One<OpenSession>().delay; };
  EXPECT_EQ(next(), absl::ZeroDuration());
  absl::Duration full = absl::Milliseconds(100);
  for (int pace = 0; pace < 6; ++pace) {
    // Two addresses, each four times.
    for (int attempt = 0; attempt < 8; ++attempt) {
      const absl::Duration delay = next();
      EXPECT_GE(delay, full / 2);
      EXPECT_LE(delay, full);
    }
    full = std::min(full * 2, absl::Milliseconds(500));
  }
}

TEST(SessionTest, WithSeveralAddressesASessionThatTheAggregatorEndsIsNotOpenedAtOnce) {
  Config config = TestConfig();
  config.addresses = 3;
  Harness worker(config);
  worker.Connect();
  const Ended ended{Error{ErrorCode::kUnavailable, "drained"}};
  EXPECT_GE(worker.Receive(ended).One<OpenSession>().delay, absl::Milliseconds(50));
}

TEST(SessionTest, JitterComesFromTheSeed) {
  const auto delays = [](uint64_t seed) {
    Config config = TestConfig();
    config.jitter_seed = seed;
    Harness worker(config);
    worker.Do(Tick{});
    std::vector<absl::Duration> delays(4);
    for (absl::Duration& delay : delays) {
      delay = worker.Do(SessionDown{""}).One<OpenSession>().delay;
    }
    return delays;
  };
  EXPECT_EQ(delays(1), delays(1));
  EXPECT_NE(delays(1), delays(2));
}

TEST(SessionTest, ALostSessionIsTriedAgainAtOnceAndThenWithBackoff) {
  Harness worker;
  worker.Connect();
  EXPECT_EQ(worker.Do(SessionDown{"reset"}).One<OpenSession>().delay, absl::ZeroDuration());
  EXPECT_FALSE(worker.client.connected());
  EXPECT_GE(worker.Do(SessionDown{"refused"}).One<OpenSession>().delay, absl::Milliseconds(50));
  worker.Connect();
  EXPECT_TRUE(worker.client.connected());
  EXPECT_EQ(worker.Do(SessionDown{"reset"}).One<OpenSession>().delay, absl::ZeroDuration())
      << "a welcome starts the backoff anew";
}

TEST(SessionTest, HeartbeatsGrowWithProgress) {
  Harness worker;
  worker.Connect();
  EXPECT_EQ(worker.client.NextDeadline(), worker.now + absl::Milliseconds(500));
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(499)).HasSent<Heartbeat>());
  const uint64_t before = worker.Pass(absl::Milliseconds(1)).OneSent<Heartbeat>().progress;
  EXPECT_EQ(worker.client.NextDeadline(), worker.now + absl::Milliseconds(500));
  worker.Do(Progress{});
  EXPECT_EQ(worker.Pass(absl::Seconds(3)).OneSent<Heartbeat>().progress, before + 1)
      << "one beat, however late";
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Pass(absl::Seconds(3)).all.empty());
}

TEST(SessionTest, AbsurdSettingsOfAWelcomeAreBounded) {
  Harness worker;
  Welcome welcome = worker.MakeWelcome();
  welcome.heartbeat = absl::ZeroDuration();
  welcome.frame_bytes = 0;
  worker.Connect(welcome);
  EXPECT_GT(worker.client.NextDeadline(), worker.now);
  EXPECT_EQ(worker.client.session().frame_chunks(), 1u);
  worker.Do(SessionDown{""});
  welcome.frame_bytes = UINT64_MAX;
  worker.Connect(welcome);
  EXPECT_EQ(worker.client.session().frame_chunks(), 15u);
}

TEST(SessionTest, ALostStreamIsOpenedAgainWithBackoffUnlessItHadSettled) {
  Harness worker;
  worker.Connect();
  const OpenStream first = worker.Do(StreamDown{1}).One<OpenStream>();
  EXPECT_EQ(first.stream, 1u);
  EXPECT_EQ(first.token, 4711u);
  EXPECT_EQ(first.delay, absl::ZeroDuration());
  EXPECT_GE(worker.Do(StreamDown{1}).One<OpenStream>().delay, absl::Milliseconds(50));
  worker.Do(StreamUp{1});
  worker.now += absl::Milliseconds(100);
  EXPECT_GE(worker.Do(StreamDown{1}).One<OpenStream>().delay, absl::Milliseconds(100));
  worker.Do(StreamUp{1});
  worker.now += absl::Seconds(2);
  EXPECT_EQ(worker.Do(StreamDown{1}).One<OpenStream>().delay, absl::ZeroDuration());
}

TEST(SessionTest, StreamsThatDoNotExistAreIgnored) {
  Harness worker;
  EXPECT_FALSE(worker.Do(StreamUp{0}).Has<OpenStream>());
  worker.Connect();
  EXPECT_TRUE(worker.Do(StreamUp{2}).all.empty());
  EXPECT_TRUE(worker.Do(StreamDown{2}).all.empty());
}

struct EndCase {
  ErrorCode code;
  bool fatal;
  bool at_once;
};

class EndedTest : public testing::TestWithParam<EndCase> {};

TEST_P(EndedTest, DecidesWhatFollows) {
  Harness worker;
  worker.BecomeMember();
  const Actions actions = worker.Receive(Ended{{GetParam().code, "because"}});
  EXPECT_EQ(actions.One<CloseSession>().reason, "because");
  EXPECT_FALSE(worker.client.connected());
  EXPECT_EQ(actions.Has<Fatal>(), GetParam().fatal);
  EXPECT_EQ(worker.client.fatal().has_value(), GetParam().fatal);
  if (GetParam().fatal) {
    EXPECT_EQ(actions.One<Fatal>().error.code, GetParam().code);
    EXPECT_FALSE(actions.Has<OpenSession>());
    EXPECT_EQ(worker.client.NextDeadline(), absl::InfiniteFuture());
    EXPECT_EQ(worker.Do(DeclareReady{}).One<Refused>().error.code, GetParam().code);
    EXPECT_TRUE(worker.Do(SessionUp{}).all.empty());
    return;
  }
  EXPECT_EQ(actions.One<OpenSession>().delay == absl::ZeroDuration(), GetParam().at_once);
  EXPECT_EQ(worker.client.trouble().code, GetParam().code);
}

INSTANTIATE_TEST_SUITE_P(Codes, EndedTest,
                         testing::Values(EndCase{ErrorCode::kUnavailable, false, false},
                                         EndCase{ErrorCode::kRunConflict, false, false},
                                         EndCase{ErrorCode::kResourceExhausted, false, false},
                                         EndCase{ErrorCode::kOk, false, false},
                                         EndCase{ErrorCode::kEvicted, false, true},
                                         EndCase{ErrorCode::kSuperseded, true, false},
                                         EndCase{ErrorCode::kLineageConflict, true, false},
                                         EndCase{ErrorCode::kVersionMismatch, true, false},
                                         EndCase{ErrorCode::kMismatch, true, false},
                                         EndCase{ErrorCode::kInvalidArgument, true, false}),
                         [](const auto& info) { return ErrorCodeName(info.param.code); });

TEST(SessionTest, RefusedHellosBackOff) {
  Harness worker;
  worker.Do(Tick{});
  absl::Duration last = absl::ZeroDuration();
  for (int i = 0; i < 6; ++i) {
    worker.Do(SessionUp{});
    const absl::Duration delay =
        worker.Receive(Ended{{ErrorCode::kResourceExhausted, "full"}}).One<OpenSession>().delay;
    EXPECT_GE(delay, absl::Milliseconds(50));
    last = delay;
  }
  EXPECT_GE(last, absl::Seconds(1)) << "without a welcome the backoff goes on growing";
}

TEST(SessionTest, RepeatedEvictionsDoNotSpin) {
  Harness worker;
  worker.Do(Tick{});
  worker.Do(SessionUp{});
  EXPECT_EQ(worker.Receive(Ended{{ErrorCode::kEvicted, ""}}).One<OpenSession>().delay,
            absl::ZeroDuration());
  worker.Do(SessionUp{});
  EXPECT_GE(worker.Receive(Ended{{ErrorCode::kEvicted, ""}}).One<OpenSession>().delay,
            absl::Milliseconds(50));
}

// There are two aggregators for one job, and the client refuses the older one.
TEST(SessionTest, Fault_A5_AnOlderAggregatorIsNotFollowed) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(SessionDown{""});
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.term = kTerm - 1;
  const Actions actions = worker.Receive(welcome);
  EXPECT_TRUE(actions.Has<CloseSession>());
  EXPECT_GT(actions.One<OpenSession>().delay, absl::ZeroDuration());
  EXPECT_FALSE(worker.client.connected());
  EXPECT_TRUE(worker.client.has_history()) << "what is known is kept";
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kStale);
}

TEST(SessionTest, AWelcomeForAnotherRunIsNotFollowed) {
  Harness worker;
  worker.Do(Tick{});
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome();
  welcome.run = "run-2";
  EXPECT_TRUE(worker.Receive(welcome).Has<CloseSession>());
  EXPECT_EQ(worker.client.trouble().code, ErrorCode::kRunConflict);
}

TEST(SessionTest, TheRunInProgressIsTakenOver) {
  Config config = TestConfig();
  config.run = "";
  Harness worker(config);
  worker.Connect();
  EXPECT_EQ(worker.client.run(), "run-1");
  worker.Do(SessionDown{""});
  EXPECT_EQ(worker.Do(SessionUp{}).OneSent<Hello>().run, "run-1");
}

TEST(SessionTest, MessagesBeforeTheWelcomeAndSecondWelcomesAreIgnored) {
  Harness worker;
  worker.Do(Tick{});
  worker.Do(SessionUp{});
  EXPECT_TRUE(
      worker.Receive(MembershipChanged{worker.Members(), Role::kMember, {}, {}}).all.empty());
  EXPECT_TRUE(worker.Do(BlobReceived{}).all.empty());
  EXPECT_EQ(worker.client.role(), Role::kJoiner);
  worker.Receive(worker.MakeWelcome());
  Welcome again = worker.MakeWelcome(Role::kSpare);
  EXPECT_TRUE(worker.Receive(again).all.empty());
  EXPECT_EQ(worker.client.role(), Role::kJoiner);
}

TEST(SessionTest, Fault_W6_LeavesInGoodOrder) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Actions leave = worker.Do(LeaveJob{});
  EXPECT_TRUE(leave.HasSent<Leave>());
  EXPECT_EQ(leave.One<FailRound>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(worker.Do(LeaveJob{}).all.empty());
  EXPECT_TRUE(worker.Do(BeginRound{}).Has<Refused>());
  const Actions ended = worker.Receive(Ended{{ErrorCode::kOk, "left"}});
  EXPECT_TRUE(ended.Has<Left>());
  EXPECT_FALSE(ended.Has<OpenSession>());
  EXPECT_TRUE(worker.client.left());
  EXPECT_EQ(worker.Do(DeclareReady{}).One<Refused>().error.code, ErrorCode::kFailedPrecondition);
}

TEST(SessionTest, LeavingEndsWhenTheSessionDoes) {
  Harness worker;
  worker.Connect();
  worker.Do(LeaveJob{});
  EXPECT_TRUE(worker.Do(SessionDown{"closed"}).Has<Left>());
}

TEST(SessionTest, LeavingHasADeadline) {
  Harness worker;
  worker.Connect();
  worker.Do(LeaveJob{});
  EXPECT_FALSE(worker.Pass(absl::Milliseconds(1999)).Has<Left>());
  EXPECT_LE(worker.client.NextDeadline(), worker.now + absl::Milliseconds(1));
  const Actions actions = worker.Pass(absl::Milliseconds(1));
  EXPECT_TRUE(actions.Has<CloseSession>());
  EXPECT_TRUE(actions.Has<Left>());
}

TEST(SessionTest, LeavingWhileAwayIsSaidOnceItIsBack) {
  Harness worker;
  worker.Connect();
  worker.Do(SessionDown{""});
  EXPECT_FALSE(worker.Do(LeaveJob{}).Has<Left>());
  EXPECT_TRUE(worker.Do(SessionDown{"refused"}).Has<OpenSession>());
  EXPECT_TRUE(worker.Connect().HasSent<Leave>());
}

TEST(SessionTest, FinishedIsSaidInEverySession) {
  Harness worker;
  worker.BecomeMember();
  EXPECT_TRUE(worker.Do(Finish{}).HasSent<Finished>());
  EXPECT_TRUE(worker.Do(Finish{}).all.empty());
  EXPECT_EQ(worker.Do(BeginRound{}).One<Refused>().error.code, ErrorCode::kFailedPrecondition);
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Connect(worker.MakeWelcome(Role::kMember)).HasSent<Finished>());
}

TEST(SessionTest, BusyIsSaidUntilItIsOver) {
  Harness worker;
  worker.Connect();
  EXPECT_EQ(worker.Do(SetBusy{"eval", absl::Seconds(5)}).OneSent<Busy>().reason, "eval");
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Connect().HasSent<Busy>());
  EXPECT_EQ(worker.Do(SetBusy{"", absl::ZeroDuration()}).OneSent<Busy>().expected,
            absl::ZeroDuration());
  worker.Do(SessionDown{""});
  EXPECT_FALSE(worker.Connect().HasSent<Busy>());
}

TEST(SessionTest, DrainOfTheWorkerIsNoted) {
  Harness worker;
  worker.BecomeMember();
  worker.Receive(Drain{true});
  EXPECT_FALSE(worker.client.draining());
  worker.Receive(Drain{false});
  EXPECT_TRUE(worker.client.draining());
}

}  // namespace
}  // namespace basin::client
