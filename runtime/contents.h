// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The content of each chunk of a frame, computed by the thread that receives the frame while the
// bytes are in its cache. Only the core's loop knows the keys that turn contents into digests.
//
// Thread contract: a pure function.

#ifndef BASIN_RUNTIME_CONTENTS_H_
#define BASIN_RUNTIME_CONTENTS_H_

#include <cstdint>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/checksum.h"
#include "protocol/frame.h"
#include "protocol/round.h"

namespace basin {

// The digest of chunk `chunk` of the tensor, if its bytes have this content.
inline Digest DigestOf(const kernels::TensorKey& tensor, uint64_t chunk,
                       const kernels::Digest& content) {
  return kernels::TermOf(tensor, chunk, content).low;
}

using ChunkContents = absl::InlinedVector<kernels::Digest, 4>;

// The contents of chunks that follow each other in `pieces`, each of `chunk_bytes` bytes but the
// last.
// REQUIRES: chunk_bytes > 0.
ChunkContents HashChunks(absl::Span<const std::string_view> pieces, uint64_t chunk_bytes);

// The same for the chunks of several tensors: the last chunk of each is short.
// REQUIRES: the runs have as many bytes as `pieces`.
ChunkContents HashRuns(absl::Span<const std::string_view> pieces, const ChunkRuns& runs,
                       uint64_t chunk_bytes);

}  // namespace basin

#endif  // BASIN_RUNTIME_CONTENTS_H_
