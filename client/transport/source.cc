// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cast.h"
#include "kernels/fit.h"
#include "kernels/norm.h"
#include "proto/wire/status_detail.h"
#include "runtime/contents.h"

namespace basin::client {
namespace {

// The default size of a frame; only a hint here.
constexpr uint64_t kFrameBytes = uint64_t{1} << 20;

absl::Status CheckEncoding(const TensorSpec& spec, const wire::Encoding& encoding) {
  if (encoding.wire_dtype == DType::kUnspecified && encoding.wire_exponent == 0) {
    return absl::OkStatus();
  }
  if (spec.dtype == DType::kF32 && kernels::CanCast(encoding.wire_dtype, encoding.wire_exponent)) {
    return absl::OkStatus();
  }
  if (encoding.wire_exponent == kernels::kFitExponent) {
    if (spec.dtype == DType::kF32 && encoding.wire_dtype == DType::kF16) return absl::OkStatus();
    return wire::ToStatus(
        {ErrorCode::kInvalidArgument,
         absl::StrCat("Tensor ", spec.name, " (", DescribeSpec(spec), ") cannot be sent as ",
                      DTypeName(encoding.wire_dtype),
                      " with the fitted exponent: only f32 that is sent as f16 has one.")});
  }
  return wire::ToStatus(
      {ErrorCode::kInvalidArgument,
       absl::StrCat(
           "Tensor ", spec.name, " (", DescribeSpec(spec), ") cannot be sent as ",
           DTypeName(encoding.wire_dtype), " scaled by 2^", encoding.wire_exponent,
           ": only f32 can be sent narrower, as f16 or bf16, scaled by 2^-126 to 2^126.")});
}

}  // namespace

absl::Status CheckData(const TensorSpec& spec, uint64_t needed, const void* data, uint64_t bytes) {
  if (bytes == needed && (data != nullptr || needed == 0)) return absl::OkStatus();
  const std::string given = data == nullptr ? "null" : absl::StrCat(bytes, " bytes");
  return wire::ToStatus(
      {ErrorCode::kInvalidArgument,
       absl::StrCat("The data given for tensor ", spec.name, " (", DescribeSpec(spec), ") is ",
                    given, ". Pass the address of its ", needed, " bytes.")});
}

Source::Source(TensorHandle tensor, const void* data, uint64_t bytes, wire::Encoding encoding,
               std::shared_ptr<const void> owner)
    : tensor_(tensor),
      data_(static_cast<const char*>(data)),
      bytes_(bytes),
      owner_(std::move(owner)),
      there_(bytes) {
  contribution_.encoding = encoding;
}

Source::Source(TensorHandle tensor, uint64_t bytes, Measured measured)
    : tensor_(tensor),
      data_(nullptr),
      bytes_(bytes),
      there_(bytes),
      norm_(measured.squared_norm),
      contents_(std::move(measured.contents)) {
  contribution_.on_device = std::move(measured.place);
  contribution_.encoding = measured.encoding;
}

void Source::SetNarrowed(double squared_norm) {
  narrowed_ = true;
  norm_ = squared_norm;
}

absl::Status Source::Check(const TensorInfo& info) const {
  absl::Status status = CheckEncoding(info.spec, encoding());
  if (!status.ok() || !on_host()) return status;
  return CheckData(info.spec, info.bytes, data_, bytes_);
}

void Source::Open(uint64_t number, std::shared_ptr<const TensorInfo> info,
                  std::optional<ArenaPlace> place) {
  number_ = number;
  info_ = std::move(info);
  if (encoding().wire_exponent == kernels::kFitExponent) {
    const uint32_t largest = kernels::LargestMagnitude(data_, bytes_ / sizeof(float));
    contribution_.encoding.wire_exponent = kernels::FittedExponent(largest);
  }
  contribution_.wire_bytes = OnTheWire(bytes_);
  if (!on_host()) {
    for (const kernels::Digest& content : contents_) Add(content);
    at_ = bytes_;
  } else if (place.has_value()) {
    if (place->at() != data_) copy_ = place->at();
    contribution_.place = std::move(place);
  } else if (casts()) {
    // The contribution refers to it from the start: it may be passed on before the tensor is read.
    const std::shared_ptr<char> own(new char[contribution_.wire_bytes],
                                    [](const char* bytes) { delete[] bytes; });
    copy_ = own.get();
    contribution_.data = copy_;
    contribution_.owner = own;
  } else {
    contribution_.data = data_;
    contribution_.owner = owner_;
  }
}

void Source::Add(const kernels::Digest& content) {
  contribution_.digests.push_back(DigestOf(info_->key, chunk_++, content));
}

uint64_t Source::Advance(uint64_t most, kernels::ContentDigest& hash) {
  const uint64_t begin = at_;
  const DType dtype = info_->spec.dtype;
  const size_t element = std::max<size_t>(1, ElementSize(dtype));
  const bool all = casts() && !contribution_.place.has_value();
  while (!idle() && (at_ == begin || at_ - begin < most || all)) {
    const uint64_t size = std::min(kChunkBytes, bytes_ - at_);
    const char* chunk = data_ + (narrowed_ ? OnTheWire(at_) : at_);
    if (copy_ != nullptr) {
      // The copy is what is read, so that a tensor that changes meanwhile has the right digest.
      char* const copy = copy_ + OnTheWire(at_);
      if (casts()) {
        kernels::AppendNormLeaves(dtype, chunk, size / element, &leaves_);
        kernels::CastToWire(chunk, size / sizeof(float), encoding().wire_dtype,
                            encoding().wire_exponent, copy);
      } else {
        std::memcpy(copy, chunk, OnTheWire(size));
      }
      chunk = copy;
    }
    hash.Update(chunk, OnTheWire(size));
    Add(hash.Finish());
    if (!is_narrow()) kernels::AppendNormLeaves(dtype, chunk, size / element, &leaves_);
    at_ += size;
  }
  return at_ - begin;
}

std::optional<double> Source::Norm() const {
  if (!done() || !IsFloatingPoint(info_->spec.dtype)) return std::nullopt;
  const double norm =
      norm_.has_value() ? *norm_ : kernels::SquaredNorm(leaves_.data(), leaves_.size());
  // An infinity stands for whatever is not finite.
  return std::isfinite(norm) ? norm : std::numeric_limits<double>::infinity();
}

Contribution Source::Begin() {
  begun_ = true;
  contribution_.squared_norm = Norm();
  contribution_.growing = done() ? 0 : number_;
  Contribution begun = contribution_;
  contribution_.digests.clear();
  return begun;
}

Growth Source::TakeGrowth() {
  return {number_, std::exchange(contribution_.digests, {}), done(), Norm()};
}

absl::Status Read(absl::Span<Source> sources,
                  const std::function<absl::Status(PushedParts parts)>& pass) {
  kernels::ContentDigest hash;
  size_t next = 0;
  absl::Status status;
  for (bool begins = true; status.ok() && (begins || next < sources.size()); begins = false) {
    const size_t first = next;
    for (uint64_t ready = 0; next < sources.size() && ready < kFrameBytes;) {
      ready += sources[next].Advance(kFrameBytes - ready, hash);
      if (sources[next].idle()) ++next;
    }
    PushedParts parts;
    const size_t end = begins ? sources.size() : std::min(next + 1, sources.size());
    for (Source& source : sources.subspan(first, end - first)) {
      if (!source.begun()) {
        parts.begun.emplace_back(source.tensor(), source.Begin());
      } else if (source.has_grown()) {
        parts.more.emplace_back(source.tensor(), source.TakeGrowth());
      }
    }
    status = pass(std::move(parts));
  }
  return status;
}

}  // namespace basin::client
