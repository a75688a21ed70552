// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the engine holds of chunks, frames and blobs: payloads, by reference, with their digests.
// These are the `Bytes` of held.h. `arrived` is null if the Step was given no frame.
//
// Thread contract: pure functions and plain values; the engine's loop owns them.

#ifndef BASIN_AGGREGATOR_ENGINE_PAYLOADS_H_
#define BASIN_AGGREGATOR_ENGINE_PAYLOADS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/core/action.h"
#include "aggregator/engine/reduction.h"
#include "aggregator/engine/round_store.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

struct Payloads {
  struct Arrived {
    const IncomingFrame& frame;
    const ChunkDigests& digests;
  };
  using Frame = OutgoingFrame;
  using Tensor = KeyedTensor;
  using Reduction = std::unique_ptr<aggregator::Reduction>;
  using Round = RoundStore;
  struct ChunkOfBlob {
    PayloadPart part;
    Digest digest = 0;
  };
  using Blob = std::map<uint32_t, ChunkOfBlob>;  // By chunk.

  static Tensor TensorOf(const TensorSpec& spec) { return {spec, kernels::TensorKey(spec.name)}; }
  static absl::Status Keep(Round& round, const KeepChunks& keep, const Arrived* arrived);
  static absl::Status Discard(Round& round, const DiscardChunks& discard);
  static absl::StatusOr<Reduction> Take(Round& round, const Reduce& reduce);
  static void Hold(Round& round, const aggregator::Reduction& reduction);
  static absl::StatusOr<Frame> FrameOf(const Round& round, const Publish& publish,
                                       const ChunkRanges& ranges);
  static absl::Status Release(Round& round, const ReleaseResult& release);
  // All of the frame, or, for a worker that takes one tensor in a frame, one run of it.
  static absl::StatusOr<Frame> Relayed(const RelayResult& relay, const Arrived* arrived);
  static absl::StatusOr<Frame> Relayed(const RelayBlob& relay, const Arrived* arrived);
  static void Keep(Blob& blob, const RelayBlob& relay, const Arrived& arrived);
  static absl::StatusOr<Frame> FrameOf(const Blob& blob, const SendBlob& send);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_PAYLOADS_H_
