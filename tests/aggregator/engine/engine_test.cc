// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whole rounds through the engine: threads, real bytes, the real reduction, a manual clock.

#include "aggregator/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "aggregator/engine/result_arena.h"
#include "kernels/float16.h"
#include "kernels/reference.h"
#include "protocol/limits/limits.h"
#include "tests/aggregator/engine/in_process.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

TEST(Engine, AveragesWhatItsWorkersSendBitForBit) {
  const size_t elements = 5 * kChunkFloats + 1234;
  const Model model = AverageOf({F32("weight", elements), F32("bias", 3)}, 3);
  Rig rig;
  std::vector<std::unique_ptr<RigWorker>> workers;
  for (const char* id : {"a", "b", "c"}) {
    workers.push_back(std::make_unique<RigWorker>(rig, id, model));
  }
  Join({workers[0].get(), workers[1].get(), workers[2].get()});
  std::vector<std::string> weights;
  std::vector<std::string> biases;
  for (uint32_t i = 0; i < 3; ++i) {
    weights.push_back(GradientOf(i, elements));
    biases.push_back(GradientOf(i + 3, 3));
  }
  for (uint32_t i = 0; i < 3; ++i) {
    workers[i]->Begin();
    workers[i]->Push(1, biases[i]);
    workers[i]->Push(0, weights[i], /*chunks=*/2, /*backwards=*/i == 1);
    workers[i]->Commit();
  }
  const auto told = Finish({workers[0].get(), workers[1].get(), workers[2].get()});
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told[i], told[0]);
    EXPECT_EQ(told[i].value.outcome, Outcome::kCommitted);
    EXPECT_EQ(told[i].value.divisor, 3u);
    EXPECT_EQ(told[i].value.contributors.size(), 3u);
    EXPECT_EQ(workers[i]->results[0], ReferenceAverage(weights));
    EXPECT_EQ(workers[i]->results[1], ReferenceAverage(biases));
  }
}

// Rule 4: the bits do not depend on the order of arrival, on the frames or on the threads.
TEST(Engine, ResultDoesNotDependOnOrderFramesOrThreads) {
  const size_t elements = 3 * kChunkFloats + 7;
  const Model model = AverageOf({F32("weight", elements)}, 2);
  std::vector<std::string> seen;
  for (const uint32_t threads : {1u, 3u}) {
    for (const bool backwards : {false, true}) {
      EngineOptions options;
      options.reduce_threads = threads;
      Rig rig(options);
      RigWorker a(rig, "a", model);
      RigWorker b(rig, "b", model);
      a.piece_bytes = backwards ? 977 : size_t{1} << 20;
      Join({&a, &b});
      RigWorker& first = backwards ? b : a;
      RigWorker& second = backwards ? a : b;
      for (RigWorker* worker : {&first, &second}) {
        worker->Begin();
        worker->Push(0, GradientOf(worker == &a ? 0 : 1, elements), backwards ? 1 : 4, backwards);
        worker->Commit();
      }
      Finish({&a, &b});
      EXPECT_EQ(a.results[0], b.results[0]);
      seen.push_back(a.results[0]);
    }
  }
  for (const std::string& result : seen) EXPECT_EQ(result, seen[0]);
}

TEST(Engine, TakesContributionsInANarrowerDtype) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Rig rig;
  RigWorker wide(rig, "a", model);
  RigWorker narrow(rig, "b", model);
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

