// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/contribution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/cast.h"
#include "kernels/norm.h"
#include "runtime/contents.h"

namespace basin::client {

namespace {

// An infinity stands for whatever is not finite.
double Told(double squared_norm) {
  return std::isfinite(squared_norm) ? squared_norm : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<Digest> DigestChunks(const kernels::TensorKey& key, const void* data, uint64_t size) {
  std::vector<Digest> digests;
  digests.reserve(ChunkCount(size));
  kernels::ContentDigest content;
  const char* bytes = static_cast<const char*>(data);
  for (uint64_t at = 0; at < size; at += kChunkBytes) {
    content.Update(bytes + at, std::min(kChunkBytes, size - at));
    digests.push_back(DigestOf(key, digests.size(), content.Finish()));
  }
  return digests;
}

Contribution ContributionOf(const kernels::TensorKey& key, uint64_t tensor_bytes,
                            MeasuredTensor&& measured) {
  const bool narrow = measured.encoding.wire_dtype != DType::kUnspecified;
  Contribution contribution;
  contribution.wire_bytes = narrow ? tensor_bytes / 2 : tensor_bytes;
  contribution.on_device = std::move(measured.place);
  contribution.encoding = measured.encoding;
  for (const kernels::Digest& content : measured.contents) {
    const uint64_t chunk = contribution.digests.size();
    contribution.digests.push_back(DigestOf(key, chunk, content));
  }
  if (measured.squared_norm.has_value()) contribution.squared_norm = Told(*measured.squared_norm);
  return contribution;
}

Preparation::Preparation(uint64_t number, const kernels::TensorKey& key, DType dtype,
                         uint64_t tensor_bytes, const void* data, wire::Encoding encoding,
                         std::optional<ArenaPlace> place, std::optional<double> narrowed)
    : number_(number),
      key_(key),
      dtype_(dtype),
      tensor_bytes_(tensor_bytes),
      data_(static_cast<const char*>(data)),
      narrowed_(narrowed) {
  const bool narrow = encoding.wire_dtype != DType::kUnspecified;
  contribution_.encoding = encoding;
  contribution_.wire_bytes = narrow ? tensor_bytes / 2 : tensor_bytes;
  contribution_.place = std::move(place);
  if (!contribution_.place.has_value()) {
    if (narrow && !narrowed.has_value()) {
      const uint64_t size = contribution_.wire_bytes;
      own_ = {new char[size], [](const char* bytes) { delete[] bytes; }};
      contribution_.narrow = std::make_shared<LentPayload>(own_, own_.get(), size);
    } else {
      contribution_.data = data;
    }
  }
  if (done()) Finish();
}

uint64_t Preparation::Advance(uint64_t most) {
  const uint64_t begin = at_;
  const bool narrow = contribution_.encoding.wire_dtype != DType::kUnspecified;
  const size_t element = std::max<size_t>(1, ElementSize(dtype_));
  char* const copy = contribution_.place.has_value() ? contribution_.place->at() : own_.get();
  while (!done() && (at_ == begin || at_ - begin < most || reads_all())) {
    const uint64_t size = std::min(kChunkBytes, tensor_bytes_ - at_);
    const uint64_t wire_at = narrow ? at_ / 2 : at_;
    const uint64_t wire_size = narrow ? size / 2 : size;
    const char* chunk = data_ + (narrowed_.has_value() ? wire_at : at_);
    if (narrow && !narrowed_.has_value()) {
      kernels::AppendNormLeaves(dtype_, chunk, size / element, &leaves_);
      char* const to = copy + wire_at;
      kernels::CastToWire(chunk, size / sizeof(float), contribution_.encoding.wire_dtype,
                          contribution_.encoding.wire_exponent, to);
      chunk = to;
    } else if (contribution_.data == nullptr && copy != data_) {
      // The copy is what is read, so that a tensor that changes meanwhile has the right digest.
      std::memcpy(copy + wire_at, chunk, wire_size);
      chunk = copy + wire_at;
    }
    content_.Update(chunk, wire_size);
    digests_.push_back(DigestOf(key_, chunk_++, content_.Finish()));
    if (!narrow) kernels::AppendNormLeaves(dtype_, chunk, size / element, &leaves_);
    at_ += size;
  }
  if (at_ != begin && done()) Finish();
  return at_ - begin;
}

void Preparation::Finish() {
  if (!IsFloatingPoint(dtype_)) return;
  contribution_.squared_norm = Told(
      narrowed_.has_value() ? *narrowed_ : kernels::SquaredNorm(leaves_.data(), leaves_.size()));
}

Contribution Preparation::Begin() {
  contribution_.digests = std::exchange(digests_, {});
  contribution_.growing = done() ? 0 : number_;
  return contribution_;
}

Growth Preparation::TakeGrowth() {
  return {number_, std::exchange(digests_, {}), done(), contribution_.squared_norm};
}

}  // namespace basin::client
