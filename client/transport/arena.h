// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Places for the contributions of a worker in memory that it shares with an aggregator on the same
// machine: memory of the host, or of a device. Each tensor has one fixed place, which it gets with
// its first contribution. When half of a segment has not been used for kArenaExpiry rounds, it is
// freed, and the tensors that are still used get places in a smaller one.
//
// A place is written once per round, before the contribution is given to the loop, and not before
// the verdict of the round before has come: until then the aggregator may read it. After a round
// whose verdict is not known the lane gets another segment.
//
// Thread contract: safe from any thread. Failure: without memory there are no places, and the
// contributions are sent from the trainer's memory.

#ifndef BASIN_CLIENT_TRANSPORT_ARENA_H_
#define BASIN_CLIENT_TRANSPORT_ARENA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/core/event.h"
#include "runtime/mutex.h"
#include "runtime/shared_memory/segment.h"

namespace basin::client {

// So many rounds of the lane without a contribution, and the tensor's memory is not kept. That is
// long beside what a smaller segment costs: the time to write its bytes once.
inline constexpr uint64_t kArenaExpiry = 64;

// Where a contribution lies in shared memory.
struct ArenaPlace {
  std::shared_ptr<Segment> segment;
  uint64_t offset = 0;
  char* at() const { return segment->writable() + offset; }
};

// `Place`: ArenaPlace, or DevicePlace.
template <typename Place>
class BasicArena {
 public:
  using Memory = typename decltype(Place::segment)::element_type;
  // Null: there is no memory.
  using Make = std::function<std::shared_ptr<Memory>(uint64_t bytes)>;

  explicit BasicArena(Make make);

  // ---- rounds. A lane is free until a round begins, and again when its outcome is delivered.
  // For a round that is about to begin; false if the lane is not free.
  bool TryBegin(LaneHandle lane);
  // A round has begun.
  void Begin(LaneHandle lane);
  // The lane is not used any more.
  void Remove(LaneHandle lane);
  // Its outcome was delivered, or the round that was about to begin was refused. Without a verdict
  // the aggregator may still read the places: the lane gets others.
  void Free(LaneHandle lane, bool verdict);

  // ---- places
  // A tensor was registered; `alignment` is the size of its elements. It has no place in a round
  // that has begun, so that all tensors that are new then get theirs together.
  void Add(LaneHandle lane, TensorHandle tensor, uint64_t bytes, uint64_t alignment);
  // That of the tensor in the lane's round. Nothing if no round has begun, the tensor has got it
  // already in this round, or there is no memory.
  std::optional<Place> Take(LaneHandle lane, TensorHandle tensor);
  // The aggregator does not map this memory. It is freed, and no other is made for some rounds.
  void Refuse(const std::shared_ptr<Memory>& segment);

 private:
  struct Tensor {
    uint64_t bytes = 0;
    uint64_t alignment = 1;
    Place place;          // No segment: it has none yet.
    uint64_t taken = 0;   // The round in which it was taken last.
    uint64_t wanted = 0;  // The round in which it was added, or a contribution wanted its place.
  };
  struct Lane {
    std::vector<Tensor> tensors;
    uint64_t shared_bytes = 0;  // The size of the lane's segments.
    uint64_t round = 0;         // Counts those that began.
    bool free = true;
    bool extending = false;  // A thread makes a segment for it.
    uint64_t extended = 0;   // The round in which it got its last segment.
    // That a round without a verdict has used: kept while frames may refer to them.
    std::vector<std::shared_ptr<Memory>> retained;
  };
  // The tensor, if a contribution to the lane's round may take its place; null otherwise.
  Tensor* FindFree(LaneHandle lane, TensorHandle tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsUnused(const Lane& lane, const Tensor& tensor) {
    return tensor.wanted + kArenaExpiry <= lane.round;
  }
  // Frees the segments of which less than half is used.
  static void Expire(Lane& lane);
  void Pause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives a place to every tensor in use of the lane that has none. Does not hold the mutex while
  // the system provides the memory, which takes a millisecond for every few megabytes.
  void Extend(LaneHandle lane);

  const Make make_;
  mutable Mutex mutex_;
  std::map<LaneHandle, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  // After a failure: so many rounds begin before memory is made again.
  uint32_t pause_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t next_pause_ ABSL_GUARDED_BY(mutex_);
};

// Memory of the host.
std::shared_ptr<Segment> MakeSegment(uint64_t bytes);

using Arena = BasicArena<ArenaPlace>;
using DeviceArena = BasicArena<DevicePlace>;

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_ARENA_H_
