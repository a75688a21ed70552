// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What stands for tensor bytes in a simulated run. A chunk is 16 bytes whatever its tensor's size:
//
//   mask     worker k contributes 16^k, results are sums: hexadecimal digit k says how often worker
//            k was counted. More than once shows as a 2, never as another worker.
//   content  a hash of whose contribution it is (process, life, lane, round, tensor, chunk); a
//            result's content is the sum. Bytes of another round or life cannot pass for the right
//            ones.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_SIMULATION_PAYLOAD_H_
#define BASIN_TESTS_SIMULATION_PAYLOAD_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "aggregator/core/event.h"
#include "proto/vocabulary/messages.h"
#include "tests/simulation/random.h"

namespace basin::simulation {

inline constexpr uint32_t kMaxWorkers = 16;  // Digits of a mask.
inline constexpr uint32_t kMaxTensors = 8;   // Per lane.
inline constexpr uint32_t kMaxChunksPerTensor = 8;
inline constexpr uint32_t kMaxChunks = kMaxTensors * kMaxChunksPerTensor;

// Where a chunk is kept in arrays of kMaxChunks.
constexpr uint32_t PlaceOf(TensorIndex tensor, uint32_t chunk) {
  return tensor * kMaxChunksPerTensor + chunk;
}

// The places of a range, as bits.
constexpr uint64_t PlacesOf(const ChunkRange& range) {
  const uint64_t run = range.count >= 64 ? ~uint64_t{0} : (uint64_t{1} << range.count) - 1;
  return run << PlaceOf(range.tensor, range.first);
}

constexpr uint64_t MaskOf(uint32_t worker) { return uint64_t{1} << (4 * worker); }

struct Chunk {
  uint64_t mask = 0;
  uint64_t content = 0;
};

constexpr Digest DigestOf(const Chunk& chunk) { return Mix(chunk.content, chunk.mask); }

constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = name.size();
  for (const char c : name) hash = Mix(hash, static_cast<uint8_t>(c));
  return hash;
}

// A chunk of the contribution with this key (one key per process, life, lane and round).
constexpr Chunk ContributionChunk(uint32_t worker, uint64_t key, uint64_t tensor_hash,
                                  uint32_t chunk) {
  return {MaskOf(worker), Mix(Mix(key, tensor_hash), chunk)};
}

using Chunks = absl::InlinedVector<Chunk, 4>;

// Worker -> aggregator on a data stream.
struct PushFrame {
  aggregator::FrameKind kind = aggregator::FrameKind::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  uint64_t bytes = 0;
  Chunks chunks;
};

// Aggregator -> worker on a data stream.
struct ResultFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  Chunks chunks;
};

inline constexpr uint64_t kValueBytes = 300 * 1024;  // Two chunks.

// Chunks of a broadcast value, either way. Its whole content is one word.
struct ValueFrame {
  ValueKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t content = 0;
};

constexpr Digest ValueChunkDigest(uint64_t content, uint32_t chunk) { return Mix(content, chunk); }

struct OpenRequest {
  SessionToken token = 0;  // Data streams.
};
struct OpenAccepted {};
struct Closing {};  // The sender closed this connection after what it had sent.

using Item = std::variant<OpenRequest, OpenAccepted, Closing, ToAggregator, ToWorker, PushFrame,
                          ResultFrame, ValueFrame>;

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_PAYLOAD_H_
