// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/connector.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status/status.h"
#include "proto/wire/session.h"
#include "proto/wire/session_stream.h"
#include "proto/wire/status_detail.h"
#include "protocol/version.h"
#include "tests/client/transport/grpc/listeners.h"
#include "tests/client/transport/grpc/raw_server.h"
#include "tests/client/transport/grpc/tcp_relay.h"

namespace basin::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr SessionToken kToken = 77;

std::string Pattern(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes[i] = static_cast<char>(seed >> 24);
  }
  return bytes;
}

// The payload of what it returns is in `message`.
wire::DecodedFrame Decode(const std::string& message) {
  const std::string_view piece = message;
  absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame({&piece, 1});
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  return decoded.ok() ? *decoded : wire::DecodedFrame{};
}

std::string Joined(const wire::Slices& slices) {
  std::string bytes;
  for (const std::string_view piece : slices) bytes.append(piece);
  return bytes;
}

std::string Encoded(uint64_t sequence, const wire::FrameHeader& header,
                    const std::string& payload) {
  const std::string_view piece = payload;
  const absl::StatusOr<std::string> head =
      wire::EncodeFrame(header, absl::MakeConstSpan(&piece, payload.empty() ? 0 : 1));
  EXPECT_TRUE(head.ok()) << head.status();
  return wire::EncodeSequence(sequence) + head.value_or("") + payload;
}

std::string Bound() {
  wire::FrameHeader header;
  header.kind = wire::Bound{};
  return Encoded(0, header, "");
}

std::string Result(uint64_t sequence, const std::string& payload) {
  wire::FrameHeader header;
  header.kind = wire::ResultHeader{1, 2, {3, 4}, {0, static_cast<uint32_t>(sequence), 1}};
  return Encoded(sequence, header, payload);
}

// Chunk `chunk` of a contribution, in the given parts.
OutgoingFrame Contribution(uint32_t chunk, const std::vector<PayloadPart>& parts) {
  OutgoingFrame frame;
  for (const PayloadPart& part : parts) frame.payload.Append(part);
  frame.header = ContributionHeader{1, 2, {0, chunk, 1}};
  frame.digests = {chunk + 1};
  return frame;
}

// A data stream that was bound.
struct BoundStream {
  BoundStream(Connector& connector, RawServer& server, uint32_t number = 0) {
    channel = connector.OpenStream(number, kToken, PlacedShard{}, ears);
    call = server.AwaitCall();
    bind = call->AwaitMessage();
    call->Send(Bound());
    ears->up.Await();
  }

  std::shared_ptr<DataEars> ears = std::make_shared<DataEars>();
  std::shared_ptr<StreamChannel> channel;
  std::shared_ptr<RawCall> call;
  std::string bind;
};

// ---- the session

TEST(GrpcSession, CarriesMessagesBothWaysInOrder) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  ears->up.Await();
  const auto call = server.AwaitCall();
  EXPECT_EQ(call->method(), "/basin.v1.Session/Run");
  for (uint64_t i = 1; i <= 100; ++i) {
    session->Send(*wire::Encode(ToAggregator(Heartbeat{i, {}})));
  }
  for (uint64_t i = 1; i <= 100; ++i) {
    const auto message = wire::DecodeToAggregator(call->AwaitMessage());
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(std::get<Heartbeat>(*message).progress, i);
  }
  for (uint32_t i = 0; i < 100; ++i) {
    const std::string message = *wire::Encode(ToWorker(Drain{i % 2 == 1}));
    call->Send(message);
    const auto heard = ears->messages.Await();
    EXPECT_EQ(std::get<Drain>(heard->message).service, i % 2 == 1);
    EXPECT_EQ(heard->bytes, message.size());
    session->Consumed(heard->bytes);
  }
}

// That of a member, with these features.
Welcome WelcomeOf(uint64_t features) {
  Welcome welcome;
  welcome.token = kToken;
  welcome.incarnation = {1, 1};
  welcome.term = 1;
  welcome.role = Role::kMember;
  welcome.frame_bytes = kDefaultFrameBytes;
  welcome.heartbeat = absl::Seconds(1);
  welcome.contract_version = kContractVersion;
  welcome.features = features;
  return welcome;
}