TEST(Engine, HoldsNothingAfterTheRound) {
  const Model model = AverageOf({F32("weight", 4 * kChunkFloats)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  for (int round = 0; round < 3; ++round) {
    a.Begin();
    a.Push(0, GradientOf(0, 4 * kChunkFloats));
    EXPECT_GT(rig.Look<uint64_t>([](const Runner& runner) { return runner.parked_bytes(); }), 0u);
    b.Begin();
    b.Push(0, GradientOf(1, 4 * kChunkFloats));
    a.Commit();
    b.Commit();
    Finish({&a, &b});
    EXPECT_EQ(rig.Look<uint64_t>([](const Runner& runner) {
      return runner.parked_bytes() + runner.result_bytes();
    }),
              0u);
  }
  EXPECT_EQ(rig.engine.pool().used_bytes(), 0u);
  EXPECT_GT(rig.engine.pool().idle_bytes(), 0u);
}

TEST(Engine, Fault_N8_CorruptChunkEndsItsStreamAndIsSentAgain) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  a.Begin();
  const StreamId broken = a.streams[0];
  const std::string gradient = GradientOf(0, kChunkFloats);
  a.PushFrame(broken, 0, 0, 1, gradient, /*break_digest=*/true);
  ASSERT_TRUE(rig.transport.Await(
      broken, [](QueueTransport::Connection& connection) { return connection.closed; }));
  rig.transport.Await(broken, [](QueueTransport::Connection& connection) {
    EXPECT_EQ(connection.why.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(connection.why.message().find("weight"), std::string::npos) << connection.why;
    return true;
  });
  a.streams.erase(a.streams.begin());
  a.Push(0, gradient);
  a.Commit();
  EXPECT_EQ(Finish({&a})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(a.results[0], gradient);
  EXPECT_EQ(rig.Look<uint64_t>([](const Runner& r) { return r.counters().corrupt_frames; }), 1u);
}

TEST(Engine, Fault_N10_FrameOfNoTensorEndsItsStreamAndNothingElse) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 2);
  Model other = model;
  other.tensors.push_back(F32("unknown", kChunkFloats));
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", other);
  Join({&a, &b});
  b.Begin();
  const StreamId wrong = b.streams[0];
  IncomingFrame frame;
  frame.header = ContributionHeader{b.lane, 1, {17, 0, 1}};
  frame.payload = std::make_shared<StringPayload>("12345678", 8);
  frame.payload_bytes = 8;
  frame.contents = HashChunks(frame.payload->pieces(), kChunkBytes);
  rig.engine.OnFrame(wrong, std::move(frame));
  absl::Status why;
  ASSERT_TRUE(rig.transport.Await(wrong, [&](QueueTransport::Connection& connection) {
    why = connection.why;
    return connection.closed;
  }));
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(why.message().find("tensor 17"), std::string::npos) << why;
  b.streams.erase(b.streams.begin());
  a.Begin();
  for (RigWorker* worker : {&a, &b}) {
    worker->Push(0, GradientOf(0, kChunkFloats));
    worker->Commit();
  }
  for (const VerdictRecord& record : Finish({&a, &b})) {
    EXPECT_EQ(record.value.contributors.size(), 2u);
  }
}

TEST(Engine, RefusesAStreamOfNoSession) {
  Rig rig;
  const StreamId stream = rig.engine.OpenStream(12345);
  absl::Status why;
  ASSERT_TRUE(rig.transport.Await(stream, [&](QueueTransport::Connection& connection) {
    why = connection.why;
    return connection.closed;
  }));
  EXPECT_EQ(why.code(), absl::StatusCode::kNotFound);
}

TEST(Engine, Fault_N11_ASessionHasSoManyStreams) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  a.streams_wanted = kMaxStreams;
  Join({&a});
  const StreamId more = rig.engine.OpenStream(a.welcome->token);
  absl::Status why;
  ASSERT_TRUE(rig.transport.Await(more, [&](QueueTransport::Connection& connection) {
    why = connection.why;
    return connection.closed;
  }));
  EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
}

// The loss of a completes the round of one lane, to which b has pushed, and leaves no holder of the
// adopted value of the other: the job recovers, and its lanes are removed before they are reduced.
TEST(Engine, Fault_A2_ALossThatCompletesAChunkMayEndItsLane) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  StagedValue staged{1, {1, 1}, {1, 1}, {}};
  staged.value.outcome = Outcome::kCommitted;
  staged.value.spec = model.spec;
  staged.value.contributors = {{"a", {1, 1}, 1}, {"b", {1, 2}, 1}};
  staged.value.divisor = 2;
  staged.value.layout_version = 1;
  staged.value.generation = {1, 1};
  staged.value.contract_version = kContractVersion;
  staged.value.world_size = 2;
  uint64_t number = 0;
  for (RigWorker* worker : {&a, &b}) {
    Hello hello;
    hello.job = kJob;
    hello.run = "run";
    hello.worker = worker->id;
    hello.nonce = ++number;
    hello.settings = model.settings;
    hello.incarnation = {1, number};
    hello.membership = {{1, 1}, {{"a", "b"}}};
    for (const char* name : {"first", "second"}) {
      LaneHistory lane;
      lane.name = name;
      lane.lane = static_cast<LaneIndex>(hello.lanes.size());
      lane.layout = model.tensors;
      hello.lanes.push_back(lane);
    }
    if (worker == &a) hello.lanes[1].staged = staged;
    worker->session = rig.OpenSession();
    worker->Send(hello);
  }
  b.welcome = b.Await<Welcome>();
  b.OpenStream();
  b.Begin();
  b.Push(0, GradientOf(0, kChunkFloats));
  b.Commit();
  const auto state = [&] {
    return rig.Look<JobState>([](const Runner& r) { return r.core().FindJob(kJob)->state(); });
  };
  ASSERT_EQ(state(), JobState::kRunning);
  rig.engine.Command(WorkerExited{kJob, "a"});
  EXPECT_EQ(state(), JobState::kRecovering);
}

