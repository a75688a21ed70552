// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Received chunks that are kept: those of a round's result, and those of a broadcast value. They
// stay where the network library put them; nothing is copied until the trainer requests a tensor.
//
// Thread contract: one thread while chunks are added; constant, and safe from any, once it is
// shared with the trainer.

#ifndef BASIN_CLIENT_TRANSPORT_STAGING_H_
#define BASIN_CLIENT_TRANSPORT_STAGING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "runtime/payload.h"

namespace basin::client {

// A chunk that is here has an owner, or no bytes.
struct StagedChunk {
  PayloadPart part;
  Digest digest = 0;
};

// One tensor by chunk.
class StagedTensor {
 public:
  void Keep(uint32_t chunk, StagedChunk staged);
  // Lets go of chunks from `count` on.
  void Truncate(uint32_t count) {
    if (chunks_.size() > count) chunks_.resize(count);
  }
  // Null if it is not here.
  const StagedChunk* Find(uint32_t chunk) const;
  // Copies the tensor. INVALID_ARGUMENT when `size` is not the tensor's, DATA_LOSS when a chunk is
  // missing; `to` is unchanged then.
  absl::Status CopyTo(void* to, uint64_t size) const;
  // The pieces of the tensor, in order; missing chunks are omitted.
  std::vector<std::string_view> Pieces() const;

 private:
  std::vector<StagedChunk> chunks_;
};

// Result chunks of one round of a lane, by tensor.
struct StagedRound {
  RoundNumber round = 0;
  std::vector<StagedTensor> tensors;

  void Keep(TensorIndex tensor, uint32_t chunk, StagedChunk staged) {
    if (tensors.size() <= tensor) tensors.resize(size_t{tensor} + 1);
    tensors[tensor].Keep(chunk, std::move(staged));
  }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_STAGING_H_
