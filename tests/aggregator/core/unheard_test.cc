// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernel hears of the machine of a silent worker: when it is lost before its lease is
// over, and when not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kMany = 20;  // Packets without an answer.

// Worker b is silent; a goes on.
struct Silent : Running {
  explicit Silent(Config config = {}) : Running(Settings(1, 4, 2), std::move(config)) {
    a.Contribute();
    b.heartbeats = false;
  }
  void Report(absl::Duration unheard, uint32_t unanswered = kMany,
              absl::Duration age = absl::ZeroDuration()) {
    Step(SessionsUnheard{{{b.session, unheard, unanswered}}, age});
  }
  size_t lost() const { return Notes(NoteKind::kWorkerLost); }
};

TEST(Unheard, Fault_N3_AMachineThatAcknowledgesNothingIsGoneBeforeTheLeaseIsOver) {
  Silent c;
  c.Sleep(absl::Milliseconds(1450));
  c.Report(absl::Milliseconds(1450));
  EXPECT_EQ(c.lost(), 0u);
  c.Sleep(absl::Milliseconds(50));
  c.Report(absl::Milliseconds(1500));
  EXPECT_EQ(c.lost(), 1u);
  EXPECT_THAT(c.NoteText(NoteKind::kWorkerLost),
              HasSubstr("its machine has acknowledged nothing for 1.5s"));
  ASSERT_TRUE(c.b.ended.has_value());
  EXPECT_EQ(c.b.ended->code, ErrorCode::kEvicted);
  EXPECT_THAT(c.b.ended->text, HasSubstr("Worker b of job job was silent for 1.5s"));
  EXPECT_EQ(c.a.lane().last, 2u) << "the round goes on at once";
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
}

TEST(Unheard, Fault_W4_AStoppedProcessWhoseKernelAcknowledgesHasTheWholeLease) {
  Silent c;
  // The kernel answers each probe, so the time begins anew each second.
  for (int second = 0; second < 4; ++second) {
    c.Sleep(absl::Seconds(1));
    c.Report(absl::Seconds(1), 1);
  }
  c.Sleep(absl::Milliseconds(900));
  EXPECT_EQ(c.lost(), 0u);
  c.Sleep(absl::Milliseconds(200));
  EXPECT_EQ(c.lost(), 1u);
  EXPECT_THAT(c.NoteText(NoteKind::kWorkerLost), HasSubstr("silent for longer than its lease"));
}

TEST(Unheard, AnAcknowledgementTakesItBack) {
  Silent c;
  c.Sleep(absl::Milliseconds(1450));
  c.Report(absl::Milliseconds(1450));
  c.Sleep(absl::Milliseconds(1450));
  c.Report(absl::Milliseconds(1440));  // Since its kernel answered.
  EXPECT_EQ(c.lost(), 0u);
}

TEST(Unheard, Fault_N5_SomeLostPacketsMeanNothing) {
  Silent c;
  c.Sleep(absl::Seconds(3));
  c.Report(absl::Seconds(3), 19);
  EXPECT_EQ(c.lost(), 0u);
  c.Report(absl::Seconds(3), 20);
  EXPECT_EQ(c.lost(), 1u);
}

// Its message was read after the transport had looked.
TEST(Unheard, AWorkerThatSpeaksIsNotLost) {
  Silent c;
  c.Sleep(absl::Seconds(2));
  c.b.Send(Heartbeat{});
  c.Report(absl::Seconds(2));
  EXPECT_EQ(c.lost(), 0u);
}

TEST(Unheard, Fault_A4_AReportOlderThanThePauseOfTheLoopEvictsNobody) {
  Silent c;
  c.Sleep(absl::Seconds(2));
  c.Report(absl::Seconds(2), kMany, absl::Milliseconds(300));
  EXPECT_EQ(c.lost(), 0u);
}

// The network of the aggregator's own machine has failed, or the job has one worker.
TEST(Unheard, WhereNobodyIsHeardTheWholeLeaseCounts) {
  Silent c;
  c.a.heartbeats = false;
  c.Sleep(absl::Seconds(3));
  c.Step(SessionsUnheard{
      {{c.a.session, absl::Seconds(3), kMany}, {c.b.session, absl::Seconds(3), kMany}}});
  EXPECT_EQ(c.lost(), 0u);
  c.a.heartbeats = true;
  c.Sleep(absl::Milliseconds(600));
  c.Report(absl::Milliseconds(3600));
  EXPECT_EQ(c.lost(), 1u) << "one of them is back";
}

TEST(Unheard, ARackThatIsGoneIsLostAtOnce) {
  Three c;
  for (TestWorker* worker : {&c.a, &c.b}) worker->heartbeats = false;
  c.Sleep(absl::Milliseconds(1600));
  const auto unheard = absl::Milliseconds(1600);
  c.Step(SessionsUnheard{{{c.a.session, unheard, kMany}, {c.b.session, unheard, kMany}}});
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 2u);
  c.c.Contribute();
  EXPECT_THAT(c.c.verdict().next.members, ElementsAre("c"));
}

TEST(Unheard, ALostWorkerRejoinsWithStateOnceItsMachineIsBack) {
  Silent c;
  c.Sleep(absl::Seconds(2));
  c.Report(absl::Seconds(2));
  const SessionId old = c.b.session;
  c.b.heartbeats = true;
  c.b.Forget();
  c.b.Connect();
  c.b.Ready();
  EXPECT_EQ(c.b.role, Role::kJoiner);
  // These are about the session that is over, or that never was.
  c.Step(SessionsUnheard{{{old, absl::Seconds(3), kMany}, {4711, absl::Seconds(3), kMany}}});
  c.a.Contribute();
  EXPECT_EQ(c.b.role, Role::kMember);
  EXPECT_EQ(c.lost(), 1u);
}

TEST(Unheard, TheTimeIsAtLeastThreeHeartbeatsAndAtMostTheLease) {
  Config config;
  EXPECT_EQ(config.unreachable(), absl::Milliseconds(1500));
  config.heartbeat = absl::Seconds(1);
  EXPECT_EQ(config.unreachable(), absl::Seconds(3));
  config.lease = absl::Seconds(2);
  EXPECT_EQ(config.unreachable(), absl::Seconds(2));
}

}  // namespace
}  // namespace basin::aggregator
