// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/payload.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/copy.h"

namespace basin {
namespace {

class PartlyUsed : public Payload {
 public:
  PartlyUsed(PayloadPtr whole, Pieces pieces)
      : whole_(std::move(whole)), pieces_(std::move(pieces)) {}
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const PayloadPtr whole_;
  const Pieces pieces_;
};

}  // namespace

absl::StatusOr<PayloadPart> OnHost(const PayloadPart& part) {
  const DevicePlace* const place = part.owner == nullptr ? nullptr : part.owner->on_device();
  if (place == nullptr) return part;
  std::string bytes(part.size, '\0');
  const auto failure = place->segment->Read(bytes.data(), place->offset + part.offset, part.size);
  if (failure.has_value()) {
    return absl::UnavailableError(
        absl::StrCat("Shared memory of a device cannot be read: ", failure->message));
  }
  return PayloadPart{std::make_shared<OwnPayload>(std::move(bytes)), 0, part.size};
}

PayloadPtr Within(PayloadPtr whole, Pieces pieces) {
  return std::make_shared<PartlyUsed>(std::move(whole), std::move(pieces));
}

char* CopyBytes(const PayloadPart& part, char* to, bool bypass_cache) {
  ForEachPiece(part, [&](std::string_view piece) {
    if (bypass_cache) {
      kernels::CopyPastCache(to, piece.data(), piece.size());
    } else {
      std::memcpy(to, piece.data(), piece.size());
    }
    to += piece.size();
  });
  return to;
}

void PayloadParts::Append(const PayloadPart& part) {
  if (part.size == 0) return;
  if (!parts_.empty()) {
    PayloadPart& last = parts_.back();
    if (last.owner == part.owner && last.offset + last.size == part.offset) {
      last.size += part.size;
      return;
    }
  }
  parts_.push_back(part);
}

uint64_t PayloadParts::bytes() const {
  uint64_t bytes = 0;
  for (const PayloadPart& part : parts_) bytes += part.size;
  return bytes;
}

bool PayloadParts::AnyOnDevice() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const PayloadPart& part) { return part.owner->on_device() != nullptr; });
}

PayloadParts WithSmallJoined(const PayloadParts& parts) {
  constexpr uint64_t kCopiedBytes = uint64_t{16} << 10;
  if (parts.parts().size() <= 1) return parts;
  PayloadParts joined;
  std::string copied;
  const auto flush = [&] {
    const uint64_t size = copied.size();
    joined.Append({std::make_shared<OwnPayload>(std::exchange(copied, {})), 0, size});
  };
  for (const PayloadPart& part : parts.parts()) {
    if (part.size > kCopiedBytes) {
      flush();
      joined.Append(part);
    } else {
      copied.resize(copied.size() + part.size);
      CopyBytes(part, copied.data() + copied.size() - part.size);
    }
  }
  flush();
  return joined;
}

Pieces PayloadParts::Pieces() const {
  basin::Pieces pieces;
  for (const PayloadPart& part : parts_) {
    ForEachPiece(part, [&](std::string_view piece) { pieces.push_back(piece); });
  }
  return pieces;
}

}  // namespace basin