// A session whose welcome allows batches, and one data stream of it.
struct BatchingSession {
  explicit BatchingSession(GrpcConnector& connector, RawServer& server, uint64_t features) {
    session = connector.OpenSession(ears);
    ears->up.Await();
    call = server.AwaitCall();
    call->Send(*wire::Encode(ToWorker(WelcomeOf(features))));
    ears->messages.Await();
  }
  wire::MessageReader<ToAggregator>::Received Take() {
    auto received = reader.Read(call->AwaitMessage());
    EXPECT_TRUE(received.ok()) << received.status();
    return *std::move(received);
  }

  std::shared_ptr<Ears> ears = std::make_shared<Ears>();
  std::shared_ptr<SessionChannel> session;
  std::shared_ptr<RawCall> call;
  wire::MessageReader<ToAggregator> reader;
};

// A message of an aggregator that seals its messages, with one bit changed.
TEST(GrpcSession, Fault_N8_AFlippedBitEndsTheSession) {
  for (const bool first : {true, false}) {
    RawServer server;
    GrpcConnector connector(server.address());
    const auto ears = std::make_shared<Ears>();
    const auto session = connector.OpenSession(ears);
    ears->up.Await();
    const auto call = server.AwaitCall();
    std::string message = wire::Sealed(*wire::Encode(ToWorker(WelcomeOf(kFeatureChecksums))));
    if (!first) {
      call->Send(message);
      ears->messages.Await();
      message = wire::Sealed(*wire::Encode(ToWorker(Drain{true})));
    }
    message[message.size() / 3] ^= 4;
    call->Send(message);
    EXPECT_THAT(ears->down.Await().value_or(""),
                AllOf(HasSubstr("DATA_LOSS"), HasSubstr("its checksum is")));  // Wrong, or gone.
    EXPECT_EQ(ears->messages.size(), 0u);
  }
}

TEST(GrpcSession, WhatIsSentAtOneMomentIsOneMessageWithTheSmallFramesOfItsStreams) {
  RawServer server;
  GrpcConnector connector(server.address());
  EXPECT_EQ(connector.features(), kFeatureBatches | kFeatureChecksums | kFeatureDeviceMemory |
                                      kFeaturePlaces | kFeaturePlacement);
  BatchingSession batching(connector, server, kFeatureBatches);
  batching.reader.AllowBatches();
  BoundStream stream(connector, server, 5);
  const std::string small = Pattern(1000, 1);
  const std::string large = Pattern(kMaxBatchedFrameBytes, 2);
  const auto payload = [](const std::string& bytes) -> std::vector<PayloadPart> {
    return {{std::make_shared<OwnPayload>(bytes), 0, bytes.size()}};
  };
  batching.session->Send(*wire::Encode(ToAggregator(Heartbeat{1, {}})));
  ASSERT_TRUE(stream.channel->Send(Contribution(0, payload(small))).ok());
  ASSERT_TRUE(stream.channel->Send(Contribution(1, payload(large))).ok());
  batching.session->Send(*wire::Encode(ToAggregator(Heartbeat{2, {}})));
  // What is too large to be copied does not wait.
  const std::string first = stream.call->AwaitMessage();
  EXPECT_EQ(Decode(first).sequence, 1u);
  EXPECT_EQ(Joined(Decode(first).payload), large);
  connector.Flush();
  connector.Flush();
  const auto taken = batching.Take();
  ASSERT_EQ(taken.messages.size(), 2u);
  EXPECT_EQ(std::get<Heartbeat>(taken.messages[1].message).progress, 2u);
  ASSERT_EQ(taken.frames.size(), 1u);
  EXPECT_EQ(taken.frames[0].stream, 5u);
  EXPECT_EQ(Decode(taken.frames[0].frame).sequence, 1u);
  EXPECT_EQ(Joined(Decode(taken.frames[0].frame).payload), small);

  // A message by itself is no batch.
  batching.session->Send(*wire::Encode(ToAggregator(Heartbeat{3, {}})));
  connector.Flush();
  const auto message = wire::DecodeToAggregator(batching.call->AwaitMessage());
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<Heartbeat>(*message).progress, 3u);

  // What waits when the session is closed is still sent.
  batching.session->Send(*wire::Encode(ToAggregator(Leave{})));
  batching.session->Close();
  EXPECT_EQ(batching.Take().messages.size(), 1u);
}

