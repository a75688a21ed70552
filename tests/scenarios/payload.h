// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on data streams: chunk ranges, with one number in place of each chunk's bytes
// (oracle.h).
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_SCENARIOS_PAYLOAD_H_
#define BASIN_TESTS_SCENARIOS_PAYLOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/vocabulary/messages.h"

namespace basin::scenarios {

enum class FrameType : uint8_t { kContribution, kSupply, kResult };

struct Frame {
  FrameType type = FrameType::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // In results and supplies.
  ChunkRange range;
  std::string tensor;  // The name, which digests are keyed by.
  uint64_t bytes = 0;
  std::vector<double> values;  // By chunk.
};

// Chunks of a broadcast value, either way. Its content is one number.
struct ValueFrame {
  ValueKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t content = 0;
  uint64_t bytes = 0;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_PAYLOAD_H_
