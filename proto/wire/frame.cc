// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/frame.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "basin/v1/exchange.pb.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/wire/bytes.h"
#include "proto/wire/protobuf_names.h"
#include "proto/wire/slice_reader.h"
#include "proto/wire/types.h"
#include "protocol/limits/limits.h"

namespace basin::wire {

using google::protobuf::Arena;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// --------------------------------------------------------------------------------- the header

void Encode(const Bind& in, v1::Bind* out) {
  out->set_magic(kMagic);
  out->set_protocol_version(in.protocol_version);
  out->set_token(in.token);
  out->set_stream(in.stream);
}

// Another protocol version is accepted here: the code that binds the stream refuses it, and names
// both.
Bind Decode(const v1::Bind& in, Checker& checker) {
  checker.Equal("magic", in.magic(), kMagic);
  Bind out;
  out.token = checker.Required("token", in.token());
  out.stream = checker.AtMost("stream", in.stream(), kMaxStreams - 1);
  out.protocol_version = checker.Required("protocol_version", in.protocol_version());
  return out;
}

void Encode(const Bound&, v1::Bound*) {}
Bound Decode(const v1::Bound&, Checker&) { return {}; }

void Encode(const Ack& in, v1::Ack* out) { out->set_sequence(in.sequence); }

Ack Decode(const v1::Ack& in, Checker& checker) {
  return {checker.Required("sequence", in.sequence())};
}

namespace {

// A frame of one tensor has `range`, which peers without FEATURE_RUNS read.
template <typename Out>
void EncodeRuns(const ChunkRuns& in, Out* out) {
  if (in.size() == 1) return Encode(in.front().range, out->mutable_range());
  for (const ChunkRun& run : in) {
    v1::ChunkRun* to = out->add_runs();
    to->set_tensor(run.range.tensor);
    to->set_first(run.range.first);
    to->set_count(run.range.count);
    to->set_bytes(run.bytes);
  }
}

ChunkRun Decode(const v1::ChunkRun& in, Checker& checker) {
  CheckChunks(in.first(), in.count(), checker);
  return {{DecodeTensor("tensor", in.tensor(), checker), in.first(),
           checker.Required("count", in.count())},
          checker.Required("bytes", in.bytes())};
}

template <typename In>
ChunkRuns DecodeRuns(const In& in, Checker& checker) {
  ChunkRuns out;
  if (in.runs().empty()) {
    out.push_back({DecodeRequired("range", in.has_range(), in.range(), checker), 0});
    return out;
  }
  if (in.has_range()) checker.Fail("range", "stands beside runs");
  if (!checker.Count("runs", in.runs_size(), kMaxRunsPerFrame)) return out;
  if (in.runs_size() == 1) checker.Fail("runs", "is a list of one; use range");
  for (const auto& run : in.runs()) {
    Checker::Scope scope(checker, "runs", static_cast<ptrdiff_t>(out.size()));
    out.push_back(Decode(run, checker));
  }
  return out;
}

// ResultHeader and SupplyHeader have the same fields.
template <typename In, typename Out>
void EncodeBallotAndRuns(const In& in, Out* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  EncodeRuns(in.runs, out);
}

template <typename Out, typename In>
Out DecodeBallotAndRuns(const In& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeField("ballot", in.ballot(), checker), DecodeRuns(in, checker)};
}

}  // namespace

void Encode(const ContributionHeader& in, v1::ContributionHeader* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  EncodeRuns(in.runs, out);
}

ContributionHeader Decode(const v1::ContributionHeader& in, Checker& checker) {
  if (in.partial_sum() || in.has_contributors() || in.has_generation()) {
    checker.Fail("partial_sum", "is not in use in this session");
  }
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeRuns(in, checker)};
}

void Encode(const ResultHeader& in, v1::ResultHeader* out) { EncodeBallotAndRuns(in, out); }

ResultHeader Decode(const v1::ResultHeader& in, Checker& checker) {
  return DecodeBallotAndRuns<ResultHeader>(in, checker);
}

void Encode(const SupplyHeader& in, v1::SupplyHeader* out) { EncodeBallotAndRuns(in, out); }

SupplyHeader Decode(const v1::SupplyHeader& in, Checker& checker) {
  return DecodeBallotAndRuns<SupplyHeader>(in, checker);
}

