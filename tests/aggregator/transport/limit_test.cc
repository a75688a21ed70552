// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The behaviour of gRPC 1.51 with memory, pings and floods, and the effect of the shipped settings.
// A test that is named Trap shows the behaviour without a setting: when it fails, a newer gRPC no
// longer needs the setting.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "grpc/grpc.h"
#include "proto/wire/frame.h"
#include "proto/wire/session.h"
#include "protocol/limits/limits.h"
#include "runtime/grpc/byte_buffer.h"
#include "tests/aggregator/transport/loopback.h"
#include "tests/aggregator/transport/raw_http2.h"

namespace basin::aggregator {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;
using ::testing::Not;

// A message of any size whose bytes are the same mebibyte again and again.
grpc::ByteBuffer Huge(uint64_t mebibytes) {
  const grpc::Slice slice(std::string(kMiB, '\x7f'));
  const std::vector<grpc::Slice> slices(mebibytes, slice);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// A client that limits nothing.
std::shared_ptr<grpc::Channel> UnlimitedChannel(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
  return ChannelTo(port, arguments);
}

void ExpectServes(Loopback& loopback) {
  RawStream health(loopback.Channel(), kHealthMethod);
  health.Write("");
  health.CloseWrites();
  EXPECT_EQ(health.Read(), kServing);
}

ServerOptions WithQuota(uint64_t bytes) {
  ServerOptions options;
  options.grpc.quota_bytes = bytes;
  return options;
}

// How much the process grows, at its peak, while it is sent one message of so many MiB.
uint64_t GrowthDuringMessageOf(uint64_t mebibytes, const ServerOptions& options,
                               absl::Status* end) {
  Loopback loopback(options);
  ExpectServes(loopback);
  const grpc::ByteBuffer message = Huge(mebibytes);
  const MemoryGrowth growth;
  {
    RawStream stream(UnlimitedChannel(loopback.port), kSessionMethod);
    stream.Write(message);
    *end = stream.AwaitEnd();
  }
  const uint64_t peak = growth.Peak();
  ExpectServes(loopback);
  return peak;
}

// ---- N11: messages that are too large

TEST(TransportLimit, Fault_N11_MessageOfAGibibyteIsRefusedInLittleMemory) {
  absl::Status end;
  const uint64_t growth = GrowthDuringMessageOf(1024, WithQuota(64 * kMiB), &end);
  EXPECT_FALSE(end.ok());
  EXPECT_THAT(std::string(end.message()), Not(HasSubstr("Sent message"))) << "it was sent";
  EXPECT_LT(growth, 512 * kMiB) << end;
  RecordProperty("growth_mib", std::to_string(growth / kMiB));
  RecordProperty("end", end.ToString());
}

// Why the quota is necessary: a message is compared with the limit only after it has arrived.
TEST(TransportLimit, Trap_MessageLimitAloneBuffersTheMessage) {
  absl::Status end;
  ServerOptions options;
  options.watch_newcomers = false;
  const uint64_t growth = GrowthDuringMessageOf(384, options, &end);
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("Received message")) << end;
  // At least half of it, because an allocator that keeps freed memory may already have the rest.
  EXPECT_GT(growth, 192 * kMiB) << end;
  RecordProperty("growth_mib", std::to_string(growth / kMiB));
}

TEST(TransportLimit, Fault_N11_DeclaredFourGibibytesTakeNoMemory) {
  Loopback loopback(WithQuota(64 * kMiB));
  ExpectServes(loopback);
  const MemoryGrowth growth;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  connection.Call(1, kSessionMethod);
  connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1,
                       RawHttp2::Message(0, 0xffffffff, std::string(10000, 'x')));
  // A call that came later on the same connection is answered: so this one has been dealt with.
  connection.Call(3, "/nothing");
  EXPECT_EQ(connection.AwaitStatus(3), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_LT(growth.Peak(), 64 * kMiB);
  ExpectServes(loopback);
}

// A piece of a message, by the numbers of session.proto.
std::string PieceOf(const std::string& bytes, bool last) {
  v1::ToAggregator carrier;
  carrier.mutable_piece()->set_bytes(bytes);
  carrier.mutable_piece()->set_last(last);
  return carrier.SerializeAsString();
}

// Two bytes for each lane, which protobuf would give some hundred.
TEST(TransportLimit, Fault_S6_EmptyPartsInPiecesTakeLittleMemory) {
  constexpr uint64_t kPieces = 24;
  v1::ToAggregator carrier;
  ASSERT_TRUE(wire::Encode(HelloOf("a", AverageOf({F32("weight", 5)}, 1)), &carrier).ok());
  std::string hello = carrier.hello().SerializeAsString();
  while (hello.size() + 64 < kPieces * kMiB) hello += std::string("\x6a\x00", 2);
  // The message around it: field 1, and its length in four bytes.
  std::string message = "\x0a";
  for (uint64_t rest = hello.size(), i = 0; i < 4; ++i, rest >>= 7) {
    message.push_back(static_cast<char>((rest & 0x7f) | (i < 3 ? 0x80 : 0)));
  }
  message += hello;
  Loopback loopback;
  ExpectServes(loopback);
  const MemoryGrowth growth;
  RawStream stream(loopback.Channel(), kSessionMethod);
  // The first one is small.
  for (size_t begin = 0, size = 1000; begin < message.size(); begin += size, size = kMiB) {
    stream.Write(PieceOf(message.substr(begin, size), begin + size >= message.size()));
  }
  const absl::Status end = stream.AwaitEnd();
  EXPECT_EQ(loopback.server.counters().floods, 0u);
  EXPECT_EQ(end.code(), StatusCode::kInvalidArgument) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("hello.lanes has more than 4096 entries"));
  // Copies of the pieces on both ends of the connection; a sanitizer also keeps freed memory. The
  // lanes themselves would be a hundred times as large as the pieces.
  EXPECT_LT(growth.Peak(), 48 * kPieces * kMiB);
  ExpectServes(loopback);
}

