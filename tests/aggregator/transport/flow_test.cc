// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Back-pressure in both directions: a slow receiver stops its sender, and no other stream.

#include <pthread.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/wire/frame.h"
#include "proto/wire/session_stream.h"
#include "runtime/grpc/byte_buffer.h"
#include "tests/aggregator/transport/loopback.h"

namespace basin::aggregator {
namespace {

using absl::StatusCode;

// The engine's loop stands still while this lives.
class Standstill {
 public:
  explicit Standstill(Engine& engine) : engine_(engine) {
    Stand();
    MutexLock lock(mutex_);
    while (!stands_) changed_.Wait(mutex_);
  }
  ~Standstill() {
    MutexLock lock(mutex_);
    over_ = true;
    changed_.NotifyAll();
    while (stands_) changed_.Wait(mutex_);
  }

 private:
  void Stand() {
    engine_.Inspect([this](const Runner&, absl::Time) {
      // A thread of gRPC that has just handled a message may take this turn; without it nothing
      // would be read.
      char name[16];
      pthread_getname_np(pthread_self(), name, sizeof name);
      if (std::string_view(name) != "basin-loop") return Stand();
      MutexLock lock(mutex_);
      stands_ = true;
      changed_.NotifyAll();
      while (!over_) changed_.Wait(mutex_);
      stands_ = false;
      changed_.NotifyAll();
    });
  }

  Engine& engine_;
  Mutex mutex_;
  Condition changed_;
  bool stands_ = false;
  bool over_ = false;
};

// One frame of 1 MiB, whose bytes are shared by all its sendings.
class Frames {
 public:
  grpc::ByteBuffer Next() { return frame_.WithSequence(++sequence_); }

 private:
  static SharedFrame Make() {
    const auto bytes = std::make_shared<OwnPayload>(std::string(kMiB, 'x'));
    PayloadParts payload;
    payload.Append({bytes, 0, kMiB});
    const wire::FrameHeader header{wire::ContributionHeader{0, 1, {0, 0, 4}}, {}, {}};
    return SharedFrame(*wire::EncodeFrame(header, payload.Pieces()), payload);
  }