TEST(GrpcSession, WithoutBatchesEverythingIsSentAtOnce) {
  RawServer server;
  GrpcConnector connector(server.address());
  BatchingSession batching(connector, server, 0);
  BoundStream stream(connector, server);
  batching.session->Send(*wire::Encode(ToAggregator(Heartbeat{1, {}})));
  EXPECT_EQ(batching.Take().messages.size(), 1u);
  const std::string small = Pattern(10, 1);
  ASSERT_TRUE(stream.channel
                  ->Send(Contribution(0, {{std::make_shared<OwnPayload>(small), 0, small.size()}}))
                  .ok());
  EXPECT_EQ(Joined(Decode(stream.call->AwaitMessage()).payload), small);
}

TEST(GrpcSession, TakesABatchOfMessagesAndFrames) {
  RawServer server;
  GrpcConnector connector(server.address());
  BatchingSession batching(connector, server, kFeatureBatches);
  wire::Outbox<ToWorker> outbox;
  outbox.UseBatches();
  outbox.Add(*wire::EncodePieces(ToWorker(Drain{true})), true);
  EXPECT_FALSE(outbox.due());
  outbox.Add({3, Result(1, "result")});
  outbox.Add({3, Result(2, "another")});
  for (const std::string& message : outbox.Take()) batching.call->Send(message);
  const auto batch = batching.ears->batches.Await();
  ASSERT_TRUE(batch.has_value());
  ASSERT_EQ(batch->messages.size(), 1u);
  EXPECT_TRUE(std::get<Drain>(batch->messages[0]).service);
  ASSERT_EQ(batch->frames.size(), 2u);
  EXPECT_EQ(batch->frames[1].payload_bytes, 7u);

  // A frame that is none ends the session, as one of a data stream ends that.
  outbox.Add({3, "no frame"});
  for (const std::string& message : outbox.Take()) batching.call->Send(message);
  EXPECT_THAT(*batching.ears->down.Await(), HasSubstr("broke the protocol"));
}

// An aggregator takes little from a connection until it has answered. So the first piece of a long
// hello is small, and the others wait for the initial metadata.
TEST(GrpcSession, SaysLittleBeforeTheAggregatorAnswers) {
  Hello hello;
  hello.job = "job";
  hello.worker = "w";
  hello.nonce = 1;
  hello.lanes.resize(1);
  hello.lanes[0].name = "model";
  for (int i = 0; i < 5000; ++i) {
    hello.lanes[0].layout.push_back(
        TensorSpec{std::string(240, 'x') + std::to_string(i), DType::kF32, {1, 2, 3}});
  }
  const auto pieces = wire::EncodePieces(ToAggregator(hello));
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_GT(pieces->size(), 2u);
  RawServer server;
  server.greets_at_once = false;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  for (const std::string& piece : *pieces) session->Send(piece);
  const auto call = server.AwaitCall();
  wire::MessageReader<ToAggregator> reader;
  const std::string first = call->AwaitMessage();
  EXPECT_LE(first.size(), wire::kMaxFirstMessageBytes);
  ASSERT_TRUE(reader.Read(first).ok());
  // The first one was written, so the others would be.
  EXPECT_EQ(call->received(), 0u);
  call->Greet();
  std::optional<Hello> heard;
  while (!heard.has_value()) {
    auto received = reader.Read(call->AwaitMessage());
    ASSERT_TRUE(received.ok()) << received.status();
    for (auto& one : received->messages) heard = std::get<Hello>(one.message);
  }
  EXPECT_EQ(heard->lanes.at(0).layout, hello.lanes[0].layout);
}

// The pieces may exceed the window, which is for messages that wait for the worker.
TEST(GrpcSession, TakesAMessageThatComesInPieces) {
  LaneLayout layout;
  layout.name = "model";
  for (int i = 0; i < 60000; ++i) {
    layout.tensors.push_back(
        TensorSpec{std::string(240, 'x') + std::to_string(i), DType::kF32, {1, 2, 3}});
  }
  const auto pieces = wire::EncodePieces(ToWorker(layout));
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  ASSERT_GT(pieces->size(), 3u);
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  const auto call = server.AwaitCall();
  for (int round = 0; round < 2; ++round) {
    for (const std::string& piece : *pieces) call->Send(piece);
    const auto heard = ears->messages.Await();
    EXPECT_TRUE(std::get<LaneLayout>(heard->message) == layout);
    session->Consumed(heard->bytes);
  }
}