// The charge of a message is returned when the engine has handled it, even if its session ended
// before.
TEST(TransportLimit, Fault_S6_WhatMessagesBecomeIsChargedAndGivenBack) {
  ServerOptions options;
  options.expanding_bytes = 20 * kMiB;
  Loopback loopback(options);
  // One for all streams: gRPC could give the next one the connection that it closes with the last.
  const auto channel = loopback.Channel();
  // With 10,000 tensors, about five megabytes of memory.
  Register large{"lane", LaneKind::kGradient, {}};
  for (int i = 0; i < 10000; ++i) {
    large.tensors.push_back({absl::StrCat("tensor ", i), DType::kF32, {1, 1}});
  }
  const auto say_hello = [&](RawStream& stream) {
    stream.Write(Encoded(HelloOf("a", AverageOf({F32("weight", 5)}, 1))));
    stream.Write(Encoded(large));
  };
  for (int i = 0; i < 20; ++i) {
    RawStream stream(channel, kSessionMethod);
    say_hello(stream);
    // Its welcome and its layout: the engine has dealt with both.
    ASSERT_TRUE(stream.Read().has_value()) << stream.AwaitEnd();
    ASSERT_TRUE(stream.Read().has_value()) << stream.AwaitEnd();
    loopback.Look<int>([](const Runner&) { return 0; });  // It has also dealt with later messages.
  }
  EXPECT_EQ(loopback.server.counters().malformed_messages, 0u);
  // One that is larger than all of it is refused, and its sender may try again.
  while (large.tensors.size() < 60000) {
    large.tensors.push_back({absl::StrCat("tensor ", large.tensors.size()), DType::kF32, {1, 1}});
  }
  RawStream stream(channel, kSessionMethod);
  say_hello(stream);
  const absl::Status end = stream.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("Too many large messages arrive at once"));
}

// ---- windows

