// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whole rounds over gRPC: every byte goes through sockets, and comes out with the oracle's bits.

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/aggregator/transport/loopback.h"

namespace basin::aggregator {
namespace {

TEST(TransportRound, BitsAreTheOraclesForTwoWorkersWithTwoStreamsEach) {
  const size_t elements = 9 * kChunkFloats + 13;
  const Model model = AverageOf({F32("weight", elements), F32("bias", 3)}, 2);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  Join({&a, &b});
  const std::vector<std::string> weights = {GradientOf(0, elements), GradientOf(1, elements)};
  const std::vector<std::string> biases = {GradientOf(2, 3), GradientOf(3, 3)};
  for (int round = 0; round < 3; ++round) {
    for (RigWorker* worker : {&a, &b}) {
      const int i = worker == &a ? 0 : 1;
      worker->Begin();
      worker->Push(1, biases[i]);
      worker->Push(0, weights[i], /*chunks=*/i + 1, /*backwards=*/i == 1);
      worker->Commit();
    }
    const std::vector<VerdictRecord> told = Finish({&a, &b});
    EXPECT_EQ(told[0], told[1]);
    EXPECT_EQ(told[0].value.outcome, Outcome::kCommitted);
    EXPECT_EQ(told[0].value.contributors.size(), 2u);
    for (RigWorker* worker : {&a, &b}) {
      EXPECT_EQ(worker->results[0], ReferenceAverage(weights));
      EXPECT_EQ(worker->results[1], ReferenceAverage(biases));
    }
  }
  EXPECT_EQ(loopback.server.counters().streams, 4u);
  EXPECT_EQ(loopback.server.counters().sessions, 2u);
}

// Begin, frames and commit of a worker are one message, and so are its result and Prepared.
TEST(TransportRound, ASmallRoundIsFourMessagesForEachWorker) {
  const Model model = AverageOf({F32("weight", 100)}, 2);
  Loopback loopback;
  loopback.batches = true;
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  a.features = b.features = kFeatureBatches;
  Join({&a, &b});
  const TransportCounters& counters = loopback.server.counters();
  for (int round = 0; round < 3; ++round) {
    const uint64_t received = counters.messages_received;
    const uint64_t sent = counters.messages_sent;
    for (RigWorker* worker : {&a, &b}) {
      worker->Begin();
      worker->Push(0, GradientOf(worker == &a ? 0 : 1, 100));
      worker->Commit();
    }
    const std::vector<VerdictRecord> told = Finish({&a, &b});
    EXPECT_EQ(told[0].value.contributors.size(), 2u);
    EXPECT_EQ(a.results[0], ReferenceAverage({GradientOf(0, 100), GradientOf(1, 100)}));
    EXPECT_EQ(b.results[0], a.results[0]);
    // This worker acknowledges the result in a message of its own.
    EXPECT_LE(counters.messages_received - received, 2 * 3u);
    EXPECT_EQ(counters.messages_sent - sent, 2 * 2u);
  }
  EXPECT_EQ(loopback.batched_results, 3 * 2u);
}

// Some workers have an older client, in the same round.
TEST(TransportRound, AWorkerWithoutBatchesIsServedBesideOneWithThem) {
  const Model model = AverageOf({F32("weight", 100)}, 2);
  Loopback loopback;
  loopback.batches = true;
  RigWorker a(loopback, "a", model);
  a.features = kFeatureBatches;
  a.Connect();
  a.Ready();
  loopback.batches = false;
  RigWorker b(loopback, "b", model);
  Join({&b});
  EXPECT_EQ(b.welcome->features, 0u);
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, GradientOf(worker == &a ? 0 : 1, 100));
    worker->Commit();
  }
  Finish({&a, &b});
  EXPECT_EQ(a.results[0], ReferenceAverage({GradientOf(0, 100), GradientOf(1, 100)}));
  EXPECT_EQ(b.results[0], a.results[0]);
  EXPECT_EQ(loopback.batched_results, 1u);
}

