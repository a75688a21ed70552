// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls without a name. They are matched by their order in the program of each worker, so they take
// turns in a ring of call lanes: call k of a job is a round of lane k modulo kUnnamedLanes. Which
// lane the next call of a worker takes follows from the rounds of these lanes alone, so a worker
// that joins in the middle, or that a call went on without, goes on with the call that the others
// have not made either.
//
// The arrays of a call may have any shape, but a tensor of a lane has one shape for good. So an
// array travels as parts whose lengths are powers of two: a lane needs few tensors, whatever the
// calls are.
//
// Thread contract: pure functions.

#ifndef BASIN_CLIENT_CORE_UNNAMED_H_
#define BASIN_CLIENT_CORE_UNNAMED_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/core/event.h"
#include "client/core/lane.h"
#include "protocol/messages.h"

namespace basin::client {

// So many unnamed calls of a worker can be in flight. The names of the lanes have it, so that
// clients with another number do not meet.
inline constexpr uint32_t kUnnamedLanes = 16;
// The most parts of one array.
inline constexpr size_t kMostParts = 40;

// "call/unnamed/16/3". REQUIRES: place < kUnnamedLanes.
std::string UnnamedLane(uint32_t place);
// Whether a lane has such a name.
bool IsUnnamedLane(const std::string& name);
// With which the lanes are registered, so that a refusal is known.
TensorSpec FirstUnnamedTensor();

// How many rounds of the lane the trainer has begun, or have ended without it. Absent until that is
// known: the lane is not laid out, or the worker is no member yet.
std::optional<RoundNumber> RoundsMade(const Lane& lane);
// The place of the lane in which the next unnamed call is the next round. Absent until it is known.
// REQUIRES: `lanes` has them by place.
std::optional<uint32_t> NextPlace(const std::vector<const Lane*>& lanes);

// Elements of an array that travel as one tensor.
struct CallPart {
  size_t array = 0;     // Its number in the call.
  uint64_t offset = 0;  // In bytes.
  uint64_t bytes = 0;
  TensorSpec spec;
};
// Those of arrays with this dtype and shape, of which the names do not matter. REQUIRES:
// HasUsableSize of each.
std::vector<CallPart> PartsOf(const std::vector<TensorSpec>& arrays);
// "SUM of f32[2,3], i64[1]": for Begin::call.
std::string DescribeCall(ReduceOp op, const std::vector<TensorSpec>& arrays);
// A hash of it, for RoundSpec::layout; never 0. The same in all processes.
uint64_t HashOfCall(const std::string& call);
// The most bytes of Begin::call, so that a message with those of two workers is short enough for
// the wire.
inline constexpr size_t kMostCallBytes = 400;
// The round is for this call; empty: it says nothing. An aggregator that does not compare calls
// compares the hash, unless the layout has another one. Failure: INVALID_ARGUMENT beyond
// kMostCallBytes.
absl::Status SetCall(BeginRound& begin, std::string call);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_UNNAMED_H_