TEST(GrpcSession, CloseSendsWhatWasSentBefore) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  for (uint64_t i = 1; i <= 1000; ++i) session->Send(*wire::Encode(ToAggregator(Heartbeat{i, {}})));
  session->Close();
  const auto call = server.AwaitCall();
  for (uint64_t i = 1; i <= 1000; ++i) {
    const auto message = wire::DecodeToAggregator(call->AwaitMessage());
    ASSERT_TRUE(message.ok()) << message.status();
    ASSERT_EQ(std::get<Heartbeat>(*message).progress, i);
  }
  EXPECT_TRUE(call->AwaitHalfClose());
}

TEST(GrpcSession, LettingGoOfTheChannelClosesIt) {
  RawServer server;
  GrpcConnector connector(server.address());
  auto session = connector.OpenSession(std::make_shared<Ears>());
  const auto call = server.AwaitCall();
  session.reset();
  EXPECT_TRUE(call->AwaitHalfClose());
}

TEST(GrpcSession, AServerThatDoesNotAnswerTheEndIsCutOff) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto session = connector.OpenSession(std::make_shared<Ears>());
  const auto call = server.AwaitCall();
  session->Close();
  call->AwaitCancelled();
}

TEST(GrpcSession, HearsTheAggregatorsTypedError) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  const auto call = server.AwaitCall();
  call->Send(*wire::Encode(ToWorker(Drain{true})));
  call->End(ToGrpc(wire::ToStatus({ErrorCode::kUnavailable, "The aggregator is being drained."})));
  // First the messages, then the end.
  ears->messages.Await();
  EXPECT_THAT(*ears->down.Await(), AllOf(HasSubstr("being drained"), HasSubstr(server.address())));
}

TEST(GrpcSession, AMessageThatIsNoneEndsIt) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  const auto call = server.AwaitCall();
  call->Send("\xff\xff\xff");
  EXPECT_THAT(*ears->down.Await(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("broke the protocol")));
  call->AwaitCancelled();
}

TEST(GrpcSession, SaysSoWhenNobodyIsThereAndFindsTheAggregatorThatIsBack) {
  int port = 0;
  std::string address;
  {
    RawServer server;
    port = server.port();
    address = server.address();
  }
  GrpcConnector connector(address);
  auto ears = std::make_shared<Ears>();
  auto session = connector.OpenSession(ears);
  EXPECT_THAT(*ears->down.Await(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr(address), HasSubstr("cannot be reached")));

  auto server = std::make_unique<RawServer>(port);
  ears = std::make_shared<Ears>();
  session = connector.OpenSession(ears);
  auto call = server->AwaitCall();
  session->Send(*wire::Encode(ToAggregator(Heartbeat{1, {}})));
  EXPECT_NE(call->AwaitMessage(), "");
  // Gone again, in the middle of the session.
  server.reset();
  EXPECT_THAT(*ears->down.Await(), HasSubstr(address));

  server = std::make_unique<RawServer>(port);
  ears = std::make_shared<Ears>();
  session = connector.OpenSession(ears);
  call = server->AwaitCall();
  session->Send(*wire::Encode(ToAggregator(Heartbeat{2, {}})));
  EXPECT_NE(call->AwaitMessage(), "");
}

