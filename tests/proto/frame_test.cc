// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/frame.h"

#include <xxhash.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "basin/v1/exchange.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/limits/limits.h"
#include "tests/proto/quiet_protobuf.h"
#include "tests/proto/random_frames.h"

namespace basin::wire {
namespace {

using basin::testing::CutIntoSlices;
using basin::testing::Join;
using basin::testing::MakeFrame;
using basin::testing::QuietProtobuf;
using basin::testing::RandomFrame;
using basin::testing::RandomMessages;
using ::testing::HasSubstr;

constexpr size_t kKinds = std::variant_size_v<FrameKind>;

absl::StatusOr<DecodedFrame> DecodeWhole(std::string_view bytes) {
  return DecodeFrame({&bytes, 1});
}

void ExpectSame(const DecodedFrame& decoded, const RandomFrame& frame) {
  ASSERT_EQ(decoded.sequence, frame.sequence);
  ASSERT_TRUE(decoded.header == frame.header);
  ASSERT_EQ(decoded.payload_bytes, frame.payload.size());
  ASSERT_TRUE(Join(decoded.payload) == frame.payload);
  ASSERT_EQ(decoded.payload_verified, frame.header.chunk_digests.empty());
}

// Calls check(frame) for random frames of every kind.
template <typename Check>
void ForEachFrame(int rounds, bool small, Check check) {
  for (int seed = 0; seed < rounds; ++seed) {
    RandomMessages random(seed);
    for (size_t kind = 0; kind < kKinds; ++kind) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", kind ", kind));
      check(random, MakeFrame(random, kind, small));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Frame, EveryFrameSurvivesTheWireHoweverItIsCut) {
  ForEachFrame(60, false, [](RandomMessages& random, const RandomFrame& frame) {
    const std::string bytes = frame.Encode();
    ASSERT_LE(bytes.size(), kMaxMessageBytes);
    for (int i = 0; i < 5; ++i) {
      const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ExpectSame(*decoded, frame);
    }
  });
}

TEST(Frame, SurvivesACutAtEveryByte) {
  ForEachFrame(5, true, [](RandomMessages&, const RandomFrame& frame) {
    const std::string bytes = frame.Encode();
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      const std::string_view slices[] = {std::string_view(bytes).substr(0, cut),
                                         std::string_view(bytes).substr(cut)};
      const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(slices);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ExpectSame(*decoded, frame);
    }
    std::vector<std::string_view> single;
    for (size_t i = 0; i < bytes.size(); ++i) single.push_back({&bytes[i], 1});
    const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(single);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectSame(*decoded, frame);
  });
}

TEST(Frame, ThePayloadIsNeverCopied) {
  ForEachFrame(20, false, [](RandomMessages& random, const RandomFrame& frame) {
    const std::string bytes = frame.Encode();
    const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
    ASSERT_TRUE(decoded.ok());
    for (const std::string_view slice : decoded->payload) {
      ASSERT_FALSE(slice.empty());
      ASSERT_GE(slice.data(), bytes.data());
      ASSERT_LE(slice.data() + slice.size(), bytes.data() + bytes.size());
    }
  });
}

// ---- ours and the generated class

TEST(Frame, TheGeneratedClassReadsWhatIsWrittenHere) {
  ForEachFrame(60, false, [](RandomMessages&, const RandomFrame& frame) {
    v1::Frame proto;
    ASSERT_TRUE(proto.ParseFromString(frame.Encode()));
    EXPECT_EQ(proto.sequence(), frame.sequence);
    EXPECT_EQ(proto.has_inline_(), !frame.payload.empty());
    ASSERT_TRUE(proto.inline_() == frame.payload);
    v1::FrameHeader header;
    ASSERT_TRUE(header.ParseFromString(proto.header()));
    EXPECT_EQ(header.payload_bytes(), frame.payload.size());
    EXPECT_EQ(header.kind_case(), static_cast<int>(frame.header.kind.index()) + 1);
    EXPECT_EQ(header.chunk_digests_size(), static_cast<int>(frame.header.chunk_digests.size()));
    std::string covered = proto.header();
    if (frame.header.chunk_digests.empty()) covered += frame.payload;
    EXPECT_EQ(proto.checksum(), XXH3_64bits(covered.data(), covered.size()));
  });
}

