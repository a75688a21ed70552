// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/byte_buffer.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/frame.h"

namespace basin {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

grpc::ByteBuffer MessageOf(const std::vector<std::string>& pieces) {
  const std::vector<grpc::Slice> slices(pieces.begin(), pieces.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// Reports when the last holder has released it.
class WatchedPayload : public OwnPayload {
 public:
  WatchedPayload(std::string bytes, bool& gone) : OwnPayload(std::move(bytes)), gone_(gone) {}
  ~WatchedPayload() override { gone_ = true; }

 private:
  bool& gone_;
};

PayloadParts Whole(const PayloadPtr& payload, uint64_t size) {
  PayloadParts parts;
  parts.Append({payload, 0, size});
  return parts;
}

TEST(PayloadOf, KeepsThePiecesOfAMessageAndSkipsEmptyOnes) {
  // Small pieces are stored in the slices themselves, longer ones elsewhere.
  const std::string large(1000, 'x');
  PayloadPtr payload;
  {
    const grpc::ByteBuffer message = MessageOf({"ab", "", large, "c"});
    payload = PayloadOf(message);
  }
  EXPECT_THAT(payload->pieces(), ElementsAre("ab", large, "c"));
}

TEST(PayloadOf, DoesNotCopyLongPieces) {
  const std::string bytes(1000, 'x');
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer message(&slice, 1);
  const PayloadPtr payload = PayloadOf(message);
  ASSERT_THAT(payload->pieces(), SizeIs(1));
  EXPECT_EQ(payload->pieces()[0].data(), reinterpret_cast<const char*>(slice.begin()));
}

TEST(PayloadOf, OfNoMessageIsEmpty) {
  EXPECT_THAT(PayloadOf(grpc::ByteBuffer())->pieces(), SizeIs(0));
  EXPECT_EQ(StringOf(grpc::ByteBuffer()), "");
}

TEST(StringOf, JoinsThePieces) { EXPECT_EQ(StringOf(MessageOf({"ab", "", "cd"})), "abcd"); }

TEST(BufferOf, IsTheBytes) {
  const std::string bytes(1000, 'y');
  EXPECT_EQ(StringOf(BufferOf(bytes)), bytes);
  EXPECT_EQ(StringOf(BufferOf("")), "");
}

TEST(SharedFrame, IsDecodedByEachReceiverWithItsOwnNumber) {
  const std::string bytes(3000, 'z');
  const PayloadPtr payload = std::make_shared<OwnPayload>(bytes);
  wire::FrameHeader header;
  header.kind = wire::ResultHeader{1, 2, {3, 4}, {5, 6, 1}};
  header.chunk_digests = {77};
  const absl::StatusOr<std::string> head = wire::EncodeFrame(header, payload->pieces());
  ASSERT_TRUE(head.ok()) << head.status();
  const SharedFrame frame(*head, Whole(payload, bytes.size()));
  EXPECT_EQ(frame.payload_bytes(), bytes.size());
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{300}}) {
    const PayloadPtr message = PayloadOf(frame.WithSequence(sequence));
    const absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame(message->pieces());
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->sequence, sequence);
    EXPECT_EQ(decoded->header, header);
    ASSERT_THAT(decoded->payload, SizeIs(1));
    EXPECT_EQ(decoded->payload[0].data(), payload->pieces()[0].data()) << "was copied";
  }
}

TEST(SharedFrame, KeepsItsPayloadUntilTheLastMessageIsGone) {
  bool gone = false;
  auto payload = std::make_shared<WatchedPayload>(std::string(3000, 'z'), gone);
  std::optional<SharedFrame> frame;
  frame.emplace("head", Whole(payload, 3000));
  payload.reset();
  std::optional<grpc::ByteBuffer> one = frame->WithSequence(1);
  std::optional<grpc::ByteBuffer> other = frame->WithSequence(2);
  frame.reset();
  one.reset();
  EXPECT_FALSE(gone);
  other.reset();
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace basin
