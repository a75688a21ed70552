// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the bytes of a chunk that shows whose contributions are in it. Two words, whatever
// the size of the tensor:
//
//   mask     worker k contributes 16^k, results are sums: hexadecimal digit k says how often worker
//            k was counted. More than once shows as a 2, never as another worker.
//   content  a hash of whose contribution it is (process, life, lane, round, tensor, chunk); a
//            result's content is the sum. Bytes of another round or life cannot pass for the right
//            ones.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_WORLD_SUMS_H_
#define BASIN_TESTS_WORLD_SUMS_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "protocol/messages.h"
#include "tests/world/aggregator_shell.h"

namespace basin::world {

inline constexpr uint32_t kMostWorkers = 16;  // Digits of a mask.

struct Chunk {
  uint64_t mask = 0;
  uint64_t content = 0;
  auto Fields() const { return std::tie(mask, content); }
};

constexpr uint64_t MaskOf(uint32_t worker) { return uint64_t{1} << (4 * worker); }

constexpr Digest DigestOf(const Chunk& chunk) {
  return (chunk.mask * 0x9e3779b97f4a7c15) ^ (chunk.content * 0xc2b2ae3d27d4eb4f);
}

// See AggregatorShell.
struct Sums {
  using Chunk = world::Chunk;
  static Digest DigestOf(TensorIndex, uint32_t, const Chunk& chunk) {
    return world::DigestOf(chunk);
  }
  static double SquaredNormOf(const Chunk&) { return 0; }
  static Chunk Reduce(const RoundSpec&, uint64_t, const std::vector<Given<Chunk>>& given) {
    Chunk sum;
    for (const auto& [contributor, chunk] : given) {
      sum.mask += chunk.mask;
      sum.content += chunk.content;
    }
    return sum;
  }
};

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_SUMS_H_
