// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/proto/random_frames.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace basin::testing {
namespace {

struct FillKind {
  RandomMessages& random;
  uint32_t chunks;

  LaneIndex Lane() { return static_cast<LaneIndex>(random.UpTo(kMaxLaneIndexes - 1)); }
  RoundNumber Round() { return std::max<uint64_t>(1, random.Number()); }
  ChunkRange Range() {
    return {static_cast<TensorIndex>(random.UpTo(kMaxTensors - 1)),
            static_cast<uint32_t>(random.UpTo(kMaxChunksPerTensor - chunks)), chunks};
  }

  void operator()(wire::Bind& out) {
    out = {std::max<uint64_t>(1, random.Number()),
           static_cast<uint32_t>(random.UpTo(kMaxStreams - 1)),
           static_cast<uint32_t>(1 + random.Below(3))};
  }
  void operator()(wire::Bound&) {}
  void operator()(wire::Ack& out) { out = {std::max<uint64_t>(1, random.Number())}; }
  void operator()(wire::ContributionHeader& out) { out = {Lane(), Round(), Range()}; }
  void operator()(wire::ResultHeader& out) {
    out = {Lane(), Round(), random.Make<Ballot>(), Range()};
  }
  void operator()(wire::SupplyHeader& out) {
    out = {Lane(), Round(), random.Make<Ballot>(), Range()};
  }
  void operator()(wire::BlobHeader& out) { out = {random.Make<BlobKey>(), Range().first, chunks}; }
};

template <size_t... I>
wire::FrameKind KindWithIndex(size_t index, std::index_sequence<I...>) {
  wire::FrameKind out;
  ((I == index ? void(out.emplace<I>()) : void()), ...);
  return out;
}

template <typename Kind>
constexpr bool kHasRuns =
    std::is_same_v<Kind, wire::ContributionHeader> || std::is_same_v<Kind, wire::ResultHeader> ||
    std::is_same_v<Kind, wire::SupplyHeader>;

// The same frame with chunks of several small tensors.
RandomFrame WithList(RandomMessages& random, RandomFrame frame) {
  wire::ChunkRuns runs;
  const size_t tensors = 2 + random.Below(5);
  TensorIndex tensor = 0;
  for (size_t i = 0; i < tensors; ++i) {
    tensor += 1 + static_cast<TensorIndex>(random.Below(9));
    const auto bytes = static_cast<uint32_t>(1 + random.Below(40));
    runs.push_back({{tensor, static_cast<uint32_t>(random.Below(3)), 1}, bytes});
    frame.payload += random.Bytes(bytes);
    frame.header.chunk_digests.push_back(random.Number());
  }
  if (random.Coin()) frame.header.chunk_digests.clear();
  const auto put = [&runs](auto& kind) {
    if constexpr (kHasRuns<std::decay_t<decltype(kind)>>) kind.runs = runs;
  };
  std::visit(put, frame.header.kind);
  return frame;
}

}  // namespace

std::string RandomFrame::Encode() const {
  if (!places.empty()) {
    return wire::EncodeSequence(sequence) + wire::EncodeSharedFrame(header, places).value();
  }
  const std::string_view whole = payload;
  return wire::EncodeSequence(sequence) + wire::EncodeFrame(header, {&whole, 1}).value() + payload;
}

RandomFrame MakeFrame(RandomMessages& random, size_t kind, bool small) {
  RandomFrame out;
  out.header.kind =
      KindWithIndex(kind, std::make_index_sequence<std::variant_size_v<wire::FrameKind>>());
  const auto chunks = static_cast<uint32_t>(
      small || random.Below(8) != 0 ? 1 : 1 + random.Below(kMaxChunksPerFrame));
  std::visit(FillKind{random, chunks}, out.header.kind);
  const bool opens = std::holds_alternative<wire::Bind>(out.header.kind) ||
                     std::holds_alternative<wire::Bound>(out.header.kind);
  out.sequence = opens ? 0 : std::max<uint64_t>(1, random.Number());
  if (wire::FrameChunks(out.header.kind) == 0) return out;

  if (random.Coin() && !std::holds_alternative<wire::BlobHeader>(out.header.kind)) {
    out.header.encoding = {
        random.Coin() ? DType::kBF16 : DType::kF16,
        static_cast<int32_t>(random.UpTo(2 * kMaxWireExponent)) - kMaxWireExponent};
  }
  if (random.Below(3) == 0 && !std::holds_alternative<wire::BlobHeader>(out.header.kind)) {
    return WithList(random, std::move(out));
  }
  if (random.Coin()) {
    for (uint32_t i = 0; i < chunks; ++i) out.header.chunk_digests.push_back(random.Number());
  }
  const uint64_t whole = out.header.encoding == wire::Encoding{} ? (chunks - 1) * kChunkBytes : 0;
  out.payload = random.Bytes(whole + 1 + (small ? random.Below(40) : random.UpTo(kChunkBytes - 1)));
  return out;
}

SharedPlaces MakePlaces(RandomMessages& random, const RandomFrame& frame) {
  wire::ChunkRuns runs;
  std::visit(
      [&runs](const auto& kind) {
        if constexpr (kHasRuns<std::decay_t<decltype(kind)>>) runs = kind.runs;
      },
      frame.header.kind);
  if (runs.size() <= 1) {
    runs.assign(1, {{}, static_cast<uint32_t>(frame.payload.size())});
  }
  SharedPlaces places;
  const auto add = [&](uint64_t bytes) {
    if (places.empty() || random.Coin()) {
      places.push_back({1 + random.Below(9), random.Number(), 0, random.Below(3)});
    }
    places.back().length += bytes;
  };
  const uint64_t most = WireChunkBytes(frame.header.encoding.wire_dtype);
  for (const ChunkRun& run : runs) {
    for (uint64_t left = run.bytes; left > 0; left -= std::min(left, most)) {
      add(std::min(left, most));
    }
  }
  return places;
}

std::vector<std::string_view> CutIntoSlices(RandomMessages& random, std::string_view bytes) {
  std::vector<size_t> cuts = {0, bytes.size()};
  for (uint64_t i = random.Below(6); i > 0; --i) {
    // Mostly near the front, where the fields are.
    cuts.push_back(random.UpTo(random.Coin() ? bytes.size() : std::min<size_t>(bytes.size(), 64)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::string_view> out;
  for (size_t i = 1; i < cuts.size(); ++i) {
    out.push_back(bytes.substr(cuts[i - 1], cuts[i] - cuts[i - 1]));
  }
  return out;
}

}  // namespace basin::testing