// Rule: a result is serialised once for all receivers.
TEST(TransportRound, AResultIsSerialisedOnceForAllItsReceivers) {
  constexpr uint32_t kWorkers = 4;
  const size_t elements = 8 * kChunkFloats;
  const Model model = AverageOf({F32("weight", elements)}, kWorkers);
  Loopback loopback;
  std::vector<std::unique_ptr<RigWorker>> workers;
  std::vector<RigWorker*> all;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<RigWorker>(loopback, std::string(1, 'a' + i), model));
    all.push_back(workers.back().get());
  }
  Join(all);
  for (uint32_t i = 0; i < kWorkers; ++i) {
    all[i]->Begin();
    all[i]->Push(0, GradientOf(i, elements));
    all[i]->Commit();
  }
  Finish(all);
  uint64_t received = 0;
  for (const RigWorker* worker : all) received += worker->result_frames;
  EXPECT_EQ(received, kWorkers * loopback.server.counters().frames_encoded);
}

TEST(TransportRound, TakesContributionsInANarrowerDtype) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Loopback loopback;
  RigWorker wide(loopback, "a", model);
  RigWorker narrow(loopback, "b", model);
  narrow.wire_dtype = DType::kBF16;
  narrow.wire_exponent = 3;
  Join({&wide, &narrow});
  wide.Begin();
  narrow.Begin();
  wide.Push(0, Floats(2 * kChunkFloats, [](size_t) { return 1.0F; }));
  // 3.0 times 2^3 as bf16: the upper half of the f32 24.0, 0x41c00000.
  std::string halves;
  for (size_t i = 0; i < 2 * kChunkFloats; ++i) halves += {'\xc0', '\x41'};
  narrow.Push(0, halves);
  wide.Commit();
  narrow.Commit();
  Finish({&wide, &narrow});
  EXPECT_EQ(FloatAt(wide.results[0], 0), 2.0F);
  EXPECT_EQ(FloatAt(wide.results[0], 2 * kChunkFloats - 1), 2.0F);
  EXPECT_EQ(wide.results[0], narrow.results[0]);
}

// Several workers, each on a thread of its own, through many rounds.
TEST(TransportRound, ManyThreadsManyRounds) {
  constexpr uint32_t kWorkers = 4;
  constexpr int kRounds = 10;
  const size_t elements = 5 * kChunkFloats + 11;
  const Model model = AverageOf({F32("a", elements), F32("b", 17)}, kWorkers);
  EngineOptions options;
  options.reduce_threads = 2;
  Loopback loopback({}, options);
  std::vector<std::unique_ptr<RigWorker>> workers;
  std::vector<RigWorker*> all;
  std::vector<std::string> gradients;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<RigWorker>(loopback, std::string(1, 'a' + i), model));
    workers.back()->streams_wanted = 1 + i % 3;
    all.push_back(workers.back().get());
    gradients.push_back(GradientOf(i, elements));
  }
  Join(all);
  const std::string average = ReferenceAverage(gradients);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      RigWorker& worker = *workers[i];
      for (int round = 0; round < kRounds; ++round) {
        worker.Begin();
        worker.Push(0, gradients[i], 1 + i, i % 2 == 1);
        worker.Push(1, GradientOf(i, 17));
        worker.Commit();
        worker.Stage();
        EXPECT_EQ(worker.Verdict().value.contributors.size(), kWorkers);
        EXPECT_EQ(worker.results[0], average);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // gRPC may still hold the last results.
  Await([&] { return loopback.engine.pool().used_bytes() == 0; });
}

TEST(TransportRound, Fault_N2_ResultsOfALostStreamComeOnAnother) {
  const Model model = AverageOf({F32("weight", 8 * kChunkFloats)}, 2);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  Join({&a, &b});
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, GradientOf(worker == &a ? 0 : 1, 8 * kChunkFloats));
    worker->Commit();
  }
  const StreamId lost = a.streams[0];
  ASSERT_TRUE(loopback.transport.Await(
      lost, [](QueueTransport::Connection& connection) { return !connection.frames.empty(); }));
  loopback.CloseStream(lost);
  a.streams.erase(a.streams.begin());
  EXPECT_EQ(Finish({&a, &b})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(a.results[0], b.results[0]);
  EXPECT_GT(loopback.Look<uint64_t>([](const Runner& r) { return r.counters().results_resent; }),
            0u);
}

}  // namespace
}  // namespace basin::aggregator