TEST(Frame, WhatTheGeneratedClassWritesIsReadHere) {
  ForEachFrame(60, false, [](RandomMessages& random, const RandomFrame& frame) {
    v1::Frame proto;
    ASSERT_TRUE(proto.ParseFromString(frame.Encode()));
    const std::string bytes = proto.SerializeAsString();
    const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectSame(*decoded, frame);
  });
}

// The single fields of an encoded frame, as bytes.
std::vector<std::string> FieldsOf(const RandomFrame& frame) {
  v1::Frame whole;
  EXPECT_TRUE(whole.ParseFromString(frame.Encode()));
  std::vector<std::string> fields;
  v1::Frame one;
  if (whole.sequence() != 0) {
    one.set_sequence(whole.sequence());
    fields.push_back(one.SerializeAsString());
    one.Clear();
  }
  one.set_header(whole.header());
  fields.push_back(one.SerializeAsString());
  one.Clear();
  one.set_checksum(whole.checksum());
  fields.push_back(one.SerializeAsString());
  one.Clear();
  if (whole.has_inline_()) {
    one.set_inline_(whole.inline_());
    fields.push_back(one.SerializeAsString());
  }
  return fields;
}

TEST(Frame, FieldsComeInAnyOrder) {
  ForEachFrame(10, true, [](RandomMessages& random, const RandomFrame& frame) {
    std::vector<std::string> fields = FieldsOf(frame);
    std::sort(fields.begin(), fields.end());
    do {
      const std::string bytes = Join(fields);
      const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ExpectSame(*decoded, frame);
    } while (std::next_permutation(fields.begin(), fields.end()));
  });
}

TEST(Frame, TheLastOfRepeatedFieldsCounts) {
  RandomMessages random(1);
  const RandomFrame frame = MakeFrame(random, 3, true);
  v1::Frame other;
  other.set_sequence(99);
  other.set_header("no header");
  other.set_checksum(1);
  const std::string bytes = other.SerializeAsString() + frame.Encode();
  const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, frame);
}

TEST(Frame, UnknownFieldsAreIgnored) {
  // Fields 90 to 93 of the four wire types, and field 1 as bytes, which protobuf takes for unknown.
  const std::string unknown = std::string("\xd0\x05\x07", 3) + std::string("\xd9\x05", 2) +
                              std::string(8, 'x') + std::string("\xe2\x05\x03 no", 6) +
                              std::string("\xed\x05", 2) + std::string(4, 'x') + "\x0a\x01q";
  ForEachFrame(5, true, [&](RandomMessages& random, const RandomFrame& frame) {
    for (const std::string& bytes : {unknown + frame.Encode(), frame.Encode() + unknown}) {
      ASSERT_TRUE(v1::Frame().ParseFromString(bytes));
      const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ExpectSame(*decoded, frame);
    }
  });
}

// The generated class reads every frame in the same way.
void ExpectGeneratedClassAgrees(const std::string& bytes) {
  const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(bytes);
  if (!decoded.ok()) return;
  v1::Frame proto;
  ASSERT_TRUE(proto.ParseFromString(bytes));
  EXPECT_EQ(proto.sequence(), decoded->sequence);
  EXPECT_TRUE(proto.inline_() == Join(decoded->payload));
}

// ---- hostile input

TEST(Frame, Fault_N10_CutFramesAreRefused) {
  ForEachFrame(10, true, [](RandomMessages&, const RandomFrame& frame) {
    const std::string bytes = frame.Encode();
    for (size_t size = 0; size < bytes.size(); ++size) {
      const absl::StatusOr<DecodedFrame> decoded =
          DecodeWhole(std::string_view(bytes).substr(0, size));
      ASSERT_FALSE(decoded.ok()) << size << " of " << bytes.size();
    }
  });
}