// The value of a setting in the server's SETTINGS frames, up to the answer to a call.
std::optional<uint32_t> LargestSetting(Loopback& loopback, uint16_t id) {
  RawHttp2 connection(loopback.port);
  connection.Begin();
  connection.Call(1, "/nothing");
  std::optional<uint32_t> largest;
  while (const std::optional<RawHttp2::Frame> frame = connection.Read()) {
    if (frame->type == RawHttp2::kHeaders) return largest;
    if (frame->type != RawHttp2::kSettings) continue;
    for (size_t at = 0; at + 6 <= frame->payload.size(); at += 6) {
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(frame->payload[at + i]); };
      if ((byte(0) << 8 | byte(1)) != id) continue;
      const uint32_t value = uint32_t{byte(2)} << 24 | byte(3) << 16 | byte(4) << 8 | byte(5);
      largest = std::max(largest.value_or(0), value);
    }
  }
  ADD_FAILURE() << "no answer";
  return largest;
}

// The bytes in flight to a stream without a reader. gRPC's own estimate would begin at 64 KiB and
// grow with the traffic.
TEST(TransportLimit, WindowOfAStreamIsFixed) {
  constexpr uint16_t kInitialWindowSize = 4;
  Loopback loopback;
  EXPECT_EQ(LargestSetting(loopback, kInitialWindowSize), GrpcSettings().window_bytes);
}

// A message arrives in slices that end where frames of HTTP/2 end, which have 16 KiB by default.
TEST(TransportLimit, FrameHasRoomForTheLargestMessage) {
  constexpr uint16_t kMaxFrameSize = 5;
  Loopback loopback;
  EXPECT_EQ(LargestSetting(loopback, kMaxFrameSize), kMaxMessageBytes);
}

// ---- the quota

constexpr uint64_t kCredit = 96 * kMiB;

// A round of two workers, one of which has its whole contribution parked before the other begins.
// Nothing if a stream ended before.
std::optional<VerdictRecord> RoundWithParkedBytes(uint64_t quota) {
  const size_t elements = 16 * 4 * kChunkFloats;
  const Model model = AverageOf({F32("weight", elements)}, 2);
  EngineOptions options;
  options.core.memory_bytes = kCredit;
  Loopback loopback(WithQuota(quota), options);
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  Join({&a, &b});
  a.Begin();
  a.Push(0, GradientOf(0, elements));
  a.Commit();
  const auto parked = [&] {
    return loopback.Look<uint64_t>([](const Runner& runner) { return runner.parked_bytes(); });
  };
  const auto streams = [&] {
    return loopback.Look<size_t>([](const Runner& runner) { return runner.streams(); });
  };
  Await([&] { return parked() == elements * sizeof(float) || streams() < 4; });
  if (streams() < 4) return std::nullopt;
  b.Begin();
  b.Push(0, GradientOf(1, elements));
  b.Commit();
  // In parallel, because each needs room that the other makes.
  std::thread beside([&b] { b.Stage(); });
  a.Stage();
  beside.join();
  const VerdictRecord told = a.Verdict();
  EXPECT_EQ(b.Verdict(), told);
  EXPECT_TRUE(a.results[0] == b.results[0]);
  EXPECT_EQ(streams(), 4u);
  return told;
}

// Workers that keep to their credit do not reach a quota of twice the credit.
TEST(TransportLimit, QuotaLeavesLegalStreamsAlone) {
  const std::optional<VerdictRecord> told = RoundWithParkedBytes(2 * kCredit);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->value.contributors.size(), 2u);
}

// Why it must be so large: parked bytes count, and a quota that they reach ends correct streams.
TEST(TransportLimit, Trap_SmallQuotaKillsLegalStreams) {
  EXPECT_FALSE(RoundWithParkedBytes(8 * kMiB).has_value());
}

TEST(TransportLimit, QuotaIsTwiceTheCredit) {
  for (const uint64_t memory : {uint64_t{0}, 64 * kMiB, uint64_t{4} << 30}) {
    EXPECT_GE(QuotaFor(memory), 2 * memory);
    EXPECT_GT(QuotaFor(memory), 0u);
  }
}

// ---- N12: floods

