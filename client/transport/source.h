// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A tensor that a trainer pushes, read from its begin: the digests of its chunks, its norm and the
// copy that is sent, if one is needed. The first frames of a large tensor are sent while the rest
// is read.
//
//   source       its data are                            what is sent
//   -----------  --------------------------------------  ------------------------------------------
//   host         memory of the trainer                   that memory; a copy in memory that the
//                                                        aggregator maps; or a copy that is cast
//   registered   in memory of MappedMemory::Allocate     that memory, which the aggregator maps
//   narrowed     in its encoding already                 as host
//   growing      any of these, filled from their begin   the same, as far as it is there
//   on a device  copied to a place that the aggregator   that copy
//                maps, and measured there
//
// Thread contract: a plain value. It is read on the thread of the trainer that has just written it.

#ifndef BASIN_CLIENT_TRANSPORT_SOURCE_H_
#define BASIN_CLIENT_TRANSPORT_SOURCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/core/event.h"
#include "client/transport/arena.h"
#include "client/transport/contribution.h"
#include "kernels/checksum.h"
#include "proto/wire/frame.h"
#include "protocol/tensor.h"

namespace basin::client {

// A tensor that was registered.
struct TensorInfo {
  TensorSpec spec;
  uint64_t bytes = 0;
  kernels::TensorKey key{""};
};

// Whether the trainer's memory has the size of the tensor, so that nothing is read beyond it. A
// tensor without bytes is not read.
absl::Status CheckData(const TensorSpec& spec, uint64_t needed, const void* data, uint64_t bytes);

class Source {
 public:
  // The `bytes` of the tensor at `data`. For f16 the exponent of the encoding may be
  // kernels::kFitExponent: then it is fitted to the tensor. `owner` keeps `data` as long as the
  // library reads it; null: the trainer does.
  Source(TensorHandle tensor, const void* data, uint64_t bytes, wire::Encoding encoding = {},
         std::shared_ptr<const void> owner = nullptr);

  // A copy at a place on a device, with what was computed there.
  struct Measured {
    DevicePlace place;
    wire::Encoding encoding;
    std::vector<kernels::Digest> contents;  // Those of its chunks, as they travel.
    std::optional<double> squared_norm;     // Before it was narrowed. Absent: integers have none.
  };
  Source(TensorHandle tensor, uint64_t bytes, Measured measured);

  // The data are in the encoding already, and this was the squared norm before. A growing source
  // may be given its norm again, until all of it is there.
  void SetNarrowed(double squared_norm);
  // Only the first bytes are there: whole chunks, or all. REQUIRES: more than before, once it was
  // pushed; all of them if the library casts the tensor.
  void SetThere(uint64_t bytes) { there_ = bytes; }

  TensorHandle tensor() const { return tensor_; }
  const void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  const wire::Encoding& encoding() const { return contribution_.encoding; }

  // ---- for the worker
  // INVALID_ARGUMENT if this cannot be the content of the tensor.
  absl::Status Check(const TensorInfo& info) const;
  bool opened() const { return info_ != nullptr; }
  bool on_host() const { return !contribution_.on_device.has_value(); }
  // Before it is read. `number`: not 0, and of no other source. `place`: where it lies already, or
  // is to be copied. REQUIRES: Check has passed.
  void Open(uint64_t number, std::shared_ptr<const TensorInfo> info,
            std::optional<ArenaPlace> place);

  // Reads the next `most` bytes of what is there, or a chunk if that is more, and returns how many
  // it has read. All of the tensor if it is copied to memory that nothing may read before. `hash`:
  // between blocks.
  uint64_t Advance(uint64_t most, kernels::ContentDigest& hash);
  // All that is there was read.
  bool idle() const { return at_ == there_; }
  bool done() const { return at_ == bytes_; }
  uint64_t bytes_read() const { return at_; }

  // What can be sent so far. Called once, before TakeGrowth.
  Contribution Begin();
  bool begun() const { return begun_; }
  bool has_grown() const { return !contribution_.digests.empty(); }
  // What has been added since the last call.
  Growth TakeGrowth();

 private:
  bool is_narrow() const { return encoding().wire_dtype != DType::kUnspecified; }
  bool casts() const { return is_narrow() && !narrowed_; }
  uint64_t OnTheWire(uint64_t bytes) const { return is_narrow() ? bytes / 2 : bytes; }
  // The content of the next chunk.
  void Add(const kernels::Digest& content);
  std::optional<double> Norm() const;

  const TensorHandle tensor_;
  const char* const data_;
  const uint64_t bytes_;
  const std::shared_ptr<const void> owner_ = nullptr;
  uint64_t there_;
  bool narrowed_ = false;
  std::optional<double> norm_;             // If it is known without reading.
  std::vector<kernels::Digest> contents_;  // Likewise.

  std::shared_ptr<const TensorInfo> info_;
  uint64_t number_ = 0;
  char* copy_ = nullptr;  // Null: `data` are sent.
  uint64_t at_ = 0;       // Bytes of the tensor that were read, or of what it was.
  uint64_t chunk_ = 0;    // The next one.
  std::vector<double> leaves_;
  bool begun_ = false;
  // With the digests that were not taken yet.
  Contribution contribution_;
};

// Reads what is there of the sources, and passes it on frame by frame, so that the first frames are
// sent while the rest is read. The first call of `pass` begins all of the sources, because the loop
// refuses all or none. Ends with the first error of `pass`, which it returns.
// REQUIRES: the sources were opened.
absl::Status Read(absl::Span<Source> sources,
                  const std::function<absl::Status(PushedParts parts)>& pass);

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_SOURCE_H_
