// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/contribution.h"

#include <algorithm>
#include <string>

#include "kernels/cast.h"

namespace basin::client {

std::vector<Digest> DigestChunks(const kernels::TensorKey& key, const void* data, uint64_t size,
                                 uint64_t wire_chunk_bytes) {
  std::vector<Digest> digests;
  digests.reserve((size + wire_chunk_bytes - 1) / wire_chunk_bytes);
  kernels::ContentDigest content;
  const char* bytes = static_cast<const char*>(data);
  for (uint64_t at = 0; at < size; at += wire_chunk_bytes) {
    content.Update(bytes + at, std::min(wire_chunk_bytes, size - at));
    digests.push_back(kernels::TermOf(key, digests.size(), content.Finish()).low);
  }
  return digests;
}

Contribution Prepare(const kernels::TensorKey& key, uint64_t tensor_bytes, const void* data,
                     wire::Encoding encoding) {
  Contribution contribution;
  contribution.encoding = encoding;
  if (encoding.wire_dtype == DType::kUnspecified) {
    contribution.data = data;
    contribution.wire_bytes = tensor_bytes;
    contribution.digests = DigestChunks(key, data, tensor_bytes, kChunkBytes);
    return contribution;
  }
  std::string narrow(tensor_bytes / 2, '\0');
  kernels::CastToWire(data, tensor_bytes / sizeof(float), encoding.wire_dtype,
                      encoding.wire_exponent, narrow.data());
  contribution.wire_bytes = narrow.size();
  contribution.digests =
      DigestChunks(key, narrow.data(), narrow.size(), contribution.wire_chunk_bytes());
  contribution.narrow = std::make_shared<OwnPayload>(std::move(narrow));
  return contribution;
}

}  // namespace basin::client