TEST(TransportLimit, Fault_N12_RapidResetLeavesNothing) {
  constexpr uint32_t kCalls = 5000;
  Loopback loopback(WithQuota(64 * kMiB));
  ExpectServes(loopback);
  {
    RawHttp2 connection(loopback.port);
    connection.Begin();
    for (uint32_t i = 0; i < kCalls; ++i) {
      const uint32_t stream = 2 * i + 1;
      if (!connection.Call(stream, i % 2 == 0 ? kSessionMethod : kExchangeMethod) ||
          !connection.SendFrame(RawHttp2::kRstStream, RawHttp2::kNoFlags, stream,
                                std::string("\0\0\0\x08", 4))) {
        break;
      }
    }
    ExpectServes(loopback);
  }
  const TransportCounters& counters = loopback.server.counters();
  Await([&] { return counters.calls_begun == counters.calls_ended; });
  EXPECT_EQ(counters.sessions, 0u);
}

// Calls that are begun and reset: few enough to be sent without a reader.
TEST(TransportLimit, Fault_N12_AFloodOfResetsIsCutOff) {
  Loopback loopback;
  ExpectServes(loopback);
  RawHttp2 connection(loopback.port);
  connection.Begin();
  // Later versions of gRPC drop calls that are reset at once before they begin here, so it is the
  // bytes that count.
  for (uint32_t stream = 1;; stream += 2) {
    connection.Call(stream, kSessionMethod);
    if (!connection.SendFrame(RawHttp2::kRstStream, RawHttp2::kNoFlags, stream,
                              std::string("\0\0\0\x08", 4))) {
      break;
    }
  }
  Await([&] { return loopback.server.counters().floods == 1; });
  ExpectServes(loopback);
}

// The same from a worker, whose connection was open before.
TEST(TransportLimit, Fault_N12_AWorkerThatFloodsIsCutOff) {
  Loopback loopback;
  ExpectServes(loopback);
  const MemoryGrowth growth;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  connection.Call(1, kSessionMethod);
  const std::string hello = Encoded(HelloOf("w0", {}));
  connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1,
                       RawHttp2::Message(0, static_cast<uint32_t>(hello.size()), hello));
  const TransportCounters& counters = loopback.server.counters();
  Await([&] { return counters.sessions == 1; });
  for (uint32_t stream = 3;; stream += 2) {
    connection.Call(stream, kSessionMethod);
    if (!connection.SendFrame(RawHttp2::kRstStream, RawHttp2::kNoFlags, stream,
                              std::string("\0\0\0\x08", 4))) {
      break;
    }
  }
  Await([&] { return counters.floods == 1; });
  EXPECT_LT(growth.Peak(), 128 * kMiB);
  ExpectServes(loopback);
}

// Headers that go on for as long as the connection takes them.
TEST(TransportLimit, Fault_N12_HeadersWithoutAnEndAreCutOff) {
  constexpr auto kContinuation = static_cast<RawHttp2::Type>(9);
  Loopback loopback;
  ExpectServes(loopback);
  const MemoryGrowth growth;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  connection.SendFrame(RawHttp2::kHeaders, RawHttp2::kNoFlags, 1, "");
  // A header that is not to be remembered, again and again: its name and its value have lengths.
  std::string headers;
  for (int i = 0; i < 100; ++i) headers += std::string("\0\3x-aP", 6) + std::string(80, 'y');
  while (connection.SendFrame(kContinuation, RawHttp2::kNoFlags, 1, headers)) {
  }
  Await([&] { return loopback.server.counters().floods == 1; });
  EXPECT_LT(growth.Peak(), 256 * kMiB);
  ExpectServes(loopback);
}