TEST(GrpcSession, Fault_N14_ASessionWithoutAWelcomeIsOpenedAtTheNextAddress) {
  RawServer first;
  RawServer second;
  GrpcConnector connector(first.address() + "," + second.address());
  // The first one does not lead.
  auto ears = std::make_shared<Ears>();
  auto session = connector.OpenSession(ears);
  first.AwaitCall()->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "not the leader"));
  EXPECT_THAT(*ears->down.Await(), HasSubstr("not the leader"));
  // The second one does, and loses its connection later.
  ears = std::make_shared<Ears>();
  session = connector.OpenSession(ears);
  auto call = second.AwaitCall();
  call->Send(*wire::Encode(ToWorker(WelcomeOf(0))));
  ears->messages.Await();
  const auto stream = connector.OpenStream(0, kToken, PlacedShard{}, std::make_shared<DataEars>());
  EXPECT_NE(second.AwaitCall()->AwaitMessage(), "");
  call->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  ears->down.Await();
  ears = std::make_shared<Ears>();
  session = connector.OpenSession(ears);
  call = second.AwaitCall();
  // Now it does not lead any more.
  call->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "not the leader"));
  ears->down.Await();
  ears = std::make_shared<Ears>();
  session = connector.OpenSession(ears);
  call = first.AwaitCall();
  // The first one leads, and the worker ends the session, as after an end that it was told.
  call->Send(*wire::Encode(ToWorker(WelcomeOf(0))));
  ears->messages.Await();
  session->Close();
  session = connector.OpenSession(std::make_shared<Ears>());
  second.AwaitCall();
}

// ---- data streams

TEST(GrpcStream, PresentsItsTokenAndIsUpWhenItIsBound) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<DataEars>();
  const auto channel = connector.OpenStream(3, kToken, PlacedShard{}, ears);
  const auto call = server.AwaitCall();
  EXPECT_EQ(call->method(), "/basin.v1.Exchange/Run");
  const wire::DecodedFrame bind = Decode(call->AwaitMessage());
  ASSERT_TRUE(std::holds_alternative<wire::Bind>(bind.header.kind));
  EXPECT_EQ(std::get<wire::Bind>(bind.header.kind).token, kToken);
  EXPECT_EQ(std::get<wire::Bind>(bind.header.kind).stream, 3u);
  EXPECT_EQ(ears->up.size(), 0u);
  call->Send(Bound());
  ears->up.Await();
}

TEST(GrpcStream, HasAConnectionOfItsOwn) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto session = connector.OpenSession(std::make_shared<Ears>());
  std::set<std::string> peers = {server.AwaitCall()->peer()};
  const BoundStream a(connector, server, 0);
  const BoundStream b(connector, server, 1);
  const BoundStream c(connector, server, 1);
  for (const BoundStream* stream : {&a, &b, &c}) peers.insert(stream->call->peer());
  EXPECT_THAT(peers, SizeIs(4));
}

TEST(GrpcStream, OneToAnotherShardGoesThereAndItsSmallFramesStayOnIt) {
  RawServer aggregator;
  RawServer other;
  GrpcConnector connector(aggregator.address());
  BatchingSession batching(connector, aggregator, kFeatureBatches);
  const auto ears = std::make_shared<DataEars>();
  const auto channel =
      connector.OpenStream(1, kToken, PlacedShard{7, "s-7", other.address()}, ears);
  const auto call = other.AwaitCall();
  EXPECT_EQ(call->method(), "/basin.v1.Exchange/Run");
  const wire::DecodedFrame bind = Decode(call->AwaitMessage());
  EXPECT_EQ(std::get<wire::Bind>(bind.header.kind).token, kToken);
  EXPECT_EQ(std::get<wire::Bind>(bind.header.kind).stream, 1u);
  call->Send(Bound());
  ears->up.Await();
  const std::string small = Pattern(1000, 1);
  const auto payload = std::make_shared<OwnPayload>(small);
  ASSERT_TRUE(channel->Send(Contribution(0, {{payload, 0, small.size()}})).ok());
  connector.Flush();
  const std::string message = call->AwaitMessage();
  const wire::DecodedFrame frame = Decode(message);
  EXPECT_EQ(frame.sequence, 1u);
  EXPECT_EQ(Joined(frame.payload), small);
}

TEST(GrpcStream, AShardThatIsNotThereIsNamed) {
  RawServer aggregator;
  GrpcConnector connector(aggregator.address());
  const auto ears = std::make_shared<DataEars>();
  const auto channel = connector.OpenStream(0, kToken, PlacedShard{7, "s-7", "127.0.0.1:1"}, ears);
  EXPECT_THAT(ears->down.Await().value_or(""),
              AllOf(HasSubstr("shard s-7 at 127.0.0.1:1 cannot be reached"),
                    HasSubstr("advertises an address")));
}