// Its frames are still those of the job that it was welcomed to.
TEST(Engine, Fault_N10_AnotherHelloChangesNothing) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  Hello again;
  again.job = "other";
  again.worker = "a";
  again.nonce = 77;
  a.Send(again);
  a.Begin();
  a.Push(0, GradientOf(0, kChunkFloats));
  a.Commit();
  EXPECT_EQ(Finish({&a})[0].value.outcome, Outcome::kCommitted);
}

TEST(Engine, GivesBackWhatItHasRead) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  a.streams_wanted = 1;
  Join({&a});
  a.Begin();
  a.Push(0, GradientOf(0, kChunkFloats));
  EXPECT_TRUE(rig.transport.Await(a.streams[0], [](QueueTransport::Connection& connection) {
    return connection.consumed == kChunkBytes;
  }));
  EXPECT_TRUE(rig.transport.Await(
      a.session, [](QueueTransport::Connection& connection) { return connection.consumed >= 3; }));
}

TEST(Engine, Fault_N2_ResultsOfALostStreamComeOnAnother) {
  const Model model = AverageOf({F32("weight", 8 * kChunkFloats)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, GradientOf(worker == &a ? 0 : 1, 8 * kChunkFloats));
    worker->Commit();
  }
  // Something was sent to a on this stream; a never reads it.
  const StreamId lost = a.streams[0];
  ASSERT_TRUE(rig.transport.Await(
      lost, [](QueueTransport::Connection& connection) { return !connection.frames.empty(); }));
  rig.engine.CloseStream(lost);
  a.streams.erase(a.streams.begin());
  EXPECT_EQ(Finish({&a, &b})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(a.results[0], b.results[0]);
  EXPECT_GT(rig.Look<uint64_t>([](const Runner& r) { return r.counters().results_resent; }), 0u);
}

TEST(Engine, ResultsWaitForAStream) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  a.Begin();
  const std::string gradient = GradientOf(0, kChunkFloats);
  a.Push(0, gradient);
  rig.engine.CloseStream(a.streams[0]);
  rig.engine.CloseStream(a.streams[1]);
  a.streams.clear();
  a.Commit();
  a.OpenStream();
  EXPECT_EQ(Finish({&a})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(a.results[0], gradient);
}

// W1: the chunks of a process that died are in no tensor of the result.
TEST(Engine, ValuesAreCountedAsNeitherContributionsNorResults) {
  const Model model = AverageOf({F32("weight", kChunkFloats)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  const BlobKey key = {kLane, "weight", 1};
  a.Send(Announce{key, model.tensors[0], 9});
  b.Send(Get{key, std::nullopt, std::nullopt, 0, 1, absl::Minutes(1)});
  a.Await<basin::Ask>();
  IncomingFrame frame;
  frame.header = BlobHeader{key, 0, 1};
  frame.payload = std::make_shared<StringPayload>(GradientOf(0, kChunkFloats), kChunkBytes);
  frame.payload_bytes = kChunkBytes;
  frame.contents = HashChunks(frame.payload->pieces(), kChunkBytes);
  rig.OnFrame(a.streams[0], std::move(frame));
  EXPECT_NE(0u, rig.transport.AwaitAny(b.streams, [](QueueTransport::Connection& connection) {
    if (connection.frames.empty()) return false;
    EXPECT_TRUE(std::holds_alternative<BlobHeader>(connection.frames.front().header));
    connection.frames.clear();
    return true;
  }));
  const auto contributed = [](const Runner& runner) {
    return runner.counters().contribution_bytes;
  };
  const auto resulted = [](const Runner& runner) { return runner.counters().result_bytes; };
  EXPECT_EQ(0u, rig.Look<uint64_t>(contributed));
  EXPECT_EQ(0u, rig.Look<uint64_t>(resulted));

  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, GradientOf(0, kChunkFloats));
    worker->Commit();
  }
  Finish({&a, &b});
  EXPECT_EQ(2 * kChunkBytes, rig.Look<uint64_t>(contributed));
  EXPECT_EQ(2 * kChunkBytes, rig.Look<uint64_t>(resulted));
}

TEST(Engine, Fault_W1_ProcessThatDiesIsNotCountedAfterItsShortGrace) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats), F32("bias", 5)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  a.Begin();
  b.Begin();
  b.Push(0, GradientOf(1, 2 * kChunkFloats));
  a.Push(0, GradientOf(0, 2 * kChunkFloats));
  a.Push(1, GradientOf(2, 5));
  a.Commit();
  // One tensor of both has been reduced.
  ASSERT_NE(rig.transport.AwaitAny(
                {a.streams[0], a.streams[1]},
                [](QueueTransport::Connection& connection) { return !connection.frames.empty(); }),
            0u);
  b.Die();
  rig.Pass(absl::ZeroDuration());     // The end is noticed,
  rig.Pass(absl::Milliseconds(20));   // found to be that of all connections,
  rig.Pass(absl::Milliseconds(300));  // and the grace of an ended process passes.
  const VerdictRecord record = Finish({&a})[0];
  EXPECT_EQ(record.value.divisor, 1u);
  ASSERT_EQ(record.value.contributors.size(), 1u);
  EXPECT_EQ(record.value.contributors[0].worker, "a");
  EXPECT_EQ(a.results[0], GradientOf(0, 2 * kChunkFloats));
  EXPECT_EQ(a.results[1], GradientOf(2, 5));
}

