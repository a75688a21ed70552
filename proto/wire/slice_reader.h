// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Reads the outermost fields of a protobuf message that is stored in several pieces, and returns
// length-delimited fields as parts of those pieces.
//
// Internal to the wire layer.
//
// Thread contract: one thread.
// Failure: a read that does not fit returns false; the reader is of no use afterwards.

#ifndef BASIN_PROTO_WIRE_SLICE_READER_H_
#define BASIN_PROTO_WIRE_SLICE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "proto/wire/frame.h"

namespace basin::wire {

class SliceReader {
 public:
  // The wire types of protobuf that proto3 uses.
  enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  struct Tag {
    uint32_t field = 0;
    uint32_t type = 0;
  };

  // REQUIRES: the slices outlive the reader and its results.
  explicit SliceReader(absl::Span<const std::string_view> slices) : slices_(slices) {
    for (const std::string_view slice : slices) left_ += slice.size();
  }

  size_t left() const { return left_; }

  bool ReadTag(Tag* tag);
  // At most `most_bytes` long: 10 hold any value.
  bool ReadVarint(uint64_t* value, int most_bytes = 10);
  bool ReadFixed64(uint64_t* value);

  // A length and that many bytes; replaces the content of `out`.
  bool ReadBytes(Slices* out);

  // Skips the value of an unknown field. False for groups, which proto3 does not have.
  bool Skip(uint32_t type);

 private:
  bool ReadByte(uint8_t* byte);
  bool ReadSlices(uint64_t size, Slices* out);

  absl::Span<const std::string_view> slices_;
  size_t slice_ = 0;   // Index of the slice to read next ...
  size_t offset_ = 0;  // ... and from where in it.
  size_t left_ = 0;
};

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SLICE_READER_H_