TEST(Frame, Fault_N8_EveryFlippedBitOfHeaderOrVerifiedPayloadIsSeen) {
  const QuietProtobuf quiet;
  int lost = 0;
  ForEachFrame(4, true, [&](RandomMessages&, const RandomFrame& frame) {
    const std::string bytes = frame.Encode();
    const size_t payload_begin = bytes.size() - frame.payload.size();
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      ExpectGeneratedClassAgrees(damaged);
      const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(damaged);
      if (decoded.ok()) {
        // Only what the checksum does not cover: the sequence number, whose gap the stream sees,
        // and a payload that the digests cover.
        const bool sequence = decoded->sequence != frame.sequence;
        const bool payload = bit / 8 >= payload_begin && !decoded->payload_verified;
        ASSERT_TRUE(sequence || payload) << "bit " << bit;
        ASSERT_TRUE(decoded->header == frame.header);
      } else if (decoded.status().code() == absl::StatusCode::kDataLoss) {
        ++lost;
      } else {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  });
  EXPECT_GT(lost, 1000);
}

TEST(Frame, Fault_N10_NoiseIsRefused) {
  const QuietProtobuf quiet;
  RandomMessages random(11);
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = random.Bytes(random.Below(60));
    ASSERT_FALSE(DecodeFrame(CutIntoSlices(random, bytes)).ok());
  }
}

