// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the payload of a frame is, if it is not in the frame but in memory that both ends share.
// Its parts may be in several places.
//
// Thread contract: plain values.

#ifndef BASIN_PROTOCOL_SHARED_PLACE_H_
#define BASIN_PROTOCOL_SHARED_PLACE_H_

#include <cstdint>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "protocol/fields.h"

namespace basin {

struct SharedPlace {
  uint64_t segment = 0;  // By the number that its owner gave it.
  uint64_t offset = 0;
  uint64_t length = 0;
  // The bytes are there while the segment has this version; 0: they do not change.
  uint64_t version = 0;
  auto Fields() const { return std::tie(segment, offset, length, version); }
};

// In the order of the payload's bytes. Each has whole chunks.
using SharedPlaces = absl::InlinedVector<SharedPlace, 1>;

}  // namespace basin

#endif  // BASIN_PROTOCOL_SHARED_PLACE_H_