void Encode(const BlobHeader& in, v1::ValueHeader* out) {
  Encode(in.key, out->mutable_key());
  out->set_first(in.first);
  out->set_count(in.count);
}

BlobHeader Decode(const v1::ValueHeader& in, Checker& checker) {
  CheckChunks(in.first(), in.count(), checker);
  return {DecodeRequired("key", in.has_key(), in.key(), checker), in.first(),
          checker.Required("count", in.count())};
}

void Encode(const Encoding& in, v1::Encoding* out) {
  out->set_wire_dtype(EncodeEnum(in.wire_dtype));
  out->set_wire_exponent(in.wire_exponent);
}

Encoding Decode(const v1::Encoding& in, Checker& checker) {
  if (in.codec() != 0) checker.Fail("codec", "is not in use in this session");
  if (!in.codec_parameters().empty()) checker.Fail("codec_parameters", "have no codec");
  Encoding out;
  if (in.wire_dtype() != v1::DTYPE_UNSPECIFIED) {
    out.wire_dtype = DecodeEnum<DType>("wire_dtype", in.wire_dtype(), checker);
    if (checker.ok() && out.wire_dtype != DType::kF16 && out.wire_dtype != DType::kBF16) {
      checker.Fail("wire_dtype",
                   absl::StrCat("is ", DTypeName(out.wire_dtype),
                                ", not f16 or bf16; omit the field for the tensor's own dtype"));
    }
  }
  out.wire_exponent = in.wire_exponent();
  if (out.wire_exponent < -kMaxWireExponent || out.wire_exponent > kMaxWireExponent) {
    checker.Fail("wire_exponent", absl::StrCat("is ", out.wire_exponent, ", not -",
                                               kMaxWireExponent, " to ", kMaxWireExponent));
  }
  if (out.wire_exponent != 0 && out.wire_dtype == DType::kUnspecified) {
    checker.Fail("wire_exponent", "has no wire_dtype");
  }
  return out;
}

