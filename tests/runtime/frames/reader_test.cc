// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Frames as each side reads them, and as both write them.

#include "runtime/frames/reader.h"

#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "basin/v1/exchange.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/checksum.h"
#include "proto/wire/frame.h"
#include "protocol/version.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/runtime/shared_memory/emulated_opener.h"

namespace basin {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A message in pieces of `piece` bytes.
class InPieces : public Payload {
 public:
  InPieces(std::string bytes, size_t piece) : bytes_(std::move(bytes)) {
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      pieces_.push_back(std::string_view(bytes_).substr(at, piece));
    }
  }
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const std::string bytes_;
  std::vector<std::string_view> pieces_;
};

std::string Message(OutgoingFrame frame, uint64_t sequence, const std::string& payload = "") {
  frame.payload.Append({std::make_shared<OwnPayload>(payload), 0, payload.size()});
  const absl::StatusOr<std::string> head = EncodeHead(frame);
  EXPECT_TRUE(head.ok()) << head.status();
  return wire::EncodeSequence(sequence) + head.value_or("") + payload;
}

std::string Contribution(uint64_t sequence, const std::string& payload, uint32_t chunks,
                         DType wire_dtype = DType::kUnspecified) {
  return Message({ContributionHeader{1, 7, {2, 5, chunks}}, {wire_dtype, 0}}, sequence, payload);
}

absl::StatusOr<IncomingFrame> Take(FrameReader& reader, std::string message, size_t piece = 1000) {
  return reader.Read(std::make_shared<InPieces>(std::move(message), piece));
}

// The aggregator's reader of a stream that was bound.
FrameReader FromWorker() {
  FrameReader reader(FrameSender::kWorker);
  const auto bind = Take(reader, Message({Bind{99, 3}}, 0));
  EXPECT_TRUE(bind.ok()) << bind.status();
  EXPECT_EQ(std::get<Bind>(bind->header).token, 99u);
  return reader;
}

// A worker's.
FrameReader FromAggregator() {
  FrameReader reader(FrameSender::kAggregator);
  EXPECT_TRUE(Take(reader, Message({Bound{}}, 0)).ok());
  return reader;
}

TEST(FrameReader, HashesEachChunkOfAContribution) {
  FrameReader reader = FromWorker();
  const std::string bytes = std::string(kChunkBytes, 'a') + "rest";
  const auto taken = Take(reader, Contribution(1, bytes, 2));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const IncomingFrame& frame = *taken;
  const auto& what = std::get<ContributionHeader>(frame.header);
  EXPECT_EQ(what.lane, 1u);
  EXPECT_EQ(what.round, 7u);
  EXPECT_EQ(RangesOf(what.runs), (ChunkRanges{{2, 5, 2}}));
  EXPECT_EQ(frame.payload_bytes, bytes.size());
  ASSERT_THAT(frame.contents, SizeIs(2));
  EXPECT_EQ(frame.contents, HashChunks({bytes}, kChunkBytes));
  EXPECT_THAT(frame.claimed, SizeIs(0)) << "the checksum vouches for the payload";
}

TEST(FrameReader, ChunksOfANarrowContributionAreHalfAsLong) {
  FrameReader reader = FromWorker();
  const std::string bytes(kChunkBytes, 'a');
  const auto taken = Take(reader, Contribution(1, bytes, 2, DType::kBF16));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->contents, HashChunks({bytes}, kChunkBytes / 2));
}

TEST(FrameReader, KeepsThePayloadAsLongAsTheFrame) {
  FrameReader reader = FromWorker();
  absl::StatusOr<IncomingFrame> taken = Take(reader, Contribution(1, "bytes", 1));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const PayloadPtr payload = taken->payload;
  taken = absl::CancelledError();
  EXPECT_THAT(payload->pieces(), testing::ElementsAre("bytes"));
}

TEST(FrameReader, Fault_N10_BeginsWithBindAndOnlyOnce) {
  FrameReader unbound(FrameSender::kWorker);
  const auto early = Take(unbound, Contribution(1, "bytes", 1));
  EXPECT_EQ(early.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(early.status().message(), HasSubstr("did not begin with Bind"));
  FrameReader reader = FromWorker();
  const auto again = Take(reader, Message({Bind{99, 3}}, 0));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(again.status().message(), HasSubstr("twice"));
}

TEST(FrameReader, Fault_N9_AGapInTheSequenceEndsTheStream) {
  FrameReader reader = FromWorker();
  ASSERT_TRUE(Take(reader, Contribution(1, "bytes", 1)).ok());
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{3}}) {
    FrameReader copy = reader;
    const auto taken = Take(copy, Contribution(sequence, "bytes", 1));
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kDataLoss) << sequence;
  }
  EXPECT_TRUE(Take(reader, Contribution(2, "bytes", 1)).ok());
}

