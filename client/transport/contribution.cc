// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/contribution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/cast.h"
#include "kernels/norm.h"

namespace basin::client {

namespace {

// An infinity stands for whatever is not finite.
double Told(double squared_norm) {
  return std::isfinite(squared_norm) ? squared_norm : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<Digest> DigestChunks(const kernels::TensorKey& key, const void* data, uint64_t size,
                                 uint64_t wire_chunk_bytes,
                                 const std::function<void(const void*, uint64_t)>& and_then,
                                 char* copy_to) {
  std::vector<Digest> digests;
  digests.reserve((size + wire_chunk_bytes - 1) / wire_chunk_bytes);
  kernels::ContentDigest content;
  const char* bytes = static_cast<const char*>(data);
  for (uint64_t at = 0; at < size; at += wire_chunk_bytes) {
    const uint64_t part = std::min(wire_chunk_bytes, size - at);
    const char* chunk = bytes + at;
    if (copy_to != nullptr) {
      std::memcpy(copy_to + at, chunk, part);
      chunk = copy_to + at;
    }
    content.Update(chunk, part);
    digests.push_back(kernels::TermOf(key, digests.size(), content.Finish()).low);
    if (and_then) and_then(chunk, part);
  }
  return digests;
}

Contribution Prepare(const kernels::TensorKey& key, DType dtype, uint64_t tensor_bytes,
                     const void* data, wire::Encoding encoding, std::optional<ArenaPlace> place) {
  Contribution contribution;
  contribution.encoding = encoding;
  std::vector<double> leaves;
  const size_t element = std::max<size_t>(1, ElementSize(dtype));
  const auto add_norm = [&](const void* part, uint64_t size) {
    kernels::AppendNormLeaves(dtype, part, size / element, &leaves);
  };
  const bool narrow = encoding.wire_dtype != DType::kUnspecified;
  contribution.wire_bytes = narrow ? tensor_bytes / 2 : tensor_bytes;
  contribution.place = std::move(place);
  if (narrow) {
    add_norm(data, tensor_bytes);
    std::string copy;
    if (!contribution.place.has_value()) copy.resize(contribution.wire_bytes);
    char* to = contribution.place.has_value() ? contribution.place->at() : copy.data();
    kernels::CastToWire(data, tensor_bytes / sizeof(float), encoding.wire_dtype,
                        encoding.wire_exponent, to);
    contribution.digests =
        DigestChunks(key, to, contribution.wire_bytes, contribution.wire_chunk_bytes());
    if (!contribution.place.has_value()) {
      contribution.narrow = std::make_shared<OwnPayload>(std::move(copy));
    }
  } else {
    char* const copy_to = contribution.place.has_value() ? contribution.place->at() : nullptr;
    if (copy_to == nullptr) contribution.data = data;
    contribution.digests = DigestChunks(key, data, tensor_bytes, kChunkBytes, add_norm, copy_to);
  }
  if (IsFloatingPoint(dtype)) {
    contribution.squared_norm = Told(kernels::SquaredNorm(leaves.data(), leaves.size()));
  }
  return contribution;
}

}  // namespace basin::client