namespace {

// Where each kind goes in the oneof.
struct PutKind {
  v1::FrameHeader* out;
  void operator()(const Bind& in) { Encode(in, out->mutable_bind()); }
  void operator()(const Bound& in) { Encode(in, out->mutable_bound()); }
  void operator()(const Ack& in) { Encode(in, out->mutable_ack()); }
  void operator()(const ContributionHeader& in) { Encode(in, out->mutable_contribution()); }
  void operator()(const ResultHeader& in) { Encode(in, out->mutable_result()); }
  void operator()(const SupplyHeader& in) { Encode(in, out->mutable_supply()); }
  void operator()(const BlobHeader& in) { Encode(in, out->mutable_value()); }
};

FrameKind TakeKind(const v1::FrameHeader& in, Checker& checker) {
  switch (in.kind_case()) {
    case v1::FrameHeader::kBind:
      return DecodeField("bind", in.bind(), checker);
    case v1::FrameHeader::kBound:
      return DecodeField("bound", in.bound(), checker);
    case v1::FrameHeader::kAck:
      return DecodeField("ack", in.ack(), checker);
    case v1::FrameHeader::kContribution:
      return DecodeField("contribution", in.contribution(), checker);
    case v1::FrameHeader::kResult:
      return DecodeField("result", in.result(), checker);
    case v1::FrameHeader::kSupply:
      return DecodeField("supply", in.supply(), checker);
    case v1::FrameHeader::kValue:
      return DecodeField("value", in.value(), checker);
    case v1::FrameHeader::KIND_NOT_SET:
      break;
  }
  checker.Fail("kind", "is required");
  return {};
}

// The runs of a frame that has them.
struct FindRuns {
  const ChunkRuns* operator()(const ContributionHeader& kind) const { return &kind.runs; }
  const ChunkRuns* operator()(const ResultHeader& kind) const { return &kind.runs; }
  const ChunkRuns* operator()(const SupplyHeader& kind) const { return &kind.runs; }
  template <typename Other>
  const ChunkRuns* operator()(const Other&) const {
    return nullptr;
  }
};

// Whether `chunks` chunks of one tensor, whole but the last of the tensor, can have this size.
// A narrower wire dtype has fewer bytes, by how much depends on the tensor.
bool CanHave(uint64_t chunks, uint64_t bytes, bool as_is) {
  const uint64_t most = chunks * kChunkBytes;
  const uint64_t least = chunks == 0 ? 0 : as_is ? most - kChunkBytes + 1 : 1;
  return least <= bytes && bytes <= most;
}

// A list names each tensor once, in ascending order, and its parts make up the payload.
void CheckList(const ChunkRuns& runs, size_t payload_bytes, bool as_is, Checker& checker) {
  uint64_t bytes = 0;
  checker.AtMost("size(runs)", runs.size(), size_t{kMaxRunsPerFrame});
  uint64_t chunks = 0;
  for (const ChunkRun& run : runs) chunks += run.range.count;
  checker.AtMost("count(runs)", chunks, uint64_t{kMaxChunksInRuns});
  checker.AtMost("payload_bytes", payload_bytes, kMaxPayloadBytes);
  for (size_t i = 0; i < runs.size(); ++i) {
    Checker::Scope scope(checker, "runs", static_cast<ptrdiff_t>(i));
    const ChunkRun& run = runs[i];
    if (i > 0 && run.range.tensor <= runs[i - 1].range.tensor) {
      checker.Fail("tensor", absl::StrCat("is ", run.range.tensor, " after ",
                                          runs[i - 1].range.tensor, "; they must ascend"));
    }
    if (!CanHave(run.range.count, run.bytes, as_is)) {
      checker.Fail("bytes", absl::StrCat("is ", run.bytes, ", but ", run.range.count,
                                         " chunks cannot have it"));
    }
    bytes += run.bytes;
  }
  if (bytes != payload_bytes) {
    checker.Fail("runs", absl::StrCat("have ", bytes, " bytes, but the payload ", payload_bytes));
  }
}

// Checks the claims of a header about the payload against the actual payload.
void CheckPayload(const FrameHeader& header, size_t payload_bytes, Checker& checker) {
  const uint32_t chunks = FrameChunks(header.kind);
  const ChunkRuns* runs = std::visit(FindRuns{}, header.kind);
  const bool as_is = header.encoding == Encoding{};
  if (!as_is && (chunks == 0 || std::holds_alternative<BlobHeader>(header.kind))) {
    checker.Fail("encoding", "is not for frames of this kind");
  }
  if (!header.chunk_digests.empty()) {
    checker.Equal("size(chunk_digests)", header.chunk_digests.size(), size_t{chunks});
  }
  if (runs != nullptr && runs->size() > 1) return CheckList(*runs, payload_bytes, as_is, checker);
  checker.AtMost("count", chunks, kMaxChunksPerFrame);
  if (!CanHave(chunks, payload_bytes, as_is)) {
    checker.Fail("payload_bytes",
                 absl::StrCat("is ", payload_bytes, ", but ", chunks, " chunks cannot have it"));
  }
}

absl::StatusOr<FrameHeader> DecodeHeader(const v1::FrameHeader& in, size_t payload_bytes) {
  Checker checker;
  Checker::Scope scope(checker, "header");
  FrameHeader out;
  out.kind = TakeKind(in, checker);
  out.encoding = DecodeField("encoding", in.encoding(), checker);
  if (checker.Count("chunk_digests", in.chunk_digests_size(), kMaxChunksInRuns)) {
    out.chunk_digests.assign(in.chunk_digests().begin(), in.chunk_digests().end());
  }
  checker.Equal("payload_bytes", in.payload_bytes(), payload_bytes);
  CheckPayload(out, payload_bytes, checker);
  if (!checker.ok()) return checker.status();
  return out;
}

// --------------------------------------------------------------------------------- the frame

// XXH3 of the header and, when nothing else vouches for it, of the payload.
uint64_t ChecksumOf(std::string_view header, absl::Span<const std::string_view> payload,
                    bool with_payload) {
  if (!with_payload) return XXH3_64bits(header.data(), header.size());
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), header.data(), header.size());
  for (const std::string_view slice : payload) {
    XXH3_64bits_update(state.get(), slice.data(), slice.size());
  }
  return XXH3_64bits_digest(state.get());
}

size_t TotalBytes(absl::Span<const std::string_view> slices) {
  size_t bytes = 0;
  for (const std::string_view slice : slices) bytes += slice.size();
  return bytes;
}

// The slices in one piece: the slice itself, or a copy in `copy`.
std::string_view Contiguous(const Slices& slices, std::string* copy) {
  if (slices.size() == 1) return slices.front();
  for (const std::string_view slice : slices) copy->append(slice);
  return *copy;
}

