// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Frames as they arrive, parts of payloads, and the kept parts.

#include "client/transport/incoming.h"

#include <gtest/gtest.h>

#include "client/transport/staging.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

// A message in pieces of `piece` bytes.
class Pieces : public Payload {
 public:
  Pieces(std::string bytes, size_t piece) : bytes_(std::move(bytes)) {
    for (size_t at = 0; at < bytes_.size(); at += piece) {
      pieces_.push_back(std::string_view(bytes_).substr(at, piece));
    }
  }
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const std::string bytes_;
  std::vector<std::string_view> pieces_;
};

std::string Message(wire::FrameKind kind, uint64_t sequence, const std::string& payload) {
  wire::FrameHeader header;
  header.kind = std::move(kind);
  const wire::Slices pieces = {payload};
  const absl::StatusOr<std::string> head =
      payload.empty() ? wire::EncodeFrame(header, {}) : wire::EncodeFrame(header, pieces);
  EXPECT_TRUE(head.ok()) << head.status();
  return wire::EncodeSequence(sequence) + *head + payload;
}

absl::StatusOr<IncomingFrame> Take(FrameReader& reader, const std::string& message,
                                   size_t piece = 1000) {
  return reader.Take(std::make_shared<Pieces>(message, piece));
}

const wire::ResultHeader kTwoChunks = {kLane, 1, {kTerm, 1}, {0, 1, 2}};

TEST(FrameReader, HashesEachChunkWhateverThePieces) {
  const std::string payload = Noise(kChunkBytes + 1000, 1);
  for (const size_t piece : {size_t{1000}, size_t{65536}, 2 * kChunkBytes}) {
    FrameReader reader;
    ASSERT_TRUE(Take(reader, Message(wire::Bound{}, 0, "")).ok());
    const auto frame = Take(reader, Message(kTwoChunks, 1, payload), piece);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(std::get<wire::ResultHeader>(frame->kind), kTwoChunks);
    EXPECT_EQ(frame->payload_bytes, payload.size());
    EXPECT_GT(frame->message_bytes, payload.size());
    ASSERT_EQ(frame->contents.size(), 2u);
    const kernels::TensorKey key("t");
    EXPECT_EQ(kernels::TermOf(key, 1, frame->contents[0]).low,
              DigestOf("t", payload.substr(0, kChunkBytes), 1));
    EXPECT_EQ(kernels::TermOf(key, 2, frame->contents[1]).low,
              DigestOf("t", payload.substr(kChunkBytes), 2));
    std::string copy(500, '\0');
    EXPECT_EQ(CopyBytes({frame->payload, kChunkBytes - 100, 500}, copy.data()),
              copy.data() + copy.size());
    EXPECT_EQ(copy, payload.substr(kChunkBytes - 100, 500));
  }
}

TEST(FrameReader, RefusesWhatIsOutOfPlace) {
  const std::string bound = Message(wire::Bound{}, 0, "");
  const std::string payload = Noise(kChunkBytes + 1000, 1);
  {
    FrameReader reader;  // Not bound.
    EXPECT_EQ(Take(reader, Message(kTwoChunks, 1, payload)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  FrameReader reader;
  ASSERT_TRUE(Take(reader, bound).ok());
  EXPECT_EQ(Take(reader, bound).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Take(reader, Message(kTwoChunks, 2, payload)).status().code(),
            absl::StatusCode::kDataLoss);  // A gap.
  const wire::ContributionHeader workers = {kLane, 1, {0, 0, 1}};
  EXPECT_EQ(Take(reader, Message(workers, 1, Noise(100, 1))).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string damaged = Message(kTwoChunks, 1, payload);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_EQ(Take(reader, damaged).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Take(reader, Message(kTwoChunks, 1, payload)).ok());
}

TEST(StagedTensor, IsCopiedOnlyWhenItIsWhole) {
  StagedTensor tensor;
  const auto bytes = std::make_shared<OwnPayload>("0123456789");
  tensor.Keep(1, {{bytes, 5, 5}, 0});
  std::string copy = "----------";
  EXPECT_EQ(tensor.CopyTo(copy.data(), 10).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(tensor.Find(0), nullptr);
  tensor.Keep(0, {{bytes, 0, 5}, 0});
  EXPECT_EQ(tensor.CopyTo(copy.data(), 9).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(copy, "----------");
  EXPECT_TRUE(tensor.CopyTo(copy.data(), 10).ok());
  EXPECT_EQ(copy, "0123456789");
  tensor.Truncate(1);
  EXPECT_TRUE(tensor.CopyTo(copy.data(), 5).ok());
}

TEST(StagedTensor, ThatNoCacheHoldsIsCopiedAsSmallOnesAre) {
  std::string model(uint64_t{3} << 20, '\0');
  for (size_t i = 0; i < model.size(); ++i) model[i] = static_cast<char>(i * 131 + i / 4096);
  const auto bytes = std::make_shared<OwnPayload>(model);
  StagedTensor tensor;
  for (uint32_t chunk = 0; chunk < model.size() / kChunkBytes; ++chunk) {
    tensor.Keep(chunk, {{bytes, chunk * kChunkBytes, kChunkBytes}, 0});
  }
  std::string copy(model.size() + 1, '-');
  EXPECT_TRUE(tensor.CopyTo(copy.data() + 1, model.size()).ok());
  EXPECT_EQ(copy, "-" + model);
}

TEST(PayloadParts, JoinNeighbours) {
  const auto bytes = std::make_shared<OwnPayload>("0123456789");
  PayloadParts parts;
  parts.Append({bytes, 0, 3});
  parts.Append({bytes, 3, 0});
  parts.Append({bytes, 3, 3});
  parts.Append({bytes, 7, 2});
  EXPECT_EQ(parts.bytes(), 8u);
  EXPECT_EQ(parts.Pieces(), (wire::Slices{"012345", "78"}));
}

}  // namespace
}  // namespace basin::client
