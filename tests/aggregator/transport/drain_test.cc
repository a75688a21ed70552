// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The drain of an aggregator: open rounds end, then GOAWAY is sent to all workers.

#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "grpcpp/channel.h"
#include "tests/aggregator/transport/loopback.h"
#include "tests/aggregator/transport/raw_http2.h"

namespace basin::aggregator {
namespace {

// A response of the health service: its only field, `status`, is NOT_SERVING.
constexpr char kNotServing[] = "\x08\x02";

std::string Health(Loopback& loopback) {
  RawStream health(loopback.Channel(), kHealthMethod);
  health.Write("");
  health.CloseWrites();
  return health.Read().value_or("no answer");
}

TEST(TransportDrain, Fault_A3_OpenRoundsEndThenHealthThenGoAway) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  Join({&a, &b});
  RawHttp2 watcher(loopback.port);
  watcher.Begin();
  EXPECT_EQ(Health(loopback), kServing);
  a.Begin();
  a.Push(0, GradientOf(0, 2 * kChunkFloats));
  a.Commit();
  Await([&] {
    return loopback.Look<uint64_t>([](const Runner& runner) { return runner.parked_bytes(); }) > 0;
  });

  std::thread drain([&] { loopback.server.Drain(); });
  a.Await<basin::Drain>();
  b.Await<basin::Drain>();
  EXPECT_EQ(Health(loopback), kNotServing);
  // The round that was open still ends.
  b.Begin();
  b.Push(0, GradientOf(1, 2 * kChunkFloats));
  b.Commit();
  const std::vector<VerdictRecord> told = Finish({&a, &b});
  EXPECT_EQ(told[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(a.results[0],
            ReferenceAverage({GradientOf(0, 2 * kChunkFloats), GradientOf(1, 2 * kChunkFloats)}));
  // Then the sessions, each with the reason, and the connections.
  for (RigWorker* worker : {&a, &b}) {
    EXPECT_EQ(worker->Await<Ended>().error.code, ErrorCode::kUnavailable);
    EXPECT_TRUE(loopback.raw(worker->session).AwaitEnd().ok());
  }
  watcher.AwaitClosed();
  drain.join();
  const TransportCounters& counters = loopback.server.counters();
  EXPECT_EQ(counters.calls_begun, counters.calls_ended);
}

TEST(TransportDrain, AServerThatNobodyUsesDrainsAtOnce) {
  Loopback loopback;
  loopback.server.Drain();
  loopback.server.Stop();
  loopback.server.Stop();
}

// Stop does not wait: open streams are cancelled.
TEST(TransportDrain, StopEndsWhatIsOpen) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  a.Connect();
  loopback.server.Stop();
  EXPECT_FALSE(loopback.raw(a.session).AwaitEnd().ok());
  for (const StreamId stream : a.streams) EXPECT_FALSE(loopback.raw(stream).AwaitEnd().ok());
  const TransportCounters& counters = loopback.server.counters();
  EXPECT_EQ(counters.calls_begun, counters.calls_ended);
}

}  // namespace
}  // namespace basin::aggregator