// A place has five fields of at most 11 bytes. This holds the most places, and leaves room for
// fields of later versions.
constexpr size_t kMaxSharedBytes = size_t{64} << 10;
static_assert(kMaxPlacesPerFrame * (2 + 5 * 11) + 256 <= kMaxSharedBytes, "every list fits");

absl::Status Invalid(std::string_view problem) {
  return absl::InvalidArgumentError("frame: " + std::string(problem));
}

constexpr std::string_view kTwoPayloads = "it has more than one payload";

constexpr uint32_t kSequenceTag =
    WireFormatLite::MakeTag(v1::Frame::kSequenceFieldNumber, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kHeaderTag = WireFormatLite::MakeTag(v1::Frame::kHeaderFieldNumber,
                                                        WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kChecksumTag =
    WireFormatLite::MakeTag(v1::Frame::kChecksumFieldNumber, WireFormatLite::WIRETYPE_FIXED64);
constexpr uint32_t kSharedTag = WireFormatLite::MakeTag(v1::Frame::kSharedMemoryFieldNumber,
                                                        WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kInlineTag = WireFormatLite::MakeTag(v1::Frame::kInlineFieldNumber,
                                                        WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// The fields of a frame as they stand on the wire. The last of each counts, as protobuf has it, but
// there is one payload: protobuf would merge two places in shared memory into a third.
struct RawFrame {
  uint64_t sequence = 0;
  uint64_t checksum = 0;
  Slices header;
  bool is_shared = false;
  Slices shared;  // An encoded SharedMemory.
  bool is_inline = false;
  Slices payload;
};

absl::StatusOr<RawFrame> ReadFields(absl::Span<const std::string_view> message) {
  SliceReader reader(message);
  RawFrame raw;
  while (reader.left() > 0) {
    SliceReader::Tag tag;
    if (!reader.ReadTag(&tag)) return Invalid("a field's tag is malformed");
    bool read;
    switch (tag.field << 3 | tag.type) {
      case kSequenceTag:
        read = reader.ReadVarint(&raw.sequence);
        break;
      case kHeaderTag:
        read = reader.ReadBytes(&raw.header);
        break;
      case kChecksumTag:
        read = reader.ReadFixed64(&raw.checksum);
        break;
      case kSharedTag:
        if (raw.is_shared || raw.is_inline) return Invalid(kTwoPayloads);
        read = reader.ReadBytes(&raw.shared);
        raw.is_shared = true;
        break;
      case kInlineTag:
        if (raw.is_shared || raw.is_inline) return Invalid(kTwoPayloads);
        read = reader.ReadBytes(&raw.payload);
        raw.is_inline = true;
        break;
      default:
        if (tag.field == v1::Frame::kDeviceFieldNumber) {
          return Invalid("payloads in the memory of a device are not in use in this session");
        }
        read = reader.Skip(tag.type);
    }
    if (!read) return Invalid(absl::StrCat("field ", tag.field, " is malformed or truncated"));
  }
  return raw;
}

}  // namespace

uint32_t FrameChunks(const FrameKind& kind) {
  if (const auto* value = std::get_if<BlobHeader>(&kind)) return value->count;
  const ChunkRuns* runs = std::visit(FindRuns{}, kind);
  return runs == nullptr ? 0 : CountChunks(*runs);
}

namespace {

// Everything between the sequence number and an inline payload.
absl::StatusOr<std::string> EncodeParts(const FrameHeader& header, size_t payload_bytes,
                                        absl::Span<const std::string_view> payload,
                                        std::string_view shared) {
  Checker checker;
  CheckPayload(header, payload_bytes, checker);
  if (!checker.ok()) return checker.status();

  // A header may have a hundred chunk runs.
  Arena arena;
  v1::FrameHeader& proto = NewIn<v1::FrameHeader>(arena);
  std::visit(PutKind{&proto}, header.kind);
  if (header.encoding != Encoding{}) Encode(header.encoding, proto.mutable_encoding());
  proto.mutable_chunk_digests()->Add(header.chunk_digests.begin(), header.chunk_digests.end());
  proto.set_payload_bytes(static_cast<uint32_t>(payload_bytes));
  const size_t header_bytes = proto.ByteSizeLong();
  if (header_bytes > kMaxFrameHeaderBytes) {
    return Invalid(
        absl::StrCat("the header has ", header_bytes, " bytes, more than ", kMaxFrameHeaderBytes));
  }

  std::string out(kMaxFrameOverheadBytes + header_bytes + shared.size(), '\0');
  uint8_t* const begin = reinterpret_cast<uint8_t*>(out.data());
  uint8_t* at = CodedOutputStream::WriteTagToArray(kHeaderTag, begin);
  at = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(header_bytes), at);
  const std::string_view encoded(reinterpret_cast<const char*>(at), header_bytes);
  at = proto.SerializeWithCachedSizesToArray(at);
  at = CodedOutputStream::WriteTagToArray(kChecksumTag, at);
  const uint64_t checksum = shared.empty()
                                ? ChecksumOf(encoded, payload, header.chunk_digests.empty())
                                : ChecksumOf(encoded, {&shared, 1}, true);
  at = CodedOutputStream::WriteLittleEndian64ToArray(checksum, at);
  if (!shared.empty()) {
    at = CodedOutputStream::WriteTagToArray(kSharedTag, at);
    at = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(shared.size()), at);
    at = CodedOutputStream::WriteRawToArray(shared.data(), static_cast<int>(shared.size()), at);
  } else if (payload_bytes != 0) {
    at = CodedOutputStream::WriteTagToArray(kInlineTag, at);
    at = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(payload_bytes), at);
  }
  out.resize(at - begin);
  return out;
}

}  // namespace

