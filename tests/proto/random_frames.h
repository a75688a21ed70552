// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Random frames that obey the rules of basin/v1/exchange.proto, from a seed.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_PROTO_RANDOM_FRAMES_H_
#define BASIN_TESTS_PROTO_RANDOM_FRAMES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/frame.h"
#include "protocol/shared_place.h"
#include "tests/proto/random_messages.h"

namespace basin::testing {

struct RandomFrame {
  uint64_t sequence = 0;
  wire::FrameHeader header;
  std::string payload;
  SharedPlaces places = {};  // There are some: the payload is not in the frame.

  // The frame as it travels, in one piece. REQUIRES: the frame is valid.
  std::string Encode() const;
};

// A frame whose kind is the alternative with this index. `small` keeps the payload to a few bytes
// where the rules allow that.
RandomFrame MakeFrame(RandomMessages& random, size_t kind, bool small = false);

// Places for the frame's payload, in runs of whole chunks. REQUIRES: it has a payload.
SharedPlaces MakePlaces(RandomMessages& random, const RandomFrame& frame);

// `bytes` cut into slices at random places, some of them empty. The slices view `bytes`.
std::vector<std::string_view> CutIntoSlices(RandomMessages& random, std::string_view bytes);

// The slices in one piece.
template <typename Slices>
std::string Join(const Slices& slices) {
  std::string out;
  for (const std::string_view slice : slices) out.append(slice);
  return out;
}

}  // namespace basin::testing

#endif  // BASIN_TESTS_PROTO_RANDOM_FRAMES_H_