TEST(GrpcStream, FramesArriveBitForBitBothWays) {
  RawServer server;
  GrpcConnector connector(server.address());
  const BoundStream stream(connector, server);
  const Lender lender(Pattern(kMaxPayloadBytes, 1));
  const Lender other(Pattern(1 << 16, 2));
  // From one byte to the largest frame, whole and in parts of two owners.
  const std::vector<std::vector<PayloadPart>> frames = {
      {{lender.Lend(), 0, 1}},
      {{lender.Lend(), 17, 1000}},
      {{lender.Lend(), 4096, kChunkBytes}},
      {{lender.Lend(), 1, 100000}, {other.Lend(), 3, 50000}, {lender.Lend(), 7, 11}},
  };
  for (uint32_t i = 0; i < frames.size(); ++i) {
    std::string expected;
    for (const PayloadPart& part : frames[i]) {
      ForEachPiece(part, [&](std::string_view piece) { expected.append(piece); });
    }
    EXPECT_TRUE(stream.channel->Send(Contribution(i, frames[i])).ok());
    const std::string message = stream.call->AwaitMessage();
    const wire::DecodedFrame frame = Decode(message);
    EXPECT_EQ(frame.sequence, i + 1);
    EXPECT_EQ(std::get<wire::ContributionHeader>(frame.header.kind).runs.front().range.first, i);
    EXPECT_EQ(Joined(frame.payload), expected);
  }
  uint64_t sequence = 0;
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{kChunkBytes}}) {
    const std::string payload = Pattern(size, 3);
    const std::string message = Result(++sequence, payload);
    stream.call->Send(message);
    const auto frame = stream.ears->frames.Await();
    ASSERT_TRUE(std::holds_alternative<wire::ResultHeader>(frame->header));
    EXPECT_EQ(std::get<wire::ResultHeader>(frame->header).runs.front().range.first, sequence);
    std::string got;
    for (const std::string_view piece : frame->payload->pieces()) got.append(piece);
    EXPECT_EQ(got, payload);
    EXPECT_EQ(frame->message_bytes, message.size());
    stream.channel->Consumed(frame->message_bytes);
  }
}

TEST(GrpcStream, TheLargestFrameFits) {
  RawServer server(0, [](grpc::ServerBuilder& builder) {
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  });
  GrpcConnector connector(server.address());
  const BoundStream stream(connector, server);
  const Lender lender(Pattern(kMaxPayloadBytes, 4));
  OutgoingFrame frame;
  frame.payload.Append({lender.Lend(), 0, kMaxPayloadBytes});
  frame.header = ContributionHeader{1, 2, {0, 0, kMaxChunksPerFrame}};
  EXPECT_TRUE(stream.channel->Send(std::move(frame)).ok());
  EXPECT_TRUE(Joined(Decode(stream.call->AwaitMessage()).payload) == lender.bytes());

  wire::FrameHeader header;
  header.kind = wire::ResultHeader{1, 2, {3, 4}, {0, 0, kMaxChunksPerFrame}};
  stream.call->Send(Encoded(1, header, lender.bytes()));
  const auto result = stream.ears->frames.Await();
  EXPECT_EQ(result->payload_bytes, kMaxPayloadBytes);
}

TEST(GrpcStream, SendsFromTheTrainersMemoryAndLetsGoOfWhatWasWritten) {
  RawServer server;
  GrpcConnector connector(server.address());
  const BoundStream stream(connector, server);
  Lender lender(Pattern(kChunkBytes, 5));
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  lender.Recall();
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(Joined(Decode(stream.call->AwaitMessage()).payload) == lender.bytes());
  }
  lender.free.Await();
  EXPECT_EQ(stream.ears->down.size(), 0u);
}

TEST(GrpcStream, ReadsNoMoreThanItsWindowUntilItIsConsumed) {
  constexpr uint64_t kFrames = 64;
  StreamWindow window;
  window.bytes = 4 * kChunkBytes;
  RawServer server;
  GrpcConnector connector(server.address(), {}, {}, window);
  const BoundStream stream(connector, server);
  const std::string payload = Pattern(kChunkBytes, 6);
  for (uint64_t i = 1; i <= kFrames; ++i) stream.call->Send(Result(i, payload));
  // The message that passes the window is still read, none after it.
  std::deque<IncomingFrame> held;
  uint64_t held_bytes = 0;
  while (held_bytes < window.bytes) {
    held.push_back(*stream.ears->frames.Await());
    held_bytes += held.back().message_bytes;
  }
  EXPECT_THAT(held, SizeIs(4));
  uint64_t heard = held.size();
  // Each that is consumed lets one more in: whatever the timing, there are never more than fit.
  while (heard < kFrames) {
    EXPECT_EQ(stream.ears->frames.size(), 0u) << "after " << heard;
    stream.channel->Consumed(held.front().message_bytes);
    held.pop_front();
    held.push_back(*stream.ears->frames.Await());
    ++heard;
  }
  EXPECT_EQ(std::get<wire::ResultHeader>(held.back().header).runs.front().range.first, kFrames);
}