absl::StatusOr<std::string> EncodeFrame(const FrameHeader& header,
                                        absl::Span<const std::string_view> payload) {
  return EncodeParts(header, TotalBytes(payload), payload, {});
}

namespace {

// SharedMemory and SharedPlace have the same fields.
template <typename Out>
void EncodePlace(const SharedPlace& in, Out* out) {
  out->set_segment(in.segment);
  out->set_offset(in.offset);
  out->set_length(in.length);
  out->set_version(in.version);
}

template <typename In>
SharedPlace DecodePlace(const In& in, Checker& checker) {
  const SharedPlace place{checker.Required("segment", in.segment()), in.offset(),
                          checker.Required("length", in.length()), in.version()};
  checker.AtMost("length", place.length, uint64_t{kMaxPayloadBytes});
  return place;
}

uint64_t TotalLength(const SharedPlaces& places) {
  uint64_t bytes = 0;
  for (const SharedPlace& place : places) bytes += place.length;
  return bytes;
}

// Whether each place ends where a chunk does. REQUIRES: the places have the payload's bytes, and
// none is empty.
bool HaveWholeChunks(const FrameHeader& header, const SharedPlaces& places) {
  if (places.size() == 1) return true;
  const uint64_t chunk_bytes = WireChunkBytes(header.encoding.wire_dtype);
  auto place = places.begin();
  uint64_t left = place->length;
  const auto take = [&](uint64_t bytes) {  // From one tensor.
    while (bytes > 0) {
      if (left == 0) left = (++place)->length;
      const uint64_t chunk = std::min(bytes, chunk_bytes);
      if (chunk > left) return false;
      left -= chunk;
      bytes -= chunk;
    }
    return true;
  };
  const ChunkRuns* runs = std::visit(FindRuns{}, header.kind);
  if (runs == nullptr || runs->size() == 1) return take(TotalLength(places));
  return std::all_of(runs->begin(), runs->end(),
                     [&](const ChunkRun& run) { return take(run.bytes); });
}

constexpr std::string_view kPartOfChunk = "a place in shared memory has a part of a chunk";

}  // namespace

absl::StatusOr<std::string> EncodeSharedFrame(const FrameHeader& header,
                                              const SharedPlaces& payload) {
  if (header.chunk_digests.empty()) {
    return Invalid("a payload in shared memory needs chunk digests");
  }
  if (payload.size() > kMaxPlacesPerFrame) {
    return Invalid(absl::StrCat("the payload is in ", payload.size(), " places, more than ",
                                kMaxPlacesPerFrame));
  }
  v1::SharedMemory proto;
  EncodePlace(payload.front(), &proto);
  for (size_t i = 1; i < payload.size(); ++i) EncodePlace(payload[i], proto.add_more());
  absl::StatusOr<std::string> encoded =
      EncodeParts(header, TotalLength(payload), {}, proto.SerializeAsString());
  if (encoded.ok() && !HaveWholeChunks(header, payload)) return Invalid(kPartOfChunk);
  return encoded;
}

