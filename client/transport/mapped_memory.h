// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The memory that a worker shares with an aggregator on the same machine, which maps it: what a
// trainer has allocated for its gradients, and the places for copies of other contributions.
//
// Ownership: that of arena.h and registered.h. Thread contract: safe from any thread. Failure:
// without an aggregator that maps the memory there are no places, and contributions are sent from
// the trainer's memory.

#ifndef BASIN_CLIENT_TRANSPORT_MAPPED_MEMORY_H_
#define BASIN_CLIENT_TRANSPORT_MAPPED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/arena.h"
#include "client/transport/channel.h"
#include "client/transport/registered.h"
#include "client/transport/source.h"
#include "runtime/mutex.h"

namespace basin::client {

class MappedMemory {
 public:
  // REQUIRES: the connector outlives it.
  explicit MappedMemory(Connector& connector) : connector_(connector) {}

  // For tensors that an aggregator on this machine reads where they lie; see registered.h. Valid
  // until Free, or until the worker is destroyed. Failure: kResourceExhausted; kInvalidArgument for
  // memory that is not of this kind.
  absl::StatusOr<void*> Allocate(uint64_t bytes) { return registered_.Allocate(bytes); }
  absl::Status Free(const void* memory) { return registered_.Free(memory); }

  // Where the source lies, or else, if it `may_copy`, where it is to be copied. REQUIRES: its data
  // are on the host.
  std::optional<ArenaPlace> PlaceOf(LaneHandle lane, const Source& source, const TensorInfo& info,
                                    bool may_copy);
  // The place for a tensor's contribution in memory of its device; nothing if there is none, and
  // the tensor is pushed from the host. `make` makes such memory of the device with this index:
  // that of the first call is kept, and called as long as places are taken. The place is written
  // before it is pushed, in the round that has begun.
  std::optional<DevicePlace> TakeOnDevice(LaneHandle lane, TensorHandle tensor,
                                          const TensorInfo& info, int device,
                                          const DeviceArena::Make& make);

  // ---- what its arenas must know; see arena.h
  void Add(LaneHandle lane, TensorHandle tensor, const TensorInfo& info);
  void Remove(LaneHandle lane);
  bool TryBeginRound(LaneHandle lane) { return host_.TryBegin(lane); }
  void BeginRound(LaneHandle lane);
  void EndRound(LaneHandle lane, bool verdict);

 private:
  Connector& connector_;
  Registered registered_;
  Arena host_{MakeSegment};
  Mutex mutex_;
  std::map<int, std::unique_ptr<DeviceArena>> devices_ ABSL_GUARDED_BY(mutex_);  // By index.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_MAPPED_MEMORY_H_
