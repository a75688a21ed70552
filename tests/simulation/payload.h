// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The items that travel on the connections of a simulated run, and the places of chunks.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_SIMULATION_PAYLOAD_H_
#define BASIN_TESTS_SIMULATION_PAYLOAD_H_

#include <cstdint>
#include <string_view>
#include <variant>

#include "protocol/messages.h"
#include "tests/simulation/random.h"
#include "tests/world/narrate.h"
#include "tests/world/sums.h"

namespace basin::simulation {

inline constexpr uint32_t kMaxWorkers = world::kMostWorkers;
inline constexpr uint32_t kMaxTensors = 8;  // Per lane.
inline constexpr uint32_t kMaxChunksPerTensor = 8;
inline constexpr uint32_t kMaxChunks = kMaxTensors * kMaxChunksPerTensor;

// The place of a chunk among kMaxChunks places.
constexpr uint32_t BitOf(TensorIndex tensor, uint32_t chunk) {
  return tensor * kMaxChunksPerTensor + chunk;
}

// The places of a range, as bits.
constexpr uint64_t BitsOf(const ChunkRange& range) {
  const uint64_t run = range.count >= 64 ? ~uint64_t{0} : (uint64_t{1} << range.count) - 1;
  return run << BitOf(range.tensor, range.first);
}

using world::BlobFrame;
using world::Chunk;
using world::DigestOf;
using world::MaskOf;
using world::Narrate;
using PushFrame = world::PushFrame<Chunk>;
using ResultFrame = world::ResultFrame<Chunk>;

struct Sums : world::Sums {
  static Digest BlobDigestOf(const BlobKey&, uint32_t chunk, uint64_t content) {
    return Mix(content, chunk);
  }
};

constexpr uint64_t HashName(std::string_view name) {
  uint64_t hash = name.size();
  for (const char c : name) hash = Mix(hash, static_cast<uint8_t>(c));
  return hash;
}

// A chunk of the contribution with this key; each process, life, lane and round has its own key.
constexpr Chunk ContributionChunk(uint32_t worker, uint64_t key, uint64_t tensor_hash,
                                  uint32_t chunk) {
  return {MaskOf(worker), Mix(Mix(key, tensor_hash), chunk)};
}

inline constexpr uint64_t kBlobBytes = 300 * 1024;  // Two chunks.

struct OpenRequest {
  SessionToken token = 0;  // For data streams.
};
struct OpenAccepted {};
struct Closing {};  // The sender closed this connection after everything that it had sent.

// A frame of a data stream that travels with its session.
struct BatchedFrame {
  uint32_t stream = 0;  // The connection.
  std::variant<PushFrame, ResultFrame> frame;
};

using Item = std::variant<OpenRequest, OpenAccepted, Closing, ToAggregator, ToWorker, PushFrame,
                          ResultFrame, BlobFrame, BatchedFrame>;

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_PAYLOAD_H_