TEST(GrpcStream, AStreamThatDoesNotBeginWithBoundEnds) {
  RawServer server;
  GrpcConnector connector(server.address());
  const auto ears = std::make_shared<DataEars>();
  const auto channel = connector.OpenStream(0, kToken, PlacedShard{}, ears);
  const auto call = server.AwaitCall();
  call->Send(Result(1, "abcd"));
  EXPECT_THAT(*ears->down.Await(), HasSubstr("INVALID_ARGUMENT"));
  call->AwaitCancelled();
}

TEST(GrpcStream, AGapInTheSequenceEndsIt) {
  RawServer server;
  GrpcConnector connector(server.address());
  const BoundStream stream(connector, server);
  stream.call->Send(Result(1, "abcd"));
  stream.call->Send(Result(3, "abcd"));
  EXPECT_THAT(*stream.ears->down.Await(), HasSubstr("DATA_LOSS"));
  stream.call->AwaitCancelled();
}

TEST(GrpcStream, AServerThatGoesAwayEndsItAndGivesTheMemoryBack) {
  auto server = std::make_unique<RawServer>();
  GrpcConnector connector(server->address());
  const BoundStream stream(connector, *server);
  Lender lender(Pattern(kChunkBytes, 7));
  for (uint32_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  lender.Recall();
  server.reset();
  stream.ears->down.Await();
  lender.free.Await();
  // Later frames are released as well.
  Lender late(Pattern(kChunkBytes, 8));
  EXPECT_TRUE(stream.channel->Send(Contribution(0, {{late.Lend(), 0, kChunkBytes}})).ok());
  late.Recall();
  late.free.Await();
  EXPECT_EQ(stream.channel->queued_bytes(), 0u);
}

// ---- letting go

// No ping ever ends a connection in these tests: only the channel can.
GrpcSettings Patient() {
  GrpcSettings settings;
  settings.keepalive_time = absl::Hours(1);
  settings.keepalive_timeout = absl::Hours(1);
  return settings;
}

// The server reads its connections and not its stream: HTTP/2's window is full.
TEST(GrpcStream, CloseGivesTheMemoryBackWhenTheStreamIsNotRead) {
  auto idle = std::make_unique<RawServer>(0, [](grpc::ServerBuilder& builder) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  });
  TcpRelay relay(idle->port());
  GrpcConnector connector(relay.address(), {}, Patient());
  const BoundStream stream(connector, *idle);
  Lender lender(Pattern(kMaxPayloadBytes, 9));
  relay.Freeze();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  EXPECT_GT(stream.channel->queued_bytes(), 32 * kChunkBytes);
  lender.Recall();
  stream.channel->Close();
  lender.free.Await();
  EXPECT_EQ(stream.ears->down.size(), 0u);
}

// The connection itself is not read: gRPC is in the middle of a write that cannot end.
TEST(GrpcStream, CloseGivesTheMemoryBackWhenTheConnectionIsNotRead) {
  RawServer server;
  TcpRelay relay(server.port());
  GrpcConnector connector(relay.address(), {}, Patient());
  const BoundStream stream(connector, server);
  Lender lender(Pattern(kMaxPayloadBytes, 10));
  relay.Freeze();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  relay.AwaitStuck();
  lender.Recall();
  EXPECT_EQ(lender.free.size(), 0u) << "nothing was stuck";
  stream.channel->Close();
  lender.free.Await();
}

TEST(GrpcStream, LettingGoOfTheChannelGivesTheMemoryBack) {
  RawServer server;
  TcpRelay relay(server.port());
  GrpcConnector connector(relay.address(), {}, Patient());
  BoundStream stream(connector, server);
  Lender lender(Pattern(kMaxPayloadBytes, 11));
  relay.Freeze();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  relay.AwaitStuck();
  lender.Recall();
  stream.channel.reset();
  lender.free.Await();
}