TEST(Frame, Fault_N10_TheDefaultMessageIsRefused) {
  EXPECT_EQ(DecodeFrame({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodeWhole("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Frame, Fault_N11_GiantLengthsAreRefusedUnread) {
  // Field 15 or 2, with a length of 1 GiB, of 4 GiB - 1, and of more than 32 bits.
  for (const char tag : {'\x7a', '\x12'}) {
    for (const std::string& length :
         {std::string("\x80\x80\x80\x80\x04"), std::string("\xff\xff\xff\xff\x0f"),
          std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}) {
      const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(tag + length + "short");
      ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("malformed or truncated"));
    }
  }
}

TEST(Frame, Fault_N11_OversizedFramesAreRefused) {
  RandomMessages random(2);
  const std::string bytes = MakeFrame(random, 3, true).Encode();
  // An unknown field of 4 MiB makes the message too large; nothing else is wrong with it.
  const std::string large =
      bytes + "\xe2\x05" + "\x80\x80\x80\x02" + std::string(kMaxMessageBytes, 'x');
  ASSERT_TRUE(v1::Frame().ParseFromString(large));
  EXPECT_THAT(std::string(DecodeWhole(large).status().message()), HasSubstr("more than 4194304"));
}

TEST(Frame, Fault_N10_GroupsAndFieldZeroAreRefused) {
  RandomMessages random(3);
  const std::string bytes = MakeFrame(random, 3, true).Encode();
  EXPECT_FALSE(DecodeWhole(bytes + "\xd3\x05\xd4\x05").ok());          // A group.
  EXPECT_FALSE(DecodeWhole(bytes + std::string("\x02\x00", 2)).ok());  // Field 0.
  EXPECT_FALSE(DecodeWhole(bytes + "\xd6\x05").ok());                  // Wire type 6.
  EXPECT_FALSE(DecodeWhole(bytes + std::string("\xd0\x85\x80\x80\x80\x00\x01", 7)).ok());
}

// ---- single rules

// A valid contribution frame of one chunk, spoilt by `spoil`, with a right checksum.
template <typename Spoil>
absl::Status Spoilt(Spoil spoil) {
  v1::FrameHeader header;
  auto* contribution = header.mutable_contribution();
  contribution->set_round(1);
  contribution->mutable_range()->set_count(1);
  std::string payload = "payload";
  header.set_payload_bytes(static_cast<uint32_t>(payload.size()));
  v1::Frame frame;
  frame.set_sequence(1);
  frame.set_inline_(payload);
  spoil(&frame, &header);
  if (frame.header().empty()) frame.set_header(header.SerializeAsString());
  const std::string covered =
      header.chunk_digests().empty() ? frame.header() + frame.inline_() : frame.header();
  frame.set_checksum(XXH3_64bits(covered.data(), covered.size()));
  return DecodeWhole(frame.SerializeAsString()).status();
}

template <typename Spoil>
void ExpectRefused(Spoil spoil, const std::string& text) {
  const absl::Status status = Spoilt(spoil);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

using F = v1::Frame*;
using H = v1::FrameHeader*;

TEST(FrameRules, TheUnspoiltFrameIsGood) {
  EXPECT_TRUE(Spoilt([](F, H) {}).ok());
}

TEST(FrameRules, PayloadAndHeaderAgree) {
  ExpectRefused([](F, H h) { h->set_payload_bytes(6); }, "header.payload_bytes is 6 instead of 7");
  ExpectRefused([](F f, H) { f->clear_inline_(); }, "header.payload_bytes is 7 instead of 0");
  ExpectRefused([](F, H h) { h->mutable_contribution()->mutable_range()->set_count(2); },
                "payload_bytes is 7, but 2 chunks cannot have it");
  ExpectRefused(
      [](F f, H h) {
        f->set_inline_(std::string(kChunkBytes + 1, 'x'));
        h->set_payload_bytes(kChunkBytes + 1);
      },
      "payload_bytes is 262145, but 1 chunks cannot have it");
  ExpectRefused([](F, H h) { h->mutable_ack()->set_sequence(1); }, "but 0 chunks cannot have it");
  ExpectRefused([](F, H h) { h->mutable_contribution()->mutable_range()->set_count(16); },
                "count is 16, more than 15");
}

// The frame with a list of two tensors, 3 and 4 bytes long.
v1::ContributionHeader* WithList(H header) {
  auto* contribution = header->mutable_contribution();
  contribution->clear_range();
  for (const uint32_t tensor : {2u, 5u}) {
    v1::ChunkRun* run = contribution->add_runs();
    run->set_tensor(tensor);
    run->set_count(1);
    run->set_bytes(tensor == 2 ? 3 : 4);
  }
  return contribution;
}

TEST(FrameRules, AFrameMayHaveChunksOfSeveralTensors) {
  EXPECT_TRUE(Spoilt([](F, H h) { WithList(h); }).ok());
  EXPECT_TRUE(Spoilt([](F, H h) {
                WithList(h);
                h->add_chunk_digests(1);
                h->add_chunk_digests(2);
              }).ok());
}

TEST(FrameRules, Fault_N10_AListThatOverlapsOrIsOutOfOrderOrTooLongIsRefused) {
  const auto list = [](auto change) { return [change](F, H h) { change(WithList(h)); }; };
  using C = v1::ContributionHeader*;
  ExpectRefused(list([](C c) { c->mutable_runs(1)->set_tensor(2); }), "tensor is 2 after 2");
  ExpectRefused(list([](C c) { c->mutable_runs(1)->set_tensor(1); }), "tensor is 1 after 2");
  ExpectRefused(list([](C c) { c->mutable_runs(1)->set_bytes(5); }),
                "runs have 8 bytes, but the payload 7");
  ExpectRefused(list([](C c) { c->mutable_runs(1)->set_bytes(~0u); }), "bytes is 4294967295");
  ExpectRefused(list([](C c) { c->mutable_runs(0)->clear_bytes(); }), "bytes is required");
  ExpectRefused(list([](C c) { c->mutable_runs(0)->clear_count(); }), "count is required");
  ExpectRefused(list([](C c) { c->mutable_runs(0)->set_count(2); }), "2 chunks cannot have it");
  ExpectRefused(list([](C c) { c->mutable_range()->set_count(1); }), "stands beside runs");
  ExpectRefused(list([](C c) { c->mutable_runs()->RemoveLast(); }), "is a list of one");
  ExpectRefused(list([](C c) { c->mutable_runs(1)->set_tensor(kMaxTensors); }), "tensor is 65536");
  ExpectRefused(list([](C c) {
                  for (uint32_t i = 0; i < kMaxRunsPerFrame; ++i) c->add_runs();
                }),
                "runs is 1026, more than 1024");
  ExpectRefused(
      [](F, H h) {
        WithList(h);
        h->add_chunk_digests(1);
      },
      "size(chunk_digests) is 1 instead of 2");
}

TEST(FrameRules, DigestsAreOnePerChunk) {
  EXPECT_TRUE(Spoilt([](F, H h) { h->add_chunk_digests(1); }).ok());
  ExpectRefused(
      [](F, H h) {
        h->add_chunk_digests(1);
        h->add_chunk_digests(2);
      },
      "size(chunk_digests) is 2 instead of 1");
}

TEST(FrameRules, HeadersAreCompleteAndBounded) {
  ExpectRefused(
      [](F f, H) {
        f->set_header("");
        f->clear_inline_();
      },
      "instead of 0");
  ExpectRefused([](F, H h) { h->clear_contribution(); }, "header.kind is required");
  ExpectRefused([](F, H h) { h->mutable_contribution()->clear_round(); },
                "header.contribution.round is required");
  ExpectRefused([](F, H h) { h->mutable_contribution()->clear_range(); },
                "header.contribution.range is required");
  ExpectRefused([](F, H h) { h->mutable_contribution()->set_lane(kMaxLaneIndexes); },
                "header.contribution.lane is 1073741824, more than 1073741823");
  ExpectRefused([](F f, H) { f->set_header("\xff\xff"); }, "not a basin.v1.FrameHeader");
  ExpectRefused([](F f, H) { f->set_header(std::string(kMaxFrameHeaderBytes + 1, 'x')); },
                "the header has 40961 bytes");
}

TEST(FrameRules, StreamsOpenWithoutSequenceNumbers) {
  ExpectRefused([](F f, H) { f->clear_sequence(); }, "the sequence number is missing");
  const auto bound = [](F f, H h) {
    h->mutable_bound();
    h->set_payload_bytes(0);
    f->clear_inline_();
  };
  ExpectRefused(bound, "Bind and Bound have no sequence number");
}

TEST(FrameRules, Fault_N10_BindNeedsMagicVersionAndToken) {
  const auto bind = [](auto change) {
    return [change](F f, H h) {
      f->clear_inline_();
      f->clear_sequence();
      h->set_payload_bytes(0);
      h->mutable_bind()->set_magic(kMagic);
      h->mutable_bind()->set_protocol_version(1);
      h->mutable_bind()->set_token(5);
      change(h->mutable_bind());
    };
  };
  EXPECT_TRUE(Spoilt(bind([](v1::Bind*) {})).ok());
  ExpectRefused(bind([](v1::Bind* b) { b->Clear(); }), "header.bind.magic");
  ExpectRefused(bind([](v1::Bind* b) { b->clear_token(); }), "header.bind.token is required");
  ExpectRefused(bind([](v1::Bind* b) { b->clear_protocol_version(); }),
                "header.bind.protocol_version is required");
  ExpectRefused(bind([](v1::Bind* b) { b->set_stream(kMaxStreams); }), "header.bind.stream is 64");
}

TEST(FrameRules, WhatIsHeldFreeIsRefused) {
  ExpectRefused([](F f, H) { f->mutable_device()->set_handle("h"); },
                "payloads in the memory of a device");
  ExpectRefused([](F, H h) { h->mutable_encoding()->set_codec(1); }, "header.encoding.codec");
  ExpectRefused([](F, H h) { h->mutable_encoding()->set_codec_parameters("x"); },
                "header.encoding.codec_parameters");
  ExpectRefused([](F, H h) { h->mutable_contribution()->set_partial_sum(true); },
                "header.contribution.partial_sum");
  ExpectRefused([](F, H h) { h->mutable_contribution()->mutable_contributors()->set_size(3); },
                "header.contribution.partial_sum");
}

TEST(FrameRules, EncodingsAreKnownAndBounded) {
  const auto encoding = [](v1::DType dtype, int32_t exponent) {
    return [=](F, H h) {
      h->mutable_encoding()->set_wire_dtype(dtype);
      h->mutable_encoding()->set_wire_exponent(exponent);
    };
  };
  EXPECT_TRUE(Spoilt(encoding(v1::DTYPE_BF16, -126)).ok());
  ExpectRefused(encoding(v1::DTYPE_BF16, 127), "wire_exponent is 127, not -126 to 126");
  ExpectRefused(encoding(v1::DTYPE_UNSPECIFIED, 1), "wire_exponent has no wire_dtype");
  ExpectRefused(encoding(static_cast<v1::DType>(10), 0), "wire_dtype is 10");
  // A narrow chunk has exactly half of the bytes.
  EXPECT_TRUE(Spoilt(encoding(v1::DTYPE_F16, 0)).ok());
  for (const v1::DType other :
       {v1::DTYPE_F64, v1::DTYPE_F32, v1::DTYPE_I64, v1::DTYPE_I32, v1::DTYPE_U8}) {
    ExpectRefused(encoding(other, 0), "not f16 or bf16");
  }
}

TEST(FrameRules, WhatWouldBeRefusedIsNotEncoded) {
  const std::string_view payload = "payload";
  FrameHeader header;
  header.kind = ContributionHeader{0, 1, {0, 0, 2}};
  EXPECT_EQ(EncodeFrame(header, {&payload, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  header.kind = Ack{1};
  EXPECT_FALSE(EncodeFrame(header, {&payload, 1}).ok());
  EXPECT_TRUE(EncodeFrame(header, {}).ok());
}

TEST(FrameLimits, TheLargestFrameIsAMessage) {
  const std::string name(kMaxNameBytes, 'n');
  const std::string payload(kMaxPayloadBytes, 'p');
  RandomFrame frame;
  frame.sequence = ~uint64_t{0};
  frame.header.kind = BlobHeader{
      {name, name, ~uint64_t{0}}, kMaxChunksPerTensor - kMaxChunksPerFrame, kMaxChunksPerFrame};
  frame.header.chunk_digests.assign(kMaxChunksPerFrame, ~uint64_t{0});
  frame.payload = payload;
  const std::string bytes = frame.Encode();
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, frame);
}

TEST(FrameLimits, TheLongestListIsAHeader) {
  RandomFrame frame;
  frame.sequence = ~uint64_t{0};
  ContributionHeader header{kMaxLaneIndexes - 1, ~uint64_t{0}, {}};
  for (uint32_t i = 0; i < kMaxRunsPerFrame; ++i) {
    header.runs.push_back({{kMaxTensors - kMaxRunsPerFrame + i, kMaxChunksPerTensor - 1, 1}, 3840});
  }
  frame.header.chunk_digests.assign(kMaxRunsPerFrame, ~uint64_t{0});
  frame.payload.assign(kMaxRunsPerFrame * 3840, 'p');
  frame.header.kind = std::move(header);
  const std::string bytes = frame.Encode();
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ExpectSame(*decoded, frame);
}

TEST(FrameSequence, TakesItsPlaceInFrontOfASharedFrame) {
  RandomMessages random(8);
  const RandomFrame frame = MakeFrame(random, 4, true);
  const std::string_view payload = frame.payload;
  const std::string shared = EncodeFrame(frame.header, {&payload, 1}).value();
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{300}, ~uint64_t{0}}) {
    const std::string own = EncodeSequence(sequence);
    const std::string_view slices[] = {own, shared, payload};
    const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(slices);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->sequence, sequence);
    EXPECT_TRUE(decoded->header == frame.header);
    EXPECT_EQ(decoded->payload.size(), 1u);
    EXPECT_EQ(decoded->payload[0].data(), payload.data());
  }
  EXPECT_EQ(EncodeSequence(0), "");
}

// A contribution with chunk digests whose payload is in shared memory.
RandomFrame SharedFrame(RandomMessages& random) {
  RandomFrame frame;
  do {
    frame = MakeFrame(random, random.Below(std::variant_size_v<FrameKind>), true);
  } while (frame.header.chunk_digests.empty());
  frame.places = MakePlaces(random, frame);
  frame.payload.clear();
  return frame;
}

TEST(FramePlace, IsReadBackHoweverTheMessageIsCut) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomMessages random(seed);
    const RandomFrame frame = SharedFrame(random);
    const std::string bytes = frame.Encode();
    const absl::StatusOr<DecodedFrame> decoded = DecodeFrame(CutIntoSlices(random, bytes));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(decoded->header == frame.header);
    EXPECT_EQ(decoded->places, frame.places);
    uint64_t bytes_in_places = 0;
    for (const SharedPlace& place : frame.places) bytes_in_places += place.length;
    EXPECT_EQ(decoded->payload_bytes, bytes_in_places);
    EXPECT_FALSE(decoded->payload_verified);
    EXPECT_TRUE(decoded->payload.empty());
  }
}

// Protobuf would merge two places in shared memory, so the checksum would cover only one of them.
TEST(FramePlace, AFrameHasOnePayloadEvenAnEmptyOne) {
  RandomMessages random(3);
  const std::string shared = SharedFrame(random).Encode();
  const std::string in_place = MakeFrame(random, 3, true).Encode();
  v1::Frame empty;
  empty.set_inline_("");
  v1::Frame elsewhere;
  elsewhere.mutable_shared_memory()->set_version(7);
  for (const std::string& frame : {shared, in_place}) {
    for (const v1::Frame& second : {empty, elsewhere}) {
      const std::string bytes = second.SerializeAsString();
      for (const std::string& both : {frame + bytes, bytes + frame}) {
        const absl::Status refused = DecodeWhole(both).status();
        EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(refused.message(), HasSubstr("more than one payload"));
      }
    }
  }
}

TEST(FramePlace, NeedsASegmentALengthAndDigests) {
  RandomMessages random(4);
  const RandomFrame frame = SharedFrame(random);
  const auto refused = [](const RandomFrame& frame) {
    return DecodeWhole(frame.Encode()).status().code();
  };
  RandomFrame no_segment = frame;
  no_segment.places.back().segment = 0;
  EXPECT_EQ(refused(no_segment), absl::StatusCode::kInvalidArgument);

  FrameHeader no_digests = frame.header;
  no_digests.chunk_digests.clear();
  EXPECT_EQ(EncodeSharedFrame(no_digests, frame.places).status().code(),
            absl::StatusCode::kInvalidArgument);

  // An empty place is a place without a segment, and not a frame without a place.
  v1::Frame proto;
  ASSERT_TRUE(proto.ParseFromString(frame.Encode()));
  proto.mutable_shared_memory()->Clear();
  const std::string& header = proto.header();
  proto.set_checksum(XXH3_64bits(header.data(), header.size()));
  EXPECT_EQ(DecodeWhole(proto.SerializeAsString()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// A list of two tensors with 40 and 30 bytes, in these places.
RandomFrame InPlaces(const SharedPlaces& places) {
  RandomFrame frame;
  frame.sequence = 1;
  ContributionHeader header;
  header.lane = 1;
  header.round = 2;
  header.runs = {{{3, 0, 1}, 40}, {{5, 0, 1}, 30}};
  frame.header.kind = header;
  frame.header.chunk_digests = {7, 8};
  frame.places = places;
  return frame;
}

// The frame's message with other places, which the encoder would refuse.
std::string WithPlaces(const v1::SharedMemory& places) {
  v1::Frame proto;
  EXPECT_TRUE(proto.ParseFromString(InPlaces({{1, 64, 70}}).Encode()));
  *proto.mutable_shared_memory() = places;
  const std::string covered = proto.header() + places.SerializeAsString();
  proto.set_checksum(XXH3_64bits(covered.data(), covered.size()));
  return proto.SerializeAsString();
}

TEST(FramePlaces, HaveWholeChunks) {
  EXPECT_TRUE(DecodeWhole(InPlaces({{1, 64, 70}}).Encode()).ok());
  EXPECT_TRUE(DecodeWhole(InPlaces({{1, 64, 40}, {9, 0, 30, 4}}).Encode()).ok());
  EXPECT_FALSE(EncodeSharedFrame(InPlaces({}).header, {{1, 64, 41}, {9, 0, 29}}).ok());
  v1::SharedMemory places;
  places.set_segment(1);
  const auto refused = [&](uint64_t first, uint64_t second, std::string_view why) {
    places.set_length(first);
    places.clear_more();
    v1::SharedPlace& more = *places.add_more();
    more.set_segment(1);
    more.set_length(second);
    const absl::Status status = DecodeWhole(WithPlaces(places)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << first << ", " << second;
    EXPECT_THAT(status.message(), HasSubstr(std::string(why)));
  };
  refused(41, 29, "a part of a chunk");
  refused(39, 31, "a part of a chunk");
  refused(40, 31, "payload");
  refused(40, 0, "more[0].length");
  refused(40, ~uint64_t{0} - 9, "more[0].length");  // Their sum would be 30.
}

TEST(FramePlaces, OfOneTensorEndWithAChunk) {
  RandomFrame frame;
  frame.sequence = 1;
  frame.header.kind = ResultHeader{1, 2, {3, 4}, {0, 5, 3}};
  frame.header.chunk_digests = {7, 8, 9};
  frame.places = {{1, 64, 2 * kChunkBytes, 3}, {2, 64, 100, 3}};
  EXPECT_TRUE(DecodeWhole(frame.Encode()).ok());
  frame.places = {{1, 64, kChunkBytes + 100, 3}, {2, 64, kChunkBytes, 3}};
  EXPECT_FALSE(EncodeSharedFrame(frame.header, frame.places).ok());
  // Narrow chunks are half as long.
  frame.header.kind = ContributionHeader{1, 2, {0, 5, 3}};
  frame.header.encoding = {DType::kBF16, 0};
  frame.places = {{1, 64, kChunkBytes / 2}, {2, 64, kChunkBytes / 2 + 100}};
  EXPECT_TRUE(DecodeWhole(frame.Encode()).ok());
}

TEST(FramePlaces, AreAtMostTheChunksOfAFrame) {
  v1::SharedMemory places;
  places.set_segment(1);
  places.set_length(40);
  for (uint32_t i = 0; i < kMaxPlacesPerFrame; ++i) places.add_more();
  const absl::Status many = DecodeWhole(WithPlaces(places)).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(many.message(), HasSubstr("more"));
  // The largest list, with the longest numbers.
  RandomFrame frame;
  frame.sequence = ~uint64_t{0};
  ContributionHeader header{kMaxLaneIndexes - 1, ~uint64_t{0}, {}};
  for (uint32_t i = 0; i < kMaxRunsPerFrame; ++i) {
    header.runs.push_back({{kMaxTensors - kMaxRunsPerFrame + i, 0, 1}, 3840});
    frame.places.push_back({~uint64_t{0}, ~uint64_t{0}, 3840, ~uint64_t{0}});
  }
  frame.header.kind = header;
  frame.header.chunk_digests.assign(kMaxRunsPerFrame, ~uint64_t{0});
  const absl::StatusOr<DecodedFrame> decoded = DecodeWhole(frame.Encode());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->places, frame.places);
}

}  // namespace
}  // namespace basin::wire