// The loop is late, so the worker is back before the loop reads its hello, but after its short
// grace.
TEST(Engine, Fault_A4_AWorkerWhoseHelloWaitsForTheLoopIsNotLost) {
  const Model model = AverageOf({F32("weight", 5)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  b.Die();
  rig.Pass(absl::ZeroDuration());    // The end is noticed,
  rig.Pass(absl::Milliseconds(20));  // and found to be that of all connections.
  std::promise<void> looking;
  std::promise<void> go_on;
  rig.engine.Inspect([&](const Runner&, absl::Time) {
    looking.set_value();
    go_on.get_future().wait();
  });
  looking.get_future().wait();
  // Another worker comes first, and its turn judges the deadline that has passed meanwhile.
  a.Send(Heartbeat{});
  const SessionId back = rig.OpenSession();
  Hello hello = b.HelloOf();
  hello.incarnation = b.welcome->incarnation;
  rig.OnMessage(back, std::move(hello));
  rig.clock.Advance(absl::Milliseconds(300));
  go_on.set_value();
  rig.Look<int>([](const Runner&) { return 0; });
  EXPECT_TRUE(rig.notes.OfKind(NoteKind::kWorkerLost).empty());
  EXPECT_FALSE(rig.notes.OfKind(NoteKind::kWorkerReconnected).empty());
}

// A connection that breaks while the data streams stay open does not mean that the process ended:
// the lease counts.
TEST(Engine, BrokenSessionKeepsItsLease) {
  const Model model = AverageOf({F32("weight", 5)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  a.Begin();
  b.Begin();
  a.Push(0, GradientOf(0, 5));
  a.Commit();
  b.LoseSession();
  rig.Pass(absl::ZeroDuration());
  for (int i = 0; i < 30; ++i) {
    rig.Pass(absl::Milliseconds(100));
    a.Send(Heartbeat{});
  }
  EXPECT_TRUE(rig.notes.OfKind(NoteKind::kWorkerLost).empty());
  EXPECT_EQ(rig.notes.OfKind(NoteKind::kWorkerDisconnected).size(), 1u);
  EXPECT_EQ(rig.Look<size_t>([](const Runner& runner) { return runner.streams(); }), 2u);
  for (int i = 0; i < 30; ++i) {
    rig.Pass(absl::Milliseconds(100));
    a.Send(Heartbeat{});
  }
  EXPECT_EQ(Finish({&a})[0].value.divisor, 1u);
  EXPECT_EQ(rig.notes.OfKind(NoteKind::kWorkerLost).size(), 1u);
}

// After an interruption TCP delivers the earlier messages and then the end, all at once.
TEST(Engine, Fault_N3_ConnectionsThatAreGivenUpInAnInterruptionKeepTheirLease) {
  const Model model = AverageOf({F32("weight", 5)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  a.Begin();
  b.Begin();
  a.Push(0, GradientOf(0, 5));
  a.Commit();
  for (int i = 0; i < 15; ++i) {
    rig.Pass(absl::Milliseconds(100));
    a.Send(Heartbeat{});
  }
  b.Send(Heartbeat{});
  b.Die();
  rig.Pass(absl::ZeroDuration());
  for (int i = 0; i < 20; ++i) {
    rig.Pass(absl::Milliseconds(100));
    a.Send(Heartbeat{});
  }
  EXPECT_TRUE(rig.notes.OfKind(NoteKind::kWorkerLost).empty());
  EXPECT_EQ(rig.notes.OfKind(NoteKind::kWorkerDisconnected).size(), 1u);
  EXPECT_EQ(rig.Look<size_t>([](const Runner& runner) { return runner.streams(); }), 2u);
  for (int i = 0; i < 40; ++i) {
    rig.Pass(absl::Milliseconds(100));
    a.Send(Heartbeat{});
  }
  EXPECT_EQ(Finish({&a})[0].value.divisor, 1u);
  EXPECT_EQ(rig.notes.OfKind(NoteKind::kWorkerLost).size(), 1u);
}

// Facts come with the result, at no extra read.
TEST(Engine, Fault_W12_NamesTheFirstInputThatIsNotFinite) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  const size_t bad = kChunkFloats + 77;
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, Floats(2 * kChunkFloats,
                           [&](size_t i) { return worker == &b && i == bad ? NAN : 1.0F; }));
    worker->Commit();
  }
  const VerdictRecord record = Finish({&a, &b})[0];
  ASSERT_TRUE(record.value.facts.nonfinite.has_value());
  EXPECT_EQ(record.value.facts.nonfinite->worker, "b");
  EXPECT_EQ(record.value.facts.nonfinite->element, bad);
  EXPECT_TRUE(std::isnan(FloatAt(a.results[0], bad)));
  EXPECT_EQ(FloatAt(a.results[0], bad + 1), 1.0F);
  EXPECT_EQ(a.results[0], b.results[0]);
}

TEST(Engine, NormIsThatOfTheResult) {
  const Model model = AverageOf({F32("weight", 1000)}, 1);
  Rig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  a.Begin();
  a.Push(0, Floats(1000, [](size_t) { return 2.0F; }));
  a.Commit();
  EXPECT_EQ(Finish({&a})[0].value.facts.squared_norm, 4000.0);
}

// The norm of all tensors by the scalar oracle, in the order of their names.
double ReferenceNorm(const Model& model, const std::vector<std::string>& results) {
  std::map<std::string, double> by_name;
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorSpec& tensor = model.tensors[i];
    by_name[tensor.name] = kernels::ReferenceSquaredNorm(
        tensor.dtype, results[i].data(), results[i].size() / ElementSize(tensor.dtype));
  }
  double norm = 0;
  for (const auto& [name, squared] : by_name) norm += squared;
  return norm;
}

// Values that are finite in every dtype, with magnitudes for which each order of addition has
// another sum.
std::string Elements(DType dtype, size_t count, uint32_t seed) {
  std::string bytes(count * ElementSize(dtype), '\0');
  for (size_t i = 0; i < count; ++i) {
    const float value =
        std::ldexp(1.0F + static_cast<float>((i * 2654435761U + seed) % 8191) / 8192,
                   static_cast<int>((i * 40503U + seed) % 11) - 5);
    char* at = bytes.data() + i * ElementSize(dtype);
    if (dtype == DType::kF64) {
      const double wide = value * (1 + 0x1p-40);
      std::memcpy(at, &wide, sizeof(wide));
    } else if (dtype == DType::kF32) {
      std::memcpy(at, &value, sizeof(value));
    } else {
      const uint16_t half =
          dtype == DType::kF16 ? kernels::NarrowToF16(value) : kernels::NarrowToBF16(value);
      std::memcpy(at, &half, sizeof(half));
    }
  }
  return bytes;
}

// For every dtype and length, the norm does not depend on the frames, the order of the names or the
// order of arrival.
TEST(Engine, NormIsAddedInOneOrder) {
  constexpr uint64_t kBlock = kernels::kNormBlockElements;
  uint32_t seed = 0;
  for (const uint64_t elements :
       {kBlock / 2 - 1, kBlock, 2 * kBlock + 1, 5 * kBlock + kBlock / 2, 7 * kBlock - 3}) {
    const Model model = AverageOf({{"z", DType::kF16, {elements}},
                                   {"d", DType::kF64, {elements}},
                                   {"a", DType::kF32, {elements}},
                                   {"i", DType::kI32, {0}},
                                   {"b", DType::kBF16, {elements}}},
                                  2);
    Rig rig;
    RigWorker a(rig, "a", model);
    RigWorker b(rig, "b", model);
    Join({&a, &b});
    double norm = 0;
    for (int order = 0; order < 3; ++order) {
      for (RigWorker* worker : {&a, &b}) {
        worker->Begin();
        for (TensorIndex i = 0; i < model.tensors.size(); ++i) {
          const TensorIndex tensor = order == 1 ? model.tensors.size() - 1 - i : i;
          const TensorSpec& spec = model.tensors[tensor];
          worker->Push(tensor, Elements(spec.dtype, spec.shape[0], worker == &a ? seed : seed + 1),
                       order + 1, order == 1);
        }
        worker->Commit();
      }
      const VerdictRecord record = Finish({&a, &b})[0];
      ASSERT_EQ(record.value.outcome, Outcome::kCommitted);
      norm = record.value.facts.squared_norm;
      EXPECT_EQ(norm, ReferenceNorm(model, a.results)) << elements << " elements, order " << order;
      EXPECT_GT(norm, 0.0);
    }
    seed += 17;
  }
}

// One tensor of 1000 elements, and two workers.
Model AverageBySamples() {
  Model model = AverageOf({F32("weight", 1000)}, 2);
  model.spec.op = ReduceOp::kWeightedAverage;
  model.spec.weight_by = WeightBy::kSamples;
  return model;
}

// The weights of a weighted average are all 0: there is no result, and no norm.
TEST(Engine, Criterion_3_3_WeightsThatSumToZeroGiveNoResult) {
  const Model model = AverageBySamples();
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin(Counts{0, {}, {}});
    worker->Push(0, Floats(1000, [](size_t) { return NAN; }));
    worker->Commit();
  }
  const VerdictRecord record = Finish({&a, &b})[0];
  EXPECT_EQ(record.value.outcome, Outcome::kCommitted);
  EXPECT_EQ(record.value.divisor, 0u);
  EXPECT_EQ(record.value.digest, 0u);
  EXPECT_EQ(record.value.facts.squared_norm, 0.0);
}

// A contribution of weight 0 is not read, so the first number that is not finite is sought among
// the others.
TEST(Engine, Criterion_3_3_WhatIsNotFiniteWithWeightZeroIsNotCountedAndNotNamed) {
  const Model model = AverageBySamples();
  Rig rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  for (const bool both : {false, true}) {
    for (RigWorker* worker : {&a, &b}) {
      worker->Begin(Counts{worker == &a ? 0 : 2, {}, {}});
      worker->Push(0, Floats(1000, [&](size_t i) {
                     if (worker == &a) return i == 3 ? NAN : INFINITY;
                     return both && i == 7 ? -INFINITY : 2.0F;
                   }));
      worker->Commit();
    }
    const VerdictRecord record = Finish({&a, &b})[0];
    const RoundFacts& facts = record.value.facts;
    EXPECT_EQ(FloatAt(a.results[0], 3), 2.0F);
    EXPECT_FALSE(facts.overflow);
    ASSERT_EQ(facts.nonfinite.has_value(), both);
    if (both) {
      EXPECT_TRUE(*facts.nonfinite == (NonFinite{"b", 0, 7}));
    } else {
      EXPECT_EQ(facts.squared_norm, 4000.0);
    }
  }
}

// A constant that no f32 holds is the fault of the peers, and must not end the process.
TEST(Engine, ReductionThatCannotBeMadeAbortsTheRound) {
  Model model = AverageOf({F32("weight", 1000)}, 1);
  model.spec.prescale = 1e300;
  Rig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  a.Begin();
  a.Push(0, GradientOf(0, 1000));
  a.Commit();
  const VerdictRecord record = Finish({&a})[0];
  EXPECT_EQ(record.value.outcome, Outcome::kAborted);
  EXPECT_NE(record.value.reason.find("weight"), std::string::npos) << record.value.reason;
}

class RecordingStateFile : public StateFile {
 public:
  absl::Status Save(const SaveState& state) override {
    MutexLock lock(mutex_);
    saved_.push_back(state.membership);
    return absl::OkStatus();
  }
  absl::Status Save(const SaveSettings& /*settings*/) override { return absl::OkStatus(); }
  std::vector<Membership> saved() const {
    MutexLock lock(mutex_);
    return saved_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Membership> saved_ ABSL_GUARDED_BY(mutex_);
};

TEST(Engine, WritesAGenerationDownBeforeItIsTold) {
  const Model model = AverageOf({F32("weight", 5)}, 1);
  RecordingStateFile file;
  EngineOptions options;
  options.core.state_file = true;
  Rig rig(options, &file);
  RigWorker a(rig, "a", model);
  a.Connect();
  a.Ready();
  const MembershipChanged told = a.Await<MembershipChanged>();
  const std::vector<Membership> saved = file.saved();
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.back(), told.membership);
}

TEST(Engine, DrainEndsWhenNothingIsOpen) {
  const Model model = AverageOf({F32("weight", 5)}, 1);
  ManualClock clock;
  QueueTransport transport;
  NoteBook notes;
  const auto reducer = kernels::MakeCpuReducer();
  Engine engine(EngineOptions{}, clock, *reducer, notes, nullptr);
  Mutex mutex;
  Condition changed;
  bool drained = false;
  engine.OnDrained([&] {
    MutexLock lock(mutex);
    drained = true;
    changed.NotifyAll();
  });
  engine.Start(transport);
  engine.Command(DrainService{});
  {
    MutexLock lock(mutex);
    while (!drained) changed.Wait(mutex);
  }
  engine.Stop();
  EXPECT_EQ(notes.OfKind(NoteKind::kDraining).size(), 1u);
}

// A flood from one worker delays the others by one message, not by all of its messages that wait.
TEST(Engine, Fault_N12_TakesAMessageOfEachConnectionInTurn) {
  const Model model = AverageOf({F32("w", 16)}, 2);
  Rig rig;
  RigWorker flood(rig, "a", model);
  RigWorker other(rig, "b", model);
  flood.Connect();
  other.Connect();
  std::promise<void> looking;
  std::promise<void> go_on;
  rig.engine.Inspect([&](const Runner&, absl::Time) {
    looking.set_value();
    go_on.get_future().wait();
  });
  looking.get_future().wait();
  for (int i = 0; i < 1000; ++i) flood.Send(Busy{"flood", absl::Seconds(1)});
  other.Send(Busy{"once", absl::Seconds(1)});
  go_on.set_value();
  LookAt<bool>(rig.engine, [](const Runner&) { return true; });
  const std::vector<Note> notes = rig.notes.OfKind(NoteKind::kWorkerBusy);
  ASSERT_EQ(notes.size(), 1001u);
  const auto once =
      std::find_if(notes.begin(), notes.end(), [](const Note& note) { return note.worker == "b"; });
  EXPECT_LE(once - notes.begin(), 1);
}

// A small round would otherwise wake two threads for each message.
TEST(Engine, AnIdleLoopsWorkIsDoneByTheThreadThatBringsASmallMessage) {
  const Model model = AverageOf({F32("weight", 3)}, 1);
  Rig rig;
  RigWorker worker(rig, "a", model);
  worker.Connect();
  bool here = false;
  // The loop's thread may still be on its way to sleep, more often on a busy machine.
  for (int i = 0; i < 100'000 && !here; ++i) {
    rig.Look<int>([](const Runner&) { return 0; });
    rig.engine.OnMessage(worker.session, Register{kLane, LaneKind::kGradient, {}}, 1);
    rig.transport.Await(worker.session, [&](QueueTransport::Connection& connection) {
      here = connection.sender == std::this_thread::get_id();
      return !connection.messages.empty();
    });
    worker.Await<LaneLayout>();
  }
  EXPECT_TRUE(here);
}

// Several workers, each on its own thread, through many rounds: for ThreadSanitizer.
// ---- A10: memory that workers on this machine map, and its descriptors

// Whose workers map their results.
struct SharingRig : Rig {
  explicit SharingRig(EngineOptions options = {}) : Rig(WithMemory(std::move(options))) {
    transport.shares = true;
  }
  static EngineOptions WithMemory(EngineOptions options) {
    options.shared_result_bytes = uint64_t{1} << 30;
    return options;
  }
};

// Pushes only so many tensors, the first ones.
void RunSharedRound(RigWorker& worker, const Model& model, size_t tensors = SIZE_MAX) {
  worker.Begin();
  for (TensorIndex i = 0; i < std::min(tensors, model.tensors.size()); ++i) {
    worker.Push(i, std::string(*TensorBytes(model.tensors[i]), '\0'));
  }
  worker.Commit();
  Finish({&worker});
}

uint64_t SharedBytes(Rig& rig) {
  return rig.Look<uint64_t>([](const Runner& runner) { return runner.shared_bytes(); });
}

TEST(Engine, Fault_A10_AJobThatIsOverGivesBackWhatItsWorkersMapped) {
  const Model model = AverageOf({F32("weight", 100'000)}, 1);
  SharingRig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  RunSharedRound(a, model);
  EXPECT_GT(SharedBytes(rig), 0u);
  a.Send(Leave{});
  Await([&] { return SharedBytes(rig) == 0; });
  EXPECT_EQ(rig.Look<size_t>([](const Runner& runner) { return runner.core().jobs().size(); }), 1u)
      << "the job is still shown";
}

TEST(Engine, Fault_A10_ALaneThatRestsGivesItsPlaceToAnother) {
  const Model large = AverageOf({F32("weight", 100'000)}, 1);
  const Model small = AverageOf({F32("weight", 50'000)}, 1);
  EngineOptions options;
  options.core.lease = absl::Hours(1);
  options.most_arenas = 1;
  SharingRig rig(options);
  RigWorker a(rig, "a", large);
  RigWorker b(rig, "b", small);
  b.job = "another";
  Join({&a});
  Join({&b});
  RunSharedRound(a, large);
  // While it is being made, it may count twice.
  const uint64_t of_large = 2 * PlacesOf({large.tensors[0]}).end;
  Await([&] { return SharedBytes(rig) == of_large; });
  RunSharedRound(b, small);
  EXPECT_EQ(SharedBytes(rig), of_large) << "the lane of a was just used";
  rig.Pass(absl::Minutes(1));
  RunSharedRound(b, small);
  Await([&] { return SharedBytes(rig) < of_large; });
  EXPECT_GT(SharedBytes(rig), 0u);
  RunSharedRound(a, large);
  RunSharedRound(b, small);
}

TEST(Engine, ResultsOfTensorsThatAreUsedNoMoreHaveNoMemory) {
  const Model model = AverageOf({F32("weight", 50'000), F32("head", 100'000)}, 1);
  SharingRig rig;
  RigWorker a(rig, "a", model);
  Join({&a});
  const uint64_t of_both = 2 * PlacesOf(model.tensors).end;
  const uint64_t of_one = 2 * PlacesOf({model.tensors[0]}).end;
  RunSharedRound(a, model);
  Await([&] { return SharedBytes(rig) == of_both; });
  for (uint64_t i = 0; i < 2 * kResultExpiry; ++i) RunSharedRound(a, model, 1);
  Await([&] { return SharedBytes(rig) == of_one; });
  // One that comes back gets its place again, after some rounds.
  for (uint64_t i = 0; i < kResultExpiry; ++i) RunSharedRound(a, model);
  Await([&] { return SharedBytes(rig) == of_both; });
}

TEST(Engine, ManyThreadsManyRounds) {
  constexpr uint32_t kWorkers = 4;
  constexpr int kRounds = 10;
  const size_t elements = 2 * kChunkFloats + 11;
  const Model model = AverageOf({F32("a", elements), F32("b", 17)}, kWorkers);
  EngineOptions options;
  options.reduce_threads = 3;
  Rig rig(options);
  std::vector<std::unique_ptr<RigWorker>> workers;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<RigWorker>(rig, std::string(1, 'a' + i), model));
  }
  Join({workers[0].get(), workers[1].get(), workers[2].get(), workers[3].get()});
  std::vector<std::string> expected;
  for (uint32_t i = 0; i < kWorkers; ++i) expected.push_back(GradientOf(i, elements));
  const std::string average = ReferenceAverage(expected);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      RigWorker& worker = *workers[i];
      for (int round = 0; round < kRounds; ++round) {
        worker.Begin();
        worker.Push(0, expected[i], 1 + i, i % 2 == 1);
        worker.Push(1, GradientOf(i, 17));
        worker.Commit();
        worker.Stage();
        EXPECT_EQ(worker.Verdict().value.contributors.size(), kWorkers);
        EXPECT_EQ(worker.results[0], average);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The last buffers are released after the last verdict is sent.
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  while (rig.engine.pool().used_bytes() > 0 && absl::Now() < give_up) {
    rig.Look<bool>([](const Runner&) { return true; });
  }
  EXPECT_EQ(rig.engine.pool().used_bytes(), 0u);
}

}  // namespace
}  // namespace basin::aggregator