TEST(GrpcStream, CloseBeforeThereIsAConnectionGivesTheMemoryBack) {
  // Accepts connections and sends nothing, so HTTP/2 does not begin.
  RawServer server;
  TcpRelay relay(server.port());
  relay.Freeze();
  GrpcConnector connector(relay.address(), {}, Patient());
  const auto ears = std::make_shared<DataEars>();
  const auto channel = connector.OpenStream(0, kToken, PlacedShard{}, ears);
  Lender lender(Pattern(kChunkBytes, 12));
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  lender.Recall();
  channel->Close();
  lender.free.Await();
  EXPECT_EQ(ears->down.size(), 0u);
}

TEST(GrpcConnector, ItsEndEndsWhatIsStillOpen) {
  RawServer server;
  TcpRelay relay(server.port());
  auto connector = std::make_unique<GrpcConnector>(relay.address(), ClientTls{}, Patient());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector->OpenSession(ears);
  const auto call = server.AwaitCall();
  const BoundStream stream(*connector, server);
  Lender lender(Pattern(kMaxPayloadBytes, 13));
  relay.Freeze();
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(stream.channel->Send(Contribution(i, {{lender.Lend(), 0, kChunkBytes}})).ok());
  }
  relay.AwaitStuck();
  lender.Recall();
  connector.reset();
  EXPECT_EQ(lender.free.size(), 1u);
  EXPECT_EQ(ears->down.size(), 0u);
  EXPECT_EQ(stream.ears->down.size(), 0u);
}

// Sockets of this process that are connected to the port. It allocates no memory, as in a fork.
int ConnectionsTo(int port) {
  int count = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    // gRPC's are IPv6 sockets for IPv4 too; the port stands in the same place.
    sockaddr_in6 peer{};
    socklen_t length = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    const bool internet = peer.sin6_family == AF_INET || peer.sin6_family == AF_INET6;
    count += internet && ntohs(peer.sin6_port) == port ? 1 : 0;
  }
  return count;
}

TEST(GrpcConnector, AForkHoldsNoneOfItsConnections) {
  RawServer server;
  RawServer of_others;
  GrpcConnector connector(server.address());
  const BoundStream stream(connector, server);
  const int other = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(of_others.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const int before = ConnectionsTo(server.port());
  EXPECT_GE(before, 2);  // gRPC's descriptor and ours.

  const pid_t fork_of_this = fork();
  if (fork_of_this == 0) _exit(10 * ConnectionsTo(of_others.port()) + ConnectionsTo(server.port()));
  int status = 0;
  ASSERT_EQ(waitpid(fork_of_this, &status, 0), fork_of_this);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 10) << "only the sockets of others";

  EXPECT_EQ(ConnectionsTo(server.port()), before);
  const std::string bytes = Pattern(1000, 1);
  const auto payload = std::make_shared<OwnPayload>(bytes);
  ASSERT_TRUE(stream.channel->Send(Contribution(1, {{payload, 0, bytes.size()}})).ok());
  EXPECT_FALSE(stream.call->AwaitMessage().empty());
  close(other);
}

TEST(GrpcConnector, ManyStreamsAreOpenedSentToAndClosedAtOnce) {
  RawServer server;
  GrpcConnector connector(server.address());
  Lender lender(Pattern(kChunkBytes, 14));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<StreamChannel>> channels;
    for (uint32_t i = 0; i < 4; ++i) {
      channels.push_back(
          connector.OpenStream(i, kToken, PlacedShard{}, std::make_shared<DataEars>()));
      for (uint32_t chunk = 0; chunk < 8; ++chunk) {
        EXPECT_TRUE(
            channels.back()->Send(Contribution(chunk, {{lender.Lend(), 0, kChunkBytes}})).ok());
      }
    }
    // Some end before their connection, some in the middle of it, some not at all.
    if (round % 3 != 0) server.AwaitCall();
    for (const auto& channel : channels) {
      if (round % 2 == 0) channel->Close();
    }
  }
  lender.Recall();
  lender.free.Await();
}

}  // namespace
}  // namespace basin::client
