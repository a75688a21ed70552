// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Violations by peers, on purpose or because of their connection: each ends its stream, with a
// status that names the mistake, is counted, and does not affect others.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "proto/wire/frame.h"
#include "proto/wire/status_detail.h"
#include "protocol/version.h"
#include "runtime/mutex.h"
#include "tests/aggregator/transport/loopback.h"
#include "tests/aggregator/transport/raw_http2.h"

namespace basin::aggregator {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::string FrameOf(const wire::FrameHeader& header, uint64_t sequence,
                    const std::string& payload = "") {
  wire::Slices pieces;
  if (!payload.empty()) pieces.push_back(payload);
  const absl::StatusOr<std::string> head = wire::EncodeFrame(header, pieces);
  EXPECT_TRUE(head.ok()) << head.status();
  return wire::EncodeSequence(sequence) + head.value_or("") + payload;
}

std::string BindOf(SessionToken token, uint32_t version = kProtocolVersion) {
  return FrameOf({wire::Bind{token, 0, version}, {}, {}}, 0);
}

// One worker that does everything right, beside the stranger that a test lets in.
class TransportFault : public testing::Test {
 protected:
  TransportFault() { Join({&honest_}); }
  ~TransportFault() override {
    if (!honest_stays_) return;
    // Whatever happened before, a round goes through, with the right bits.
    const std::string gradient = GradientOf(0, 2 * kChunkFloats);
    honest_.Begin();
    honest_.Push(0, gradient);
    honest_.Commit();
    EXPECT_EQ(Finish({&honest_})[0].value.outcome, Outcome::kCommitted);
    EXPECT_EQ(honest_.results[0], gradient);
  }

  // The status of a session that sends these bytes.
  absl::Status AfterBytes(const std::string& bytes) {
    RawStream stream(loopback_.Channel(), kSessionMethod);
    stream.Write(bytes);
    return stream.AwaitEnd();
  }

  // The status of a data stream that sends these bytes.
  absl::Status AfterSending(const std::vector<std::string>& messages) {
    RawStream stream(loopback_.Channel(), kExchangeMethod);
    for (const std::string& message : messages) stream.Write(message);
    return stream.AwaitEnd();
  }

  // Likewise, after it was bound to the honest worker's session.
  absl::Status AfterBindAndSending(const std::vector<std::string>& messages) {
    RawStream stream(loopback_.Channel(), kExchangeMethod);
    stream.Write(BindOf(honest_.welcome->token));
    EXPECT_TRUE(stream.Read().has_value());
    for (const std::string& message : messages) stream.Write(message);
    return stream.AwaitEnd();
  }

  size_t EngineStreams() {
    return loopback_.Look<size_t>([](const Runner& runner) { return runner.streams(); });
  }

  const TransportCounters& counters() { return loopback_.server.counters(); }