std::string EncodeSequence(uint64_t sequence) {
  if (sequence == 0) return {};
  uint8_t buffer[16];
  uint8_t* at = CodedOutputStream::WriteTagToArray(kSequenceTag, buffer);
  at = CodedOutputStream::WriteVarint64ToArray(sequence, at);
  return std::string(buffer, at);
}

namespace {

absl::StatusOr<SharedPlaces> DecodePlaces(const Slices& encoded) {
  std::string copy;
  Arena arena;
  v1::SharedMemory& proto = NewIn<v1::SharedMemory>(arena);
  const absl::Status parsed = Parse(Contiguous(encoded, &copy), kMaxSharedBytes, &proto);
  if (!parsed.ok()) return parsed;
  Checker checker;
  Checker::Scope scope(checker, "shared_memory");
  SharedPlaces places;
  if (checker.Count("more", proto.more_size(), kMaxPlacesPerFrame - 1)) {
    places.push_back(DecodePlace(proto, checker));
    for (const v1::SharedPlace& place : proto.more()) {
      Checker::Scope more(checker, "more", static_cast<ptrdiff_t>(places.size()) - 1);
      places.push_back(DecodePlace(place, checker));
    }
  }
  if (!checker.ok()) return checker.status();
  return places;
}

}  // namespace

absl::StatusOr<DecodedFrame> DecodeFrame(absl::Span<const std::string_view> message) {
  if (const size_t bytes = TotalBytes(message); bytes > kMaxMessageBytes) {
    return Invalid(absl::StrCat("has ", bytes, " bytes, more than ", kMaxMessageBytes));
  }
  absl::StatusOr<RawFrame> raw = ReadFields(message);
  if (!raw.ok()) return raw.status();
  const size_t header_bytes = TotalBytes(raw->header);
  if (header_bytes == 0 || header_bytes > kMaxFrameHeaderBytes) {
    return Invalid(
        absl::StrCat("the header has ", header_bytes, " bytes, not 1 to ", kMaxFrameHeaderBytes));
  }
  std::string copy;
  const std::string_view header = Contiguous(raw->header, &copy);

  // The checksum comes first: it is the best explanation of a header that makes no sense.
  Arena arena;
  v1::FrameHeader& proto = NewIn<v1::FrameHeader>(arena);
  const absl::Status parsed = Parse(header, kMaxMessageBytes, &proto);
  const bool with_payload = !raw->is_shared && (!parsed.ok() || proto.chunk_digests().empty());
  const uint64_t checksum = raw->is_shared ? ChecksumOf(header, raw->shared, true)
                                           : ChecksumOf(header, raw->payload, with_payload);
  if (checksum != raw->checksum) {
    return absl::DataLossError(absl::StrCat("frame: the checksum is ",
                                            absl::Hex(checksum, absl::kZeroPad16), " instead of ",
                                            absl::Hex(raw->checksum, absl::kZeroPad16)));
  }
  if (!parsed.ok()) return parsed;

  DecodedFrame out;
  out.payload_bytes = TotalBytes(raw->payload);
  if (raw->is_shared) {
    absl::StatusOr<SharedPlaces> places = DecodePlaces(raw->shared);
    if (!places.ok()) return places.status();
    if (proto.chunk_digests().empty()) {
      return Invalid("a payload in shared memory needs chunk digests");
    }
    out.places = *std::move(places);
    out.payload_bytes = TotalLength(out.places);
  }
  out.payload_verified = with_payload;
  absl::StatusOr<FrameHeader> decoded = DecodeHeader(proto, out.payload_bytes);
  if (!decoded.ok()) return decoded.status();
  if (raw->is_shared && !HaveWholeChunks(*decoded, out.places)) return Invalid(kPartOfChunk);
  const bool opens =
      std::holds_alternative<Bind>(decoded->kind) || std::holds_alternative<Bound>(decoded->kind);
  if (opens != (raw->sequence == 0)) {
    return Invalid(opens ? "Bind and Bound have no sequence number"
                         : "the sequence number is missing");
  }
  out.sequence = raw->sequence;
  out.header = *std::move(decoded);
  out.payload = std::move(raw->payload);
  return out;
}

}  // namespace basin::wire