// Frames that cost the sender little, for as long as the connection takes them.
TEST(TransportLimit, Fault_N12_FloodsOfFramesAreCutOff) {
  const auto many = [](const std::string& frames) {
    std::string all;
    for (int i = 0; i < 500; ++i) all += frames;
    return all;
  };
  const std::string open_window("\0\x04\0\x10\0\0", 6);
  const std::string closed_window("\0\x04\0\0\0\0", 6);
  const std::string one_byte("\0\0\0\x01", 4);
  const auto frame = [](RawHttp2::Type type, uint32_t stream, const std::string& payload) {
    return RawHttp2::FrameOf(type, RawHttp2::kNoFlags, stream, payload);
  };
  const std::vector<std::pair<std::string, std::string>> floods = {
      {"pings", many(frame(RawHttp2::kPing, 0, std::string(8, '\0')))},
      {"settings", many(frame(RawHttp2::kSettings, 0, open_window))},
      {"windows", many(frame(RawHttp2::kSettings, 0, closed_window) +
                       frame(RawHttp2::kSettings, 0, open_window) +
                       frame(RawHttp2::kWindowUpdate, 1, one_byte))},
  };
  for (const auto& [name, flood] : floods) {
    SCOPED_TRACE(name);
    Loopback loopback;
    ExpectServes(loopback);
    const MemoryGrowth growth;
    RawHttp2 connection(loopback.port);
    connection.Begin();
    connection.Call(1, kSessionMethod);
    while (connection.Send(flood)) {
    }
    EXPECT_LT(growth.Peak(), 128 * kMiB);
    ExpectServes(loopback);
  }
}

// A header of the table that stands for four kilobytes, in a byte.
TEST(TransportLimit, Fault_N12_AHeaderBombIsNotOpened) {
  Loopback loopback;
  ExpectServes(loopback);
  const MemoryGrowth growth;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  const std::string remembered = std::string("\x40\x03x-a\x7f\xbd\x1d", 8) + std::string(3900, 'y');
  connection.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, 1, remembered);
  const std::string bomb(16000, '\xbe');
  for (uint32_t stream = 3;
       connection.SendFrame(RawHttp2::kHeaders, RawHttp2::kEndHeaders, stream, bomb); stream += 2) {
  }
  EXPECT_LT(growth.Peak(), 128 * kMiB);
  ExpectServes(loopback);
}

// The same holds for a peer that sends only the begin of a message that is too large.
TEST(TransportLimit, Fault_N12_AMessageWithoutAnEndIsCutOff) {
  Loopback loopback;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  connection.Call(1, kSessionMethod);
  const std::string data(kMiB, 'x');
  connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1, RawHttp2::Message(0, 1 << 30, data));
  while (connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1, data)) {
  }
  ExpectServes(loopback);
}

TEST(TransportLimit, Fault_N12_StreamsOfOneConnectionAreLimited) {
  Loopback loopback;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  const uint32_t limit = ServerOptions().grpc.streams_per_connection;
  // The limit holds from when the server's settings are acknowledged.
  ASSERT_TRUE(connection.Read().has_value());
  for (uint32_t i = 0; i < limit; ++i) connection.Call(2 * i + 1, kExchangeMethod);
  connection.Call(2 * limit + 1, kExchangeMethod);
  // gRPC 1.51 ends the connection, whereas later versions only refuse that stream, as HTTP/2 says.
  EXPECT_LT(connection.AwaitStatus(2 * limit + 1), 0);
  EXPECT_LE(loopback.server.counters().calls_begun, limit);
  ExpectServes(loopback);
}