  const Model model_ = AverageOf({F32("weight", 2 * kChunkFloats)}, 1);
  Loopback loopback_;
  RigWorker honest_{loopback_, "a", model_};
  bool honest_stays_ = true;  // Until the end of the test.
};

// ---- N10: malformed messages

TEST_F(TransportFault, Fault_N10_SessionThatSpeaksNonsenseIsToldSo) {
  const absl::Status why = AfterBytes("\x07nonsense");
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(Text(why), HasSubstr("session"));
  EXPECT_EQ(counters().malformed_messages, 1u);
}

// To gRPC a damaged message can look like one without bytes.
TEST_F(TransportFault, Fault_N10_DefaultConstructedMessagesAreRefused) {
  EXPECT_EQ(AfterBytes("").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AfterSending({""}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AfterBindAndSending({""}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(counters().malformed_messages, 1u);
  EXPECT_EQ(counters().malformed_frames, 2u);
}

TEST_F(TransportFault, Fault_N10_SessionBeginsWithHello) {
  const absl::Status why = AfterBytes(Encoded(Ready{}));
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(Text(why), HasSubstr("Hello"));
  EXPECT_EQ(counters().sessions, 1u);
}

TEST_F(TransportFault, Fault_N10_ErrorsOfAnOpenSessionNameItsWorker) {
  RawStream stream(loopback_.Channel(), kSessionMethod);
  stream.Write(Encoded(HelloOf("b", model_)));
  EXPECT_TRUE(stream.Read().has_value());
  stream.Write("nonsense");
  const absl::Status why = stream.AwaitEnd();
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(Text(why), HasSubstr("worker b of job job"));
  // Operators see this cause, and not that b closed its connections.
  Await([this] { return counters().calls_ended + 3 == counters().calls_begun; });
  for (int i = 0; i < 2; ++i) loopback_.Pass(absl::Milliseconds(20));
  const std::vector<Note> notes = loopback_.notes.OfKind(NoteKind::kWorkerDisconnected);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].worker, "b");
  EXPECT_EQ(notes[0].text, "The aggregator ended its session. " + Text(why));
}

TEST_F(TransportFault, Fault_N10_DataStreamBeginsWithBindAndHasOne) {
  EXPECT_EQ(AfterSending({"nonsense"}).code(), StatusCode::kInvalidArgument);
  const absl::Status early = AfterSending({FrameOf({wire::Ack{1}, {}, {}}, 1)});
  EXPECT_THAT(Text(early), HasSubstr("Bind")) << early;
  const absl::Status twice = AfterBindAndSending({BindOf(honest_.welcome->token)});
  EXPECT_THAT(Text(twice), HasSubstr("twice")) << twice;
  EXPECT_EQ(counters().malformed_frames, 3u);
}

TEST_F(TransportFault, Fault_N10_FramesThatOnlyTheAggregatorSendsAreRefused) {
  const wire::FrameHeader result{wire::ResultHeader{0, 1, {1, 1}, {0, 0, 1}}, {}, {}};
  const absl::Status why = AfterBindAndSending({FrameOf(result, 1, "1234")});
  EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << why;
  EXPECT_EQ(counters().malformed_frames, 1u);
}

TEST_F(TransportFault, Fault_N8_DamagedFramesAndGapsAreDataLoss) {
  const wire::FrameHeader header{wire::ContributionHeader{0, 1, {0, 0, 1}}, {}, {}};
  std::string damaged = FrameOf(header, 1, std::string(kChunkBytes, 'x'));
  damaged.back() = 'y';
  EXPECT_EQ(AfterBindAndSending({damaged}).code(), StatusCode::kDataLoss);
  const absl::Status gap = AfterBindAndSending({FrameOf({wire::Ack{1}, {}, {}}, 2)});
  EXPECT_EQ(gap.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Text(gap), HasSubstr("came after frame 0")) << gap;
  EXPECT_EQ(counters().damaged_frames, 2u);
}

TEST_F(TransportFault, Fault_A12_DataStreamOfAnotherVersionIsToldBoth) {
  const absl::Status why = AfterSending({BindOf(honest_.welcome->token, kProtocolVersion + 6)});
  EXPECT_EQ(why.code(), StatusCode::kFailedPrecondition) << why;
  EXPECT_EQ(wire::ToError(why).code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(Text(why), HasSubstr(absl::StrCat("protocol ", kProtocolVersion + 6)));
  EXPECT_EQ(counters().version_mismatches, 1u);
}

TEST_F(TransportFault, Fault_S2_TokenOfNoSessionIsRefused) {
  // The status that exchange.proto defines.
  EXPECT_EQ(AfterSending({BindOf(honest_.welcome->token + 1)}).code(), StatusCode::kNotFound);
  EXPECT_EQ(counters().unknown_tokens, 1u);
}

// A data stream may come after the end of its session, which is no violation.
TEST_F(TransportFault, ATokenOfASessionThatHasEndedIsRefusedWithoutAReport) {
  const SessionToken token = honest_.welcome->token;
  const uint64_t ended = counters().calls_ended;
  honest_stays_ = false;
  honest_.LoseSession();
  Await([&] { return counters().calls_ended > ended; });
  EXPECT_EQ(AfterSending({BindOf(token)}).code(), StatusCode::kNotFound);
  EXPECT_EQ(counters().unknown_tokens, 0u);
}

// A violation is reported with the address of the peer, for the log.
TEST(TransportReports, Fault_S6_WhoSpeaksSomethingElseIsReported) {
  Mutex mutex;
  std::vector<std::string> reports;
  ServerOptions options;
  options.grpc.handshake_timeout = absl::Seconds(1);
  options.report = [&](const std::string& address, const std::string& /*kind*/,
                       const std::string& what) {
    MutexLock lock(mutex);
    reports.push_back(absl::StrCat(address, " ", what));
  };
  Loopback loopback(options);
  const auto reported = [&] {
    MutexLock lock(mutex);
    return reports;
  };
  const std::pair<std::string, std::string> foreigners[] = {
      {std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + std::string(100, 'x'),
       "127.0.0.1 It speaks TLS"},
      {"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", "127.0.0.1 It speaks HTTP/1"},
      // Shorter than the preface of gRPC.
      {"GET / HTTP/1.0\r\n\r\n", "127.0.0.1 It speaks HTTP/1"},
      {"", "127.0.0.1 It connected and sent nothing"},
      {"hello, is this a printer?", "127.0.0.1 It does not speak gRPC"}};
  for (const auto& [bytes, text] : foreigners) {
    const size_t before = reported().size();
    RawHttp2 connection(loopback.port);
    connection.Send(bytes);
    connection.AwaitClosed();
    Await([&] { return reported().size() > before; });
    EXPECT_THAT(reported().back(), HasSubstr(text));
  }
  EXPECT_EQ(loopback.server.counters().foreign_connections, 5u);
  // The report about a stream names the mistake in the message.
  RawStream stream(loopback.Channel(), kSessionMethod);
  stream.Write("\xff\xff");
  EXPECT_EQ(stream.AwaitEnd().code(), StatusCode::kInvalidArgument);
  Await([&] { return reported().size() == 6; });
  EXPECT_THAT(reported().back(),
              HasSubstr("127.0.0.1 A message of a session without a hello was refused"));
  // A correct beginning is accepted in any pieces.
  RawHttp2 slow(loopback.port);
  slow.Send("PRI * HTT");
  slow.Send("P/2.0\r\n\r\nSM\r\n\r\n");
  slow.SendFrame(RawHttp2::kSettings, RawHttp2::kNoFlags, 0, "");
  slow.Call(1, "/nothing");
  EXPECT_EQ(slow.AwaitStatus(1), grpc::StatusCode::UNIMPLEMENTED);
}

// A first message that is still arriving does not count as silence.
TEST(TransportReports, Fault_S6_AHelloThatIsCutIsNotCalledSilence) {
  ServerOptions options;
  options.session.introduction = absl::Milliseconds(300);
  Loopback loopback(options);
  v1::ToAggregator piece;
  piece.mutable_piece()->set_bytes("the begin");
  RawStream stream(loopback.Channel(), kSessionMethod);
  stream.Write(piece.SerializeAsString());
  const absl::Status end = stream.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(end.message()), HasSubstr("did not arrive whole within 300ms"));
}

TEST_F(TransportFault, Fault_N10_UnknownMethodsAreUnimplemented) {
  for (const char* path : {"/basin.v1.Session/Walk", "/basin.v2.Session/Run", "/", "/nothing"}) {
    RawStream stream(loopback_.Channel(), path);
    stream.Write("x");
    EXPECT_EQ(stream.AwaitEnd().code(), StatusCode::kUnimplemented) << path;
  }
  EXPECT_EQ(counters().calls_begun, 3u);  // Those of the honest worker.
}

TEST_F(TransportFault, Fault_N10_GarbageInsteadOfAPrefaceClosesTheConnection) {
  RawHttp2 connection(loopback_.port);
  EXPECT_TRUE(connection.Send("GET / HTTP/1.1\r\nHost: basin\r\n\r\n"));
  connection.AwaitClosed();
}

// gRPC 1.51 runs the handler of a unary call with a default-constructed request when it does not
// know the flag before the message. On a stream such a message is a failed read, as at the end of
// the stream: it does not reach a decoder.
TEST_F(TransportFault, Fault_N10_MessageWithABadFlagIsNoMessage) {
  for (const char* path : {kSessionMethod, kExchangeMethod}) {
    const uint64_t received = counters().messages_received;
    RawHttp2 connection(loopback_.port);
    connection.Begin();
    connection.Call(1, path);
    const std::string hello = Encoded(HelloOf("b", model_));
    connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1,
                         RawHttp2::Message(0x07, hello.size(), hello));
    EXPECT_NE(connection.AwaitStatus(1), -2) << "the call ends, its connection does not";
    EXPECT_EQ(counters().messages_received, received) << path;
  }
  EXPECT_EQ(counters().sessions, 1u);
}

// ---- N9: the end of a stream has no meaning

// gRPC gives a reader the same for a message that was cut and for a clean end of the stream:
// OnReadDone(false), and the call is not cancelled. Therefore an end never completes anything.
TEST_F(TransportFault, Fault_N9_TruncatedMessageIsTheEndOfItsStreamAndNothingElse) {
  const uint64_t received = counters().messages_received;
  RawHttp2 connection(loopback_.port);
  connection.Begin();
  connection.Call(1, kExchangeMethod);
  const std::string bind = BindOf(honest_.welcome->token);
  connection.SendFrame(RawHttp2::kData, RawHttp2::kNoFlags, 1,
                       RawHttp2::Message(0, bind.size(), bind));
  const std::string frame =
      FrameOf({wire::ContributionHeader{0, 1, {0, 0, 1}}, {}, {}}, 1, std::string(1 << 18, 'x'));
  connection.SendFrame(RawHttp2::kData, RawHttp2::kEndStream, 1,
                       RawHttp2::Message(0, frame.size(), frame.substr(0, 10000)));
  EXPECT_EQ(connection.AwaitStatus(1), 0);
  EXPECT_EQ(counters().messages_received, received + 1) << "the Bind, and nothing of the frame";
  Await([this] { return EngineStreams() == 2; });
  EXPECT_EQ(loopback_.Look<uint64_t>([](const Runner& r) { return r.parked_bytes(); }), 0u);
}

TEST(TransportEnd, Fault_N9_HalfCloseWithoutCommitIsNotCounted) {
  const Model model = AverageOf({F32("weight", 2 * kChunkFloats)}, 2);
  Loopback loopback;
  RigWorker a(loopback, "a", model);
  RigWorker b(loopback, "b", model);
  Join({&a, &b});
  for (RigWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->Push(0, GradientOf(worker == &a ? 0 : 1, 2 * kChunkFloats));
  }
  // The pushed tensors of b have arrived and are reduced, but its commit has not arrived.
  ASSERT_NE(loopback.transport.AwaitAny(
                a.streams,
                [](QueueTransport::Connection& connection) { return !connection.frames.empty(); }),
            0u);
  for (const StreamId stream : b.streams) loopback.raw(stream).CloseWrites();
  loopback.raw(b.session).CloseWrites();
  EXPECT_TRUE(loopback.raw(b.session).AwaitEnd().ok());
  Await([&] {
    return loopback.Look<size_t>([](const Runner& runner) { return runner.streams(); }) == 2;
  });
  a.Commit();
  loopback.Pass(absl::Milliseconds(20));
  loopback.Pass(absl::Milliseconds(300));
  const VerdictRecord record = Finish({&a})[0];
  ASSERT_EQ(record.value.contributors.size(), 1u);
  EXPECT_EQ(record.value.contributors[0].worker, "a");
  EXPECT_EQ(a.results[0], GradientOf(0, 2 * kChunkFloats));
}

// ---- many at once

// Streams that open, with and without a message, and end in every way leave nothing behind.
TEST_F(TransportFault, StreamsComeAndGoAndLeaveNothing) {
  constexpr int kTimes = 60;
  for (int i = 0; i < kTimes; ++i) {
    const auto channel = loopback_.Channel();
    RawStream session(channel, kSessionMethod);
    RawStream bound(channel, kExchangeMethod);
    RawStream stranger(channel, kExchangeMethod);
    if (i % 2 == 0) session.Write(Encoded(HelloOf(absl::StrCat("w", i), model_)));
    if (i % 3 != 0) bound.Write(BindOf(honest_.welcome->token));
    if (i % 5 != 0) stranger.Write(BindOf(i + 1));
    if (i % 4 == 0) session.CloseWrites();
    if (i % 4 == 1) bound.CloseWrites();
    if (i % 12 == 2) {
      EXPECT_TRUE(bound.Read().has_value());
    }
  }
  Await([this] { return counters().calls_begun == counters().calls_ended + 3; });
  Await([this] { return EngineStreams() == 2; });
}

}  // namespace
}  // namespace basin::aggregator