TEST(FrameReader, Fault_N8_AWrongChecksumEndsTheStream) {
  FrameReader reader = FromWorker();
  std::string message = Contribution(1, "bytes", 1);
  message.back() ^= 1;
  EXPECT_EQ(Take(reader, message).status().code(), absl::StatusCode::kDataLoss);
}

TEST(FrameReader, Fault_N10_RefusesWhatOnlyTheAggregatorSends) {
  FrameReader reader = FromWorker();
  const auto result = Take(reader, Message({ResultHeader{1, 2, {3, 4}, {5, 6, 1}}}, 1, "bytes"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  FrameReader other = FromWorker();
  const auto narrow =
      Take(other, Message({SupplyHeader{1, 2, {3, 4}, {5, 6, 1}}, {DType::kF16, 0}}, 1, "bytes"));
  EXPECT_EQ(narrow.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(narrow.status().message(), HasSubstr("f16"));
}

TEST(FrameReader, TakesSuppliesValuesAndAcks) {
  FrameReader reader = FromWorker();
  const auto supply = Take(reader, Message({SupplyHeader{1, 2, {3, 4}, {5, 6, 1}}}, 1, "bytes"));
  ASSERT_TRUE(supply.ok()) << supply.status();
  const auto& result = std::get<SupplyHeader>(supply->header);
  EXPECT_EQ(result.ballot, (Ballot{3, 4}));
  EXPECT_EQ(RangesOf(result.runs), (ChunkRanges{{5, 6, 1}}));
  const auto value = Take(reader, Message({BlobHeader{{"lane", "t", 1}, 3, 1}}, 2, "bytes"));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(std::get<BlobHeader>(value->header).first, 3u);
  const auto ack = Take(reader, Message({Ack{1}}, 3));
  ASSERT_TRUE(ack.ok()) << ack.status();
  EXPECT_TRUE(std::holds_alternative<Ack>(ack->header));
}

TEST(EncodeHead, IsReadByTheWireLayer) {
  const std::string bytes = "result";
  OutgoingFrame frame;
  frame.header = ResultHeader{1, 2, {3, 4}, {5, 6, 1}};
  frame.digests = {42};
  frame.payload.Append({std::make_shared<OwnPayload>(bytes), 0, bytes.size()});
  const absl::StatusOr<std::string> head = EncodeHead(frame);
  ASSERT_TRUE(head.ok()) << head.status();
  const std::string message = wire::EncodeSequence(9) + *head + bytes;
  const std::string_view slice = message;
  const auto decoded = wire::DecodeFrame({&slice, 1});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->sequence, 9u);
  EXPECT_EQ(decoded->header.kind, AnyHeader(ResultHeader{1, 2, {3, 4}, {5, 6, 1}}));
  EXPECT_EQ(decoded->header.chunk_digests, frame.digests);
}

TEST(FrameReader, HashesEachChunkOfAResultWhateverThePieces) {
  std::string payload(kChunkBytes + 1000, '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 131 + i / 4096);
  const ResultHeader header{3, 1, {5, 1}, {0, 1, 2}};
  for (const size_t piece : {size_t{1000}, size_t{65536}, 2 * kChunkBytes}) {
    FrameReader reader = FromAggregator();
    const auto frame = Take(reader, Message({header}, 1, payload), piece);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->header, AnyHeader(header));
    EXPECT_EQ(frame->payload_bytes, payload.size());
    EXPECT_GT(frame->message_bytes, payload.size());
    EXPECT_EQ(frame->contents, HashChunks({payload}, kChunkBytes));
    std::string copy(500, '\0');
    EXPECT_EQ(CopyBytes({frame->payload, kChunkBytes - 100, 500}, copy.data()),
              copy.data() + copy.size());
    EXPECT_EQ(copy, payload.substr(kChunkBytes - 100, 500));
  }
}

TEST(FrameReader, AWorkerRefusesWhatIsOutOfPlace) {
  const ResultHeader header{3, 1, {5, 1}, {0, 1, 2}};
  const std::string payload(kChunkBytes + 1000, 'x');
  FrameReader unbound(FrameSender::kAggregator);
  const auto early = Take(unbound, Message({header}, 1, payload));
  EXPECT_EQ(early.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(early.status().message(), HasSubstr("did not begin with Bound"));
  FrameReader reader = FromAggregator();
  EXPECT_EQ(Take(reader, Message({Bound{}}, 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Take(reader, Message({header}, 2, payload)).status().code(),
            absl::StatusCode::kDataLoss);  // A gap.
  EXPECT_EQ(Take(reader, Contribution(1, "bytes", 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string damaged = Message({header}, 1, payload);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_EQ(Take(reader, damaged).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Take(reader, Message({header}, 1, payload)).ok());
}

// ---- payloads in shared memory

// A worker's end and the aggregator's, which share one segment of the worker.
struct Shared {
  void Offer(const std::shared_ptr<Segment>& offered) const {
    EXPECT_TRUE(worker->Offer(offered));
    EXPECT_TRUE(aggregator->Receive().ok());
    EXPECT_TRUE(worker->Receive().ok());
  }
  Shared() {
    std::array<int, 2> sockets;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
    worker = std::make_shared<Segments>(sockets[0]);
    aggregator = std::make_shared<Segments>(sockets[1]);
    for (uint64_t i = 0; i < segment->size(); ++i) {
      segment->writable()[i] = static_cast<char>(i * 131 + i / 4096);
    }
    Offer(segment);
  }
  FrameReader Reader() const {
    FrameReader reader(FrameSender::kWorker, [this] { return aggregator; });
    EXPECT_TRUE(Take(reader, Message({Bind{99, 3}}, 0)).ok());
    return reader;
  }
  // Chunks of a tensor that lie in the segment.
  OutgoingFrame Frame(uint64_t offset, uint64_t bytes, uint32_t chunks) const {
    OutgoingFrame frame{ContributionHeader{1, 7, {2, 0, chunks}}};
    for (uint32_t i = 0; i < chunks; ++i) frame.digests.push_back(100 + i);
    frame.payload.Append({std::make_shared<SharedPayload>(
                              segment, std::string_view(segment->data() + offset, bytes), 0),
                          0, bytes});
    return frame;
  }
  static std::string Referring(const OutgoingFrame& frame, const SharedPlaces& places,
                               uint64_t sequence = 1) {
    const auto encoded = EncodeReference(frame, places);
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return wire::EncodeSequence(sequence) + encoded.value_or("");
  }

  // The bytes of one chunk; empty if they are in pieces.
  static std::string_view At(const IncomingFrame& frame, uint64_t begin, uint64_t size) {
    Pieces pieces;
    ForEachPiece(frame.Part(begin, size), [&](std::string_view piece) { pieces.push_back(piece); });
    return pieces.size() == 1 ? pieces[0] : std::string_view();
  }

  const std::shared_ptr<Segment> segment = *Segment::Create(2 * kChunkBytes);
  std::shared_ptr<Segments> worker;
  std::shared_ptr<Segments> aggregator;
};

TEST(SharedFrames, AWorkerRefersOnlyToItsContributions) {
  const Shared shared;
  const SharedPlaces place = {{1, 0, 1000}};
  for (const AnyHeader& header : {AnyHeader(SupplyHeader{1, 7, {2, 1}, {2, 0, 1}}),
                                  AnyHeader(BlobHeader{{"g", "a", 0}, 0, 1})}) {
    FrameReader reader = shared.Reader();
    OutgoingFrame frame = shared.Frame(0, 1000, 1);
    frame.header = header;
    const auto taken = Take(reader, Shared::Referring(frame, place));
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(taken.status().message(), HasSubstr("no contribution"));
  }
}

// A worker on the host could not read it, nor supply it.
TEST(SharedFrames, Fault_N10_AResultInMemoryOfADeviceAloneIsRefused) {
  const EmulatedOpener opener;
  std::array<int, 2> sockets;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
  Segments aggregator(sockets[0]);
  const auto worker = std::make_shared<Segments>(sockets[1], kChunkBytes, &opener);
  const auto device = accelerator::MakeEmulatedDevice(opener.plan);
  const auto memory = device->AllocateShared(kChunkBytes).value();
  EXPECT_TRUE(aggregator.Offer(memory));
  EXPECT_TRUE(worker->Receive().ok());
  EXPECT_TRUE(aggregator.Receive().ok());
  FrameReader reader(FrameSender::kAggregator, [&] { return worker; });
  EXPECT_TRUE(Take(reader, Message({Bound{}}, 0)).ok());
  const Shared shared;
  OutgoingFrame frame = shared.Frame(0, kChunkBytes, 1);
  frame.header = ResultHeader{3, 1, {5, 1}, {0, 1, 1}};
  const SharedPlaces place = *aggregator.Find({{memory->data(), kChunkBytes}});
  const auto taken = Take(reader, Shared::Referring(frame, place));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(taken.status().message(), HasSubstr("memory of a device alone"));
}

TEST(SharedFrames, APayloadInSharedMemoryIsNotInTheMessage) {
  const Shared shared;
  const OutgoingFrame frame = shared.Frame(1000, kChunkBytes + 50, 2);
  const std::optional<SharedPlaces> places = PlacesOf(frame, *shared.worker);
  ASSERT_TRUE(places.has_value());
  const std::string message = Shared::Referring(frame, *places);
  EXPECT_LT(message.size(), 200u);
  FrameReader reader = shared.Reader();
  const auto taken = Take(reader, message);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->header, frame.header);
  EXPECT_EQ(taken->payload_bytes, kChunkBytes + 50);
  EXPECT_EQ(taken->claimed, frame.digests);
  EXPECT_THAT(taken->contents, SizeIs(0)) << "the digests of the sender count";
  EXPECT_EQ(taken->chunks(), 2u);
  EXPECT_EQ(taken->payload, nullptr);
  ASSERT_FALSE(taken->shared.empty());
  EXPECT_TRUE(Shared::At(*taken, 0, kChunkBytes + 50) ==
              std::string_view(shared.segment->data() + 1000, kChunkBytes + 50));
}

// Two tensors with a gap between them, of which the first has two chunks, and one in a segment of
// its own.
TEST(SharedFrames, APayloadIsInSeveralPlacesIfTheReceiverTakesThem) {
  const Shared shared;
  const auto other = *Segment::Create(kChunkBytes);
  shared.Offer(other);
  OutgoingFrame frame = shared.Frame(0, kChunkBytes + 60, 2);
  const auto add = [&](const std::shared_ptr<Segment>& segment, uint64_t offset, uint64_t bytes) {
    frame.payload.Append({std::make_shared<SharedPayload>(
                              segment, std::string_view(segment->data() + offset, bytes), 0),
                          0, bytes});
    frame.digests.push_back(offset + bytes);
  };
  add(shared.segment, kChunkBytes + 64, 4000);
  add(other, 64, 5000);
  frame.header = ContributionHeader{1, 7, {}};
  std::get<ContributionHeader>(frame.header).runs = {
      {{2, 0, 2}, kChunkBytes + 60}, {{3, 4, 1}, 4000}, {{9, 0, 1}, 5000}};
  EXPECT_FALSE(PlacesOf(frame, *shared.worker).has_value()) << "the receiver takes one";
  shared.worker->TakeFeatures(kFeaturePlaces);
  const std::optional<SharedPlaces> places = PlacesOf(frame, *shared.worker);
  ASSERT_TRUE(places.has_value());
  EXPECT_EQ(*places,
            (SharedPlaces{{1, 0, kChunkBytes + 60}, {1, kChunkBytes + 64, 4000}, {2, 64, 5000}}));
  FrameReader reader = shared.Reader();
  const auto taken = Take(reader, Shared::Referring(frame, *places));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->header, frame.header);
  EXPECT_EQ(taken->payload_bytes, kChunkBytes + 9060);
  EXPECT_EQ(taken->claimed, frame.digests);
  EXPECT_TRUE(Shared::At(*taken, 0, kChunkBytes) ==
              std::string_view(shared.segment->data(), kChunkBytes));
  EXPECT_TRUE(Shared::At(*taken, kChunkBytes, 60) ==
              std::string_view(shared.segment->data() + kChunkBytes, 60));
  EXPECT_TRUE(Shared::At(*taken, kChunkBytes + 60, 4000) ==
              std::string_view(shared.segment->data() + kChunkBytes + 64, 4000));
  EXPECT_TRUE(Shared::At(*taken, kChunkBytes + 4060, 5000) ==
              std::string_view(other->data() + 64, 5000));
}

// The others are there, but a part of the payload is not.
TEST(SharedFrames, Fault_N10_OneWrongPlaceAmongSeveralEndsTheStream) {
  const Shared shared;
  OutgoingFrame frame = shared.Frame(0, 2 * kChunkBytes, 2);
  const SharedPlace good{1, 0, kChunkBytes};
  for (const SharedPlace wrong :
       {SharedPlace{2, 0, kChunkBytes}, SharedPlace{1, kChunkBytes + 1, kChunkBytes},
        SharedPlace{1, 0, kChunkBytes, 3}}) {
    for (const SharedPlaces& places : {SharedPlaces{good, wrong}, SharedPlaces{wrong, good}}) {
      FrameReader reader = shared.Reader();
      const auto taken = Take(reader, Shared::Referring(frame, places));
      EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument) << wrong.offset;
    }
  }
  FrameReader reader = shared.Reader();
  EXPECT_TRUE(Take(reader, Shared::Referring(frame, {good, good})).ok());
}

TEST(SharedFrames, ASmallPayloadAndOneElsewhereTravelInTheirFrames) {
  const Shared shared;
  EXPECT_FALSE(PlacesOf(shared.Frame(0, 1000, 1), *shared.worker).has_value());
  EXPECT_TRUE(PlacesOf(shared.Frame(0, 10'000, 1), *shared.worker).has_value());
  const std::string elsewhere(100'000, 'x');
  OutgoingFrame frame = shared.Frame(0, 100'000, 1);
  frame.payload = {};
  frame.payload.Append({std::make_shared<OwnPayload>(elsewhere), 0, elsewhere.size()});
  EXPECT_FALSE(PlacesOf(frame, *shared.worker).has_value());
  OutgoingFrame unvouched = shared.Frame(0, 100'000, 1);
  unvouched.digests.clear();
  EXPECT_FALSE(PlacesOf(unvouched, *shared.worker).has_value());
}

TEST(SharedFrames, Fault_N10_AReferenceThatIsWrongEndsTheStream) {
  const Shared shared;
  const OutgoingFrame frame = shared.Frame(0, kChunkBytes, 1);
  const uint64_t size = 2 * kChunkBytes;
  for (const SharedPlace place :
       {SharedPlace{2, 0, kChunkBytes}, SharedPlace{1, size - kChunkBytes + 1, kChunkBytes},
        SharedPlace{1, ~uint64_t{0}, kChunkBytes}, SharedPlace{1, 0, kChunkBytes, 3}}) {
    FrameReader reader = shared.Reader();
    const auto taken = Take(reader, Shared::Referring(frame, {place}));
    EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument) << place.offset;
  }
  // Nothing is shared in the session.
  FrameReader alone = FromWorker();
  const auto taken = Take(alone, Shared::Referring(frame, {{1, 0, kChunkBytes}}));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(taken.status().message(), HasSubstr("nothing is shared"));
  // More bytes than the chunks have.
  EXPECT_FALSE(EncodeReference(frame, {{1, 0, kChunkBytes + 1}}).ok());
}

// The message that withdraws a segment overtakes a frame of a round that has ended.
TEST(SharedFrames, Fault_N10_AFrameOfASegmentThatWasWithdrawnMeanwhileIsDropped) {
  const Shared shared;
  auto segment = *Segment::Create(kChunkBytes);
  shared.Offer(segment);
  const SharedPlaces gone = *shared.worker->Find({{segment->data(), kChunkBytes}});
  segment.reset();
  ASSERT_TRUE(shared.worker->Offer(shared.segment));
  ASSERT_TRUE(shared.aggregator->Receive().ok());
  FrameReader reader = shared.Reader();
  const OutgoingFrame frame = shared.Frame(0, kChunkBytes, 1);
  const auto dropped = Take(reader, Shared::Referring(frame, gone));
  EXPECT_EQ(dropped.status().code(), absl::StatusCode::kNotFound);
  const auto next = Take(reader, Shared::Referring(frame, {{1, 0, kChunkBytes}}, 2));
  EXPECT_TRUE(next.ok()) << "the stream goes on: " << next.status();
}

TEST(SharedFrames, Fault_N8_ADamagedReferenceIsNoticed) {
  const Shared shared;
  const OutgoingFrame frame = shared.Frame(0, kChunkBytes, 1);
  std::string message = Shared::Referring(frame, {{1, 0x70, kChunkBytes}});
  const size_t offset = message.rfind('\x70');
  ASSERT_NE(offset, std::string::npos);
  message[offset] = '\x71';
  FrameReader reader = shared.Reader();
  EXPECT_EQ(Take(reader, message).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SharedFrames, Fault_N10_APayloadInTwoPlacesIsRefused) {
  const Shared shared;
  const OutgoingFrame frame = shared.Frame(0, kChunkBytes, 1);
  v1::Frame both;
  ASSERT_TRUE(both.ParseFromString(Shared::Referring(frame, {{1, 0, kChunkBytes}})));
  v1::Frame inlined;
  inlined.set_inline_("bytes");
  FrameReader reader = shared.Reader();
  const auto taken = Take(reader, both.SerializeAsString() + inlined.SerializeAsString());
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(taken.status().message(), HasSubstr("more than one payload"));
}

}  // namespace
}  // namespace basin
