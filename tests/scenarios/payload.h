// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Data streams carry chunk ranges, with one number instead of each chunk's bytes (oracle.h).
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_SCENARIOS_PAYLOAD_H_
#define BASIN_TESTS_SCENARIOS_PAYLOAD_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/core/event.h"
#include "protocol/messages.h"
#include "tests/scenarios/oracle.h"
#include "tests/world/aggregator_shell.h"

namespace basin::scenarios {

// A chunk: the name of its tensor, which its digest includes, and the number instead of its bytes.
struct Element {
  std::string tensor;
  double value = 0;
  auto Fields() const { return std::tie(tensor, value); }
};

// See world::AggregatorShell.
struct Elements {
  using Chunk = Element;
  static Digest DigestOf(TensorIndex, uint32_t chunk, const Element& element) {
    return ChunkDigest(element.tensor, chunk, element.value);
  }
  static Digest BlobDigestOf(const BlobKey& key, uint32_t chunk, uint64_t content) {
    return ChunkDigest(key.tensor, chunk, static_cast<double>(content));
  }
  static double SquaredNormOf(const Element& element) { return element.value * element.value; }
  static Element Reduce(const RoundSpec& spec, uint64_t divisor,
                        const std::vector<world::Given<Element>>& given);
};

using PushFrame = world::PushFrame<Element>;
using ResultFrame = world::ResultFrame<Element>;
using world::BlobFrame;

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_PAYLOAD_H_
