// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages with large layouts, a Welcome or a LaneLayout, for many receivers. The descriptions of a
// lane's tensors are most of such a message and the same for everyone, so they are encoded and cut
// once, as pieces between those that have the rest; all receivers share their memory. It is free
// when the last one has read them.
//
// Thread contract: one thread at a time; pieces may be released by any. Failure: RESOURCE_EXHAUSTED
// for a message that is larger than a message may be, and while the descriptions that others have
// not read yet leave no room for new ones.

#ifndef BASIN_PROTO_WIRE_LARGE_LAYOUTS_H_
#define BASIN_PROTO_WIRE_LARGE_LAYOUTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/messages.h"

namespace basin::wire {

class LargeLayouts {
 public:
  // A gRPC message, sealed.
  using Piece = std::shared_ptr<const std::string>;

  // Has at most `most_bytes` of descriptions at a time, but room for those of one message.
  explicit LargeLayouts(uint64_t most_bytes) : most_bytes_(most_bytes) {}

  // Whether the message has a layout that is worth it.
  static bool AreIn(const ToWorker& message);

  // The gRPC messages that carry it. REQUIRES: AreIn(message).
  absl::StatusOr<std::vector<Piece>> Encode(const ToWorker& message);

  // The memory of descriptions that somebody has not read yet.
  uint64_t bytes() const { return *held_; }

 private:
  // The encoded entries of a list of tensors, as pieces.
  struct Entries {
    std::vector<std::string> pieces;
    uint64_t encoded = 0;  // Bytes of the message.
    uint64_t memory = 0;
    std::shared_ptr<std::atomic<uint64_t>> held;
    ~Entries();
  };
  struct Known {
    std::weak_ptr<const std::vector<TensorSpec>> tensors;
    std::weak_ptr<const Entries> entries;
  };

  absl::StatusOr<std::shared_ptr<const Entries>> EntriesOf(const SharedList<TensorSpec>& tensors);

  const uint64_t most_bytes_;
  const std::shared_ptr<std::atomic<uint64_t>> held_ = std::make_shared<std::atomic<uint64_t>>(0);
  // By the list and its length: a list that has grown in its place begins with the same entries.
  std::map<std::pair<const void*, size_t>, Known> known_;
};

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_LARGE_LAYOUTS_H_