  uint64_t sequence_ = 0;
  const SharedFrame frame_ = Make();
};

// With names of about 250 bytes.
std::vector<TensorSpec> ManyTensors(uint32_t count) {
  std::vector<TensorSpec> tensors;
  for (uint32_t i = 0; i < count; ++i) {
    tensors.push_back(F32(absl::StrCat(std::string(240, 'n'), i), 1));
  }
  return tensors;
}

// Reading stops until earlier messages are handled, and then continues.
TEST(TransportFlow, ReadingFollowsTheEngine) {
  constexpr uint64_t kFrames = 200;
  const Model model = AverageOf({F32("weight", 4 * kChunkFloats)}, 1);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  a.streams_wanted = 1;
  Join({&a});
  RawStream& stream = loopback.raw(a.streams[0]);
  uint64_t stopped_at = 0;
  {
    const Standstill standstill(loopback.engine);
    const uint64_t before = loopback.server.counters().bytes_received;
    Frames frames;
    for (uint64_t i = 0; i < kFrames; ++i) stream.Write(frames.Next());
    // The window of the reactor fills; then the buffers of gRPC and the system; then nothing moves.
    const uint64_t window = ServerOptions().exchange.window.bytes;
    Await([&] { return loopback.server.counters().bytes_received - before >= window; });
    stopped_at = stream.AwaitWrites(kFrames, absl::Seconds(1));
    EXPECT_LE(loopback.server.counters().bytes_received - before, window + 2 * kMiB);
    EXPECT_LT(stopped_at, 40u) << "MiB left a sender that nobody reads";
    RecordProperty("stopped_at_mib", std::to_string(stopped_at));
  }
  EXPECT_GE(stream.AwaitWrites(kFrames, absl::Minutes(1)), kFrames);
}

// Small messages are bounded by their number: each is an entry in the engine's inbox.
TEST(TransportFlow, ReadingIsBoundedByMessagesToo) {
  const Model model = AverageOf({F32("weight", 5)}, 1);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  Join({&a});
  RawStream& session = loopback.raw(a.session);
  const Standstill standstill(loopback.engine);
  const uint64_t before = loopback.server.counters().messages_received;
  const std::string heartbeat = Encoded(Heartbeat{});
  for (int i = 0; i < 2000; ++i) session.Write(heartbeat);
  // The window of the reactor fills; then nothing moves, though more was sent.
  const uint64_t window = ServerOptions().session.window.messages;
  Await([&] { return loopback.server.counters().messages_received - before >= window; });
  EXPECT_GT(session.AwaitWrites(window + 1, absl::Minutes(1)), window);
  session.AwaitWrites(2000, absl::Milliseconds(300));
  EXPECT_EQ(loopback.server.counters().messages_received - before, window);
}

// W13: a member that does not read its results does not keep them from the others.
TEST(TransportFlow, Fault_W13_SlowReaderDoesNotBlockOthers) {
  // More than gRPC and the system hold on the way to one reader.
  const size_t elements = 24 * 4 * kChunkFloats;
  const Model model = AverageOf({F32("weight", elements)}, 3);
  EngineOptions engine_options;  // Unacknowledged results of one worker do not delay the others.
  engine_options.core.window_bytes = engine_options.core.result_window_bytes = 64 * kMiB;
  Loopback loopback({}, engine_options);
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  RigWorker slow(loopback, "slow", model);
  slow.streams_wanted = 1;
  Join({&a, &b, &slow});
  loopback.raw(slow.streams[0]).StopReading();
  for (RigWorker* worker : {&a, &b, &slow}) {
    worker->Begin();
    worker->Push(0, GradientOf(0, elements));
    worker->Commit();
  }
  // The others have every result, and know that it is complete.
  a.Stage();
  b.Stage();
  EXPECT_TRUE(a.results[0] == b.results[0]);
  loopback.transport.Await(slow.streams[0], [](QueueTransport::Connection& connection) {
    EXPECT_LE(connection.frames.size(), 2u) << "of 24: it did not read";
    return true;
  });
  // It was only late.
  loopback.raw(slow.streams[0]).ReadOn();
  slow.Stage();
  EXPECT_EQ(slow.Verdict().value.contributors.size(), 3u);
  EXPECT_EQ(a.Verdict(), b.Verdict());
  EXPECT_TRUE(slow.results[0] == a.results[0]);
}

// The core limits the results that a worker has not acknowledged; a worker that acknowledges
// results without reading them reaches the limit of the stream.
TEST(TransportFlow, Fault_W13_StreamWhoseReaderPretendsToReadEndsAtItsBound) {
  const size_t elements = 24 * 4 * kChunkFloats;
  const Model model = AverageOf({F32("weight", elements)}, 2);
  ServerOptions server_options;
  server_options.exchange.queue_bytes = 6 * kMiB;
  server_options.exchange.linger = absl::Milliseconds(300);
  EngineOptions engine_options;
  engine_options.core.window_bytes = 64 * kMiB;
  engine_options.core.result_window_bytes = 4 * kMiB;
  Loopback loopback(server_options, engine_options);
  RigWorker liar(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  liar.streams_wanted = 1;
  Join({&liar, &b});
  loopback.raw(liar.streams[0]).StopReading();
  liar.Begin();
  liar.Push(0, GradientOf(0, elements));
  liar.Commit();
  // The contribution has arrived before there is a result that the worker does not read.
  Await([&] {
    return loopback.Look<uint64_t>([](const Runner& runner) { return runner.parked_bytes(); }) ==
           elements * sizeof(float);
  });
  b.Begin();
  b.Push(0, GradientOf(0, elements));
  b.Commit();
  std::thread honest([&b] { b.Stage(); });
  Await([&] {
    liar.Send(ResultAck{0, 1, {1, 1}, {{0, 0, 96}}});
    return loopback.server.counters().slow_readers > 0;
  });
  // The peer does not read the status, so the stream is cut off after a while.
  Await([&] {
    liar.Send(ResultAck{0, 1, {1, 1}, {{0, 0, 96}}});
    return loopback.Look<size_t>([](const Runner& runner) { return runner.streams(); }) == 2;
  });
  loopback.engine.Command(EvictWorker{kJob, "a", "acknowledges what it does not read"});
  honest.join();
  EXPECT_TRUE(b.results[0] == GradientOf(0, elements));
}

// A message larger than gRPC takes goes in pieces, both ways.
TEST(TransportFlow, MessagesBeyondFourMebibytesTravelInPieces) {
  const Model model = AverageOf(ManyTensors(20000), 1);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  const uint64_t sent = loopback.server.counters().bytes_sent;
  Join({&a});
  EXPECT_GT(loopback.server.counters().bytes_received, 4 * kMiB);
  EXPECT_GT(loopback.server.counters().bytes_sent - sent, 4 * kMiB);
  EXPECT_EQ(loopback.server.counters().malformed_messages, 0u);
}

// A stranger without a token, or a careless neighbour: its workers say hello and read nothing.
TEST(TransportFlow, Fault_N11_WelcomesOfALargeLayoutThatNobodyReadsShareTheirMemory) {
  const Model model = AverageOf(ManyTensors(20000), 1);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  a.Connect();
  constexpr size_t kStrangers = 30;
  // Else gRPC would keep the welcomes at their end, depending on its version.
  GrpcSettings small;
  small.window_bytes = uint32_t{64} << 10;
  std::vector<std::unique_ptr<RawStream>> strangers;
  for (size_t i = 0; i < kStrangers; ++i) {
    strangers.push_back(
        std::make_unique<RawStream>(ChannelTo(loopback.port, small), kSessionMethod));
    strangers.back()->StopReading();
    strangers.back()->Write(Encoded(HelloOf(absl::StrCat("s", i), model)));
  }
  const TransportCounters& counters = loopback.server.counters();
  Await([&] { return counters.sessions == 1 + kStrangers; });
  Await([&] { return counters.outbox_bytes > kStrangers * 4 * kMiB; });
  EXPECT_GT(loopback.server.layout_bytes(), 4 * kMiB);
  EXPECT_LT(loopback.server.layout_bytes(), 16 * kMiB);
  // A worker that reads it has all of it.
  wire::MessageReader<ToWorker> reader;
  std::optional<Welcome> welcome;
  strangers[0]->ReadOn();
  while (!welcome.has_value()) {
    const std::optional<std::string> bytes = strangers[0]->Read();
    ASSERT_TRUE(bytes.has_value());
    auto received = reader.Read(*bytes);
    ASSERT_TRUE(received.ok()) << received.status();
    for (auto& one : received->messages) welcome = std::get<Welcome>(one.message);
  }
  ASSERT_EQ(welcome->layouts.size(), 1u);
  EXPECT_EQ(welcome->layouts[0].tensors, model.tensors);
  strangers.clear();
  Await([&] { return loopback.server.layout_bytes() == 0 && counters.outbox_bytes == 0; });
}

// The server does not wait for a peer that opens a stream without a first message, or whose first
// message never becomes complete.
TEST(TransportFlow, Fault_S6_StreamThatSaysNothingIsEnded) {
  ServerOptions options;
  options.session.introduction = options.exchange.introduction = absl::Milliseconds(200);
  Loopback loopback(options);
  RawStream silent(loopback.Channel(), kExchangeMethod);
  RawStream stalled(loopback.Channel(), kSessionMethod);
  Hello hello = HelloOf("a", AverageOf({F32("weight", 5)}, 1));
  hello.lanes.resize(1);
  hello.lanes[0].layout = ManyTensors(200);
  const auto pieces = wire::EncodePieces(hello);
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_GT(pieces->size(), 1u);
  stalled.Write(pieces->front());
  EXPECT_EQ(silent.AwaitEnd().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(stalled.AwaitEnd().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(loopback.server.counters().silent_calls, 2u);
}

}  // namespace
}  // namespace basin::aggregator
