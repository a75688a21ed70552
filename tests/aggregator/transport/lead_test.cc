// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A server of which the lead comes and goes: workers are refused, served, and refused again.

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grpcpp/channel.h"
#include "tests/aggregator/transport/loopback.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;

ServerOptions ThatFollows() {
  ServerOptions options;
  options.refusal = absl::UnavailableError("not the leader; it is b");
  return options;
}

std::string HealthOfFollower(Loopback& loopback) {
  RawStream health(loopback.Channel(), kHealthMethod);
  health.Write("");
  health.CloseWrites();
  return health.Read().value_or("no answer");
}

// How the session of a worker that says hello ends.
absl::Status RefusalOf(Loopback& loopback, const Model& model) {
  RawStream session(loopback.Channel(), kSessionMethod);
  session.Write(Encoded(HelloOf("w", model)));
  return session.AwaitEnd();
}

// Begins a round, and returns when the engine has opened it.
void BeginRound(Loopback& loopback, RigWorker& worker) {
  worker.Begin();
  Await([&] {
    return loopback.Look<bool>([](const Runner& runner) {
      for (const auto& [id, job] : runner.core().jobs()) {
        for (const Lane& lane : job.lanes) {
          if (lane.Open()) return true;
        }
      }
      return false;
    });
  });
}

TEST(TransportLead, Fault_A5_AServerThatDoesNotLeadRefusesWorkersWithTheReason) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Loopback loopback(ThatFollows());
  const absl::Status refused = RefusalOf(loopback, model);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("it is b"));
  EXPECT_NE(HealthOfFollower(loopback), kServing);
  loopback.server.Refuse(absl::UnavailableError("it is c"));
  EXPECT_THAT(std::string(RefusalOf(loopback, model).message()), HasSubstr("it is c"));
  EXPECT_EQ(loopback.server.counters().malformed_messages, 0u);
}

TEST(TransportLead, AServerServesWhileItLeadsAndForgetsItsWorkersAfterwards) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Loopback loopback(ThatFollows());
  loopback.server.Lead(77);
  EXPECT_EQ(HealthOfFollower(loopback), kServing);
  RigWorker a(loopback, "a", model);
  Join({&a});
  EXPECT_EQ(a.welcome->term, 77u);
  loopback.server.Follow(absl::UnavailableError("not any more"));
  EXPECT_THAT(std::string(loopback.raw(a.session).AwaitEnd().message()), HasSubstr("not any more"));
  for (const StreamId stream : a.streams) EXPECT_FALSE(loopback.raw(stream).AwaitEnd().ok());
  EXPECT_THAT(std::string(RefusalOf(loopback, model).message()), HasSubstr("not any more"));
  EXPECT_NE(HealthOfFollower(loopback), kServing);
  EXPECT_TRUE(loopback.Look<bool>(
      [](const Runner& runner) { return runner.core().jobs().empty() && runner.sessions() == 0; }));
  // And again, with another term.
  loopback.server.Lead(99);
  RigWorker b(loopback, "b", model);
  Join({&b});
  EXPECT_EQ(b.welcome->term, 99u);
}

TEST(TransportLead, Fault_A3_RoundsEndBeforeTheLeadIsGivenUp) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Loopback loopback(ThatFollows());
  loopback.server.Lead(77);
  RigWorker a(loopback, "a", model);
  Join({&a});
  BeginRound(loopback, a);
  std::thread ending([&] { loopback.server.EndRounds(); });
  a.Await<basin::Drain>();
  a.Push(0, GradientOf(0, kChunkFloats));
  a.Commit();
  EXPECT_EQ(Finish({&a})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(a.Await<Ended>().error.code, ErrorCode::kUnavailable);
  ending.join();
  loopback.server.Follow(absl::UnavailableError("given up"));
}

TEST(TransportLead, Fault_A3_SessionsThatAreKeptEndWithTheLead) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Loopback loopback(ThatFollows());
  loopback.server.Lead(77);
  RigWorker a(loopback, "a", model);
  Join({&a});
  loopback.server.EndRounds(/*keeps_sessions=*/true);
  EXPECT_NE(HealthOfFollower(loopback), kServing);
  loopback.server.Refuse(absl::UnavailableError("nobody leads yet"));
  EXPECT_THAT(std::string(RefusalOf(loopback, model).message()), HasSubstr("nobody leads yet"));
  EXPECT_EQ(loopback.Look<size_t>([](const Runner& runner) { return runner.sessions(); }), 1u);
  loopback.server.Follow(absl::UnavailableError("b leads"));
  EXPECT_THAT(std::string(loopback.raw(a.session).AwaitEnd().message()), HasSubstr("b leads"));
}

TEST(TransportLead, NobodyWaitsForRoundsOfALeadThatIsOver) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Loopback loopback(ThatFollows());
  loopback.server.EndRounds();
  loopback.server.Lead(77);
  RigWorker a(loopback, "a", model);
  Join({&a});
  BeginRound(loopback, a);
  std::thread ending([&] { loopback.server.EndRounds(); });
  a.Await<basin::Drain>();
  loopback.server.Follow(absl::UnavailableError("lost"));
  loopback.server.Lead(78);
  ending.join();
}

}  // namespace
}  // namespace basin::aggregator
