// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Received chunks that are kept: those of a round's result, and those of a broadcast value. They
// stay where the network library put them; nothing is copied until the trainer requests a tensor.
//
// Those of a result may lie in memory of the aggregator, which it uses again later: they are copied
// before that, and a reader detects it if the copy came too late.
//
// Thread contract: one thread while chunks are added; safe from any once it is shared with the
// trainer.

#ifndef BASIN_CLIENT_TRANSPORT_STAGING_H_
#define BASIN_CLIENT_TRANSPORT_STAGING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "runtime/mutex.h"
#include "runtime/payload.h"
#include "runtime/shared_memory/segment.h"

namespace basin::client {

// A chunk that is here has an owner, or no bytes.
struct StagedChunk {
  PayloadPart part;
  Digest digest = 0;
  std::shared_ptr<const SharedPayload> shared = nullptr;  // Its owner, if that is shared memory.

  // Whether the bytes that were read from it are those that were received.
  bool intact() const { return shared == nullptr || shared->intact(); }
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
  absl::Status CopyTo(void* to, uint64_t size) const { return CopyPart(size, 0, to, size); }
  // Copies bytes [begin, begin + count) of the tensor, which has `size`. Failure: as CopyTo.
  absl::Status CopyPart(uint64_t size, uint64_t begin, void* to, uint64_t count) const;
  // All chunks in memory of their own, unless that comes too late.
  void MakePrivate();
  bool intact() const;
  // The pieces of the tensor, in order; missing chunks are omitted.
  std::vector<std::string_view> Pieces() const;

 private:
  std::vector<StagedChunk> chunks_;
};

// Result chunks of one round of a lane, by tensor.
class StagedRound {
 public:
  explicit StagedRound(RoundNumber number = 0) : round(number) {}

  const RoundNumber round;

  void Keep(TensorIndex tensor, uint32_t chunk, StagedChunk staged);

  // The tensors as they are. A tensor that was read is right if it is intact() afterwards.
  struct Content {
    std::vector<StagedTensor> tensors;
    // A tensor that was never staged has no chunks.
    const StagedTensor& Find(TensorIndex tensor) const;
  };
  std::shared_ptr<const Content> content() const;

  // Copies what lies in the aggregator's memory, before it is used again.
  void MakePrivate();

 private:
  mutable Mutex mutex_;
  std::shared_ptr<Content> content_ ABSL_GUARDED_BY(mutex_) = std::make_shared<Content>();
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_STAGING_H_
