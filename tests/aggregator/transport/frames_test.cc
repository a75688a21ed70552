// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The aggregator's reader and writer of frames.

#include "aggregator/transport/frames.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Message(wire::FrameHeader header, uint64_t sequence, const std::string& payload = "") {
  wire::Slices pieces;
  if (!payload.empty()) pieces.push_back(payload);
  const absl::StatusOr<std::string> head = wire::EncodeFrame(header, pieces);
  EXPECT_TRUE(head.ok()) << head.status();
  return wire::EncodeSequence(sequence) + *head + payload;
}

std::string Contribution(uint64_t sequence, const std::string& payload, uint32_t chunks,
                         DType wire_dtype = DType::kUnspecified) {
  return Message({wire::ContributionHeader{1, 7, {2, 5, chunks}}, {wire_dtype, 0}, {}}, sequence,
                 payload);
}

absl::StatusOr<FrameReader::Taken> Take(FrameReader& reader, std::string message) {
  return reader.Take(std::make_shared<OwnPayload>(std::move(message)));
}

FrameReader Bound() {
  FrameReader reader;
  const auto bind = Take(reader, Message({wire::Bind{99, 3}, {}, {}}, 0));
  EXPECT_TRUE(bind.ok()) << bind.status();
  EXPECT_EQ(std::get<wire::Bind>(*bind).token, 99u);
  return reader;
}

TEST(FrameReader, HashesEachChunkOfAContribution) {
  FrameReader reader = Bound();
  const std::string bytes = std::string(kChunkBytes, 'a') + "rest";
  const auto taken = Take(reader, Contribution(1, bytes, 2));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const auto& frame = std::get<IncomingFrame>(*taken);
  const auto& what = std::get<ContributionHeader>(frame.what);
  EXPECT_EQ(what.lane, 1u);
  EXPECT_EQ(what.round, 7u);
  EXPECT_EQ(RangesOf(what.runs), (ChunkRanges{{2, 5, 2}}));
  EXPECT_EQ(frame.bytes, bytes.size());
  ASSERT_THAT(frame.contents, SizeIs(2));
  EXPECT_EQ(frame.contents, HashChunks({bytes}, kChunkBytes));
  EXPECT_THAT(frame.claimed, SizeIs(0)) << "the checksum vouches for the payload";
}

TEST(FrameReader, ChunksOfANarrowContributionAreHalfAsLong) {
  FrameReader reader = Bound();
  const std::string bytes(kChunkBytes, 'a');
  const auto taken = Take(reader, Contribution(1, bytes, 2, DType::kBF16));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(std::get<IncomingFrame>(*taken).contents, HashChunks({bytes}, kChunkBytes / 2));
}

TEST(FrameReader, KeepsThePayloadAsLongAsTheFrame) {
  FrameReader reader = Bound();
  std::optional<FrameReader::Taken> taken = *Take(reader, Contribution(1, "bytes", 1));
  const PayloadPtr payload = std::get<IncomingFrame>(*taken).payload;
  taken.reset();
  EXPECT_THAT(payload->pieces(), testing::ElementsAre("bytes"));
}

TEST(FrameReader, Fault_N10_BeginsWithBindAndOnlyOnce) {
  FrameReader unbound;
  const auto early = Take(unbound, Contribution(1, "bytes", 1));
  EXPECT_EQ(early.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(early.status().message(), HasSubstr("did not begin with Bind"));
  FrameReader reader = Bound();
  const auto again = Take(reader, Message({wire::Bind{99, 3}, {}, {}}, 0));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(again.status().message(), HasSubstr("twice"));
}

TEST(FrameReader, Fault_N9_AGapInTheSequenceEndsTheStream) {
  FrameReader reader = Bound();
  ASSERT_TRUE(Take(reader, Contribution(1, "bytes", 1)).ok());
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{3}}) {
    FrameReader copy = reader;
    const auto taken = Take(copy, Contribution(sequence, "bytes", 1));
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kDataLoss) << sequence;
  }
  EXPECT_TRUE(Take(reader, Contribution(2, "bytes", 1)).ok());
}

TEST(FrameReader, Fault_N8_AWrongChecksumEndsTheStream) {
  FrameReader reader = Bound();
  std::string message = Contribution(1, "bytes", 1);
  message.back() ^= 1;
  EXPECT_EQ(Take(reader, message).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FrameReader, Fault_N10_RefusesWhatOnlyTheAggregatorSends) {
  FrameReader reader = Bound();
  const auto result =
      Take(reader, Message({wire::ResultHeader{1, 2, {3, 4}, {5, 6, 1}}, {}, {}}, 1, "bytes"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  FrameReader other = Bound();
  const auto narrow = Take(
      other,
      Message({wire::SupplyHeader{1, 2, {3, 4}, {5, 6, 1}}, {DType::kF16, 0}, {}}, 1, "bytes"));
  EXPECT_EQ(narrow.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(narrow.status().message(), HasSubstr("f16"));
}

TEST(FrameReader, TakesSuppliesValuesAndAcks) {
  FrameReader reader = Bound();
  const auto supply =
      Take(reader, Message({wire::SupplyHeader{1, 2, {3, 4}, {5, 6, 1}}, {}, {}}, 1, "bytes"));
  ASSERT_TRUE(supply.ok()) << supply.status();
  const auto& result = std::get<SupplyHeader>(std::get<IncomingFrame>(*supply).what);
  EXPECT_EQ(result.ballot, (Ballot{3, 4}));
  EXPECT_EQ(RangesOf(result.runs), (ChunkRanges{{5, 6, 1}}));
  const auto value =
      Take(reader, Message({wire::ValueHeader{{"lane", "t", 1}, 3, 1}, {}, {}}, 2, "bytes"));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(std::get<ValueHeader>(std::get<IncomingFrame>(*value).what).first, 3u);
  const auto ack = Take(reader, Message({wire::Ack{1}, {}, {}}, 3));
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_TRUE(std::holds_alternative<wire::Ack>(*ack));
}

TEST(EncodeHead, IsReadByTheWireLayer) {
  const std::string bytes = "result";
  OutgoingFrame frame;
  frame.what = ResultHeader{1, 2, {3, 4}, {5, 6, 1}};
  frame.digests = {42};
  frame.payload.Append({std::make_shared<OwnPayload>(bytes), 0, bytes.size()});
  const absl::StatusOr<std::string> head = EncodeHead(frame);
  ASSERT_TRUE(head.ok()) << head.status();
  const std::string message = wire::EncodeSequence(9) + *head + bytes;
  const std::string_view slice = message;
  const auto decoded = wire::DecodeFrame({&slice, 1});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->sequence, 9u);
  EXPECT_EQ(decoded->header.kind, wire::FrameKind(wire::ResultHeader{1, 2, {3, 4}, {5, 6, 1}}));
  EXPECT_EQ(decoded->header.chunk_digests, frame.digests);
}

TEST(EncodeBound, IsReadByTheWireLayer) {
  const std::string message = EncodeBound();
  const std::string_view slice = message;
  const auto decoded = wire::DecodeFrame({&slice, 1});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(std::holds_alternative<wire::Bound>(decoded->header.kind));
}

}  // namespace
}  // namespace basin::aggregator