TEST(TransportLimit, Fault_N12_HugeHeadersAreRefused) {
  Loopback loopback;
  RawHttp2 connection(loopback.port);
  connection.Begin();
  // The limit holds from when the server's settings are acknowledged; before, it is gRPC's own.
  ASSERT_TRUE(connection.Read().has_value());
  connection.Call(1, kSessionMethod, {{"padding", std::string(kMaxMetadataBytes + 1, 'x')}});
  EXPECT_EQ(connection.AwaitStatus(1), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Later versions of gRPC begin the call and end it, without a message.
  EXPECT_LE(loopback.server.counters().calls_begun, 1u);
  EXPECT_EQ(loopback.server.counters().messages_received, 0u);
  EXPECT_EQ(loopback.server.counters().sessions, 0u);
  ExpectServes(loopback);
}

// A header that never ends keeps only its own connection busy.
TEST(TransportLimit, Fault_N12_SlowHeadersHoldUpNobody) {
  Loopback loopback;
  std::vector<std::unique_ptr<RawHttp2>> connections;
  for (int i = 0; i < 50; ++i) {
    connections.push_back(std::make_unique<RawHttp2>(loopback.port));
    connections.back()->Begin();
    connections.back()->SendFrame(RawHttp2::kHeaders, RawHttp2::kNoFlags, 1, "");
  }
  ExpectServes(loopback);
}

// Compressed messages are not taken at all: some kilobytes could stand for gigabytes.
TEST(TransportLimit, Fault_N12_CompressionBombIsNotOpened) {
  Loopback loopback;
  RawStream::Options options;
  options.compression = GRPC_COMPRESS_GZIP;
  RawStream stream(loopback.Channel(), kSessionMethod, options);
  stream.Write(std::string(3 * kMiB, '\0'));
  EXPECT_EQ(stream.AwaitEnd().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(loopback.server.counters().messages_received, 0u);
  ExpectServes(loopback);
}

TEST(TransportLimit, Fault_S6_ConnectionThatSaysNothingIsClosed) {
  ServerOptions options;
  options.grpc.handshake_timeout = absl::Milliseconds(300);
  Loopback loopback(options);
  RawHttp2 connection(loopback.port);
  connection.AwaitClosed();
  ExpectServes(loopback);
}

// Two servers on one port would share its connections at random.
TEST(TransportLimit, PortThatIsTakenIsAnError) {
  Loopback loopback;
  ManualClock clock;
  NoteBook notes;
  const auto reducer = kernels::MakeCpuReducer();
  Engine engine({}, clock, *reducer, notes, nullptr);
  ServerOptions options;
  options.address = absl::StrCat("127.0.0.1:", loopback.port);
  GrpcServer second(options);
  const absl::StatusOr<int> port = second.Start(engine);
  EXPECT_EQ(port.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(port.status().message()), HasSubstr(options.address));
}

// ---- keepalive

// A session without messages for several pings of the shipped settings, in both directions.
TEST(TransportKeepalive, Fault_N13_ShippedSettingsNeverCountAsTooManyPings) {
  const Model model = AverageOf({F32("weight", 5)}, 1);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  Join({&a});
  // More than the two strikes that a client has: four pings.
  const absl::Duration silence = 4 * GrpcSettings().keepalive_time + absl::Milliseconds(500);
  const uint64_t written = loopback.raw(a.session).AwaitWrites(1, absl::ZeroDuration());
  loopback.raw(a.session).AwaitWrites(written + 1, silence);
  a.Begin();
  a.Push(0, GradientOf(0, 5));
  a.Commit();
  EXPECT_EQ(Finish({&a})[0].value.outcome, Outcome::kCommitted);
  EXPECT_EQ(loopback.server.counters().calls_ended, 0u);
}

// The counterpart of the test above: a client that pings ten times as often as the server expects
// is disconnected. The text is that of an HTTP/2 GOAWAY, ENHANCE_YOUR_CALM.
TEST(TransportKeepalive, Trap_ClientThatPingsTooOftenIsThrownOut) {
  Loopback loopback;
  GrpcSettings hasty;
  hasty.keepalive_time = GrpcSettings().keepalive_time / 10;
  RawStream stream(ChannelTo(loopback.port, hasty), kSessionMethod);
  stream.Write(Encoded(HelloOf("a", AverageOf({F32("weight", 5)}, 1))));
  const absl::Status end = stream.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kUnavailable) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("Too many pings")) << end;
}

// A peer that answers no ping counts as lost, however long its connection stays open: half-open
// TCP, a stopped process.
TEST(TransportKeepalive, Fault_N1_PeerThatAnswersNoPingIsLost) {
  ServerOptions options;
  options.grpc.common.keepalive_time = absl::Milliseconds(300);
  options.grpc.common.keepalive_timeout = absl::Milliseconds(300);
  Loopback loopback(options);
  const Model model = AverageOf({F32("weight", 5)}, 1);
  RawHttp2 connection(loopback.port);
  connection.answers_pings = false;
  connection.Begin();
  connection.Call(1, kSessionMethod);
  const std::string hello = Encoded(HelloOf("a", model));
  connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1,
                       RawHttp2::Message(0, hello.size(), hello));
  Await([&] { return loopback.server.counters().sessions == 1; });
  connection.AwaitClosed();
  Await([&] { return loopback.server.counters().calls_ended == 1; });
}

}  // namespace
}  // namespace basin::aggregator
