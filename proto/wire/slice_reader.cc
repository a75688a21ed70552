// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/slice_reader.h"

#include <algorithm>

namespace basin::wire {
namespace {

// Protobuf reads no more than this for a tag or a length.
constexpr int kMostShortBytes = 5;

}  // namespace

bool SliceReader::ReadTag(Tag* tag) {
  uint64_t value;
  if (!ReadVarint(&value, kMostShortBytes) || value > 0xffffffff) return false;
  *tag = {static_cast<uint32_t>(value >> 3), static_cast<uint32_t>(value & 7)};
  return tag->field != 0;
}

bool SliceReader::ReadVarint(uint64_t* value, int most_bytes) {
  *value = 0;
  for (int i = 0; i < most_bytes; ++i) {
    uint8_t byte;
    if (!ReadByte(&byte)) return false;
    if (i == 9 && byte > 1) return false;  // More than 64 bits.
    *value |= static_cast<uint64_t>(byte & 0x7f) << 7 * i;
    if (byte < 0x80) return true;
  }
  return false;
}

bool SliceReader::ReadFixed64(uint64_t* value) {
  *value = 0;
  for (int i = 0; i < 8; ++i) {
    uint8_t byte;
    if (!ReadByte(&byte)) return false;
    *value |= static_cast<uint64_t>(byte) << 8 * i;
  }
  return true;
}

bool SliceReader::ReadBytes(Slices* out) {
  uint64_t size;
  return ReadVarint(&size, kMostShortBytes) && ReadSlices(size, out);
}

bool SliceReader::Skip(uint32_t type) {
  uint64_t unused;
  Slices unused_slices;
  switch (type) {
    case kVarint:
      return ReadVarint(&unused);
    case kFixed64:
      return ReadFixed64(&unused);
    case kBytes:
      return ReadBytes(&unused_slices);
    case kFixed32:
      return ReadSlices(4, &unused_slices);
    default:
      return false;
  }
}

bool SliceReader::ReadByte(uint8_t* byte) {
  if (left_ == 0) return false;
  while (offset_ == slices_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  *byte = static_cast<uint8_t>(slices_[slice_][offset_++]);
  --left_;
  return true;
}

bool SliceReader::ReadSlices(uint64_t size, Slices* out) {
  if (size > left_) return false;
  out->clear();
  left_ -= size;
  while (size > 0) {
    const std::string_view rest = slices_[slice_].substr(offset_);
    const std::string_view part = rest.substr(0, std::min<size_t>(rest.size(), size));
    if (!part.empty()) out->push_back(part);
    size -= part.size();
    offset_ += part.size();
    if (offset_ == slices_[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
  }
  return true;
}

}  // namespace basin::wire
