// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A mirror (segments.h) of this process with its readers: the sessions that have got references to
// it, and may still read it.
//
// Ownership: shared. The memory outlives it in the processes that have mapped it. Thread contract:
// safe from any thread. Failure: a reader that does not release its references, as one that was
// killed while its device reads, keeps the mirror for good; the owner then takes another.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_
#define BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/mutex.h"
#include "runtime/shared_memory/segments.h"

namespace basin {

class Mirror {
 public:
  explicit Mirror(std::shared_ptr<DeviceSegment> segment) : segment_(std::move(segment)) {}

  const DeviceSegment& segment() const { return *segment_; }

  // Its number for one more frame to a session; 0: the session has not mapped it.
  uint64_t ReferTo(const std::shared_ptr<Segments>& session) {
    session->Offer(segment_);
    MutexLock lock(mutex_);
    const uint64_t number = session->ReferTo(*segment_);
    if (number == 0) return 0;
    const bool known = std::any_of(readers_.begin(), readers_.end(),
                                   [&](const auto& reader) { return reader.lock() == session; });
    if (!known) readers_.push_back(session);
    return number;
  }

  // Whether nobody reads it, so that it may be written. REQUIRES: no reference is made meanwhile.
  bool IsFree() {
    MutexLock lock(mutex_);
    for (const std::weak_ptr<Segments>& reader : readers_) {
      const std::shared_ptr<Segments> session = reader.lock();
      if (session == nullptr || !session->Released(*segment_)) return false;
    }
    readers_.clear();
    return true;
  }

 private:
  const std::shared_ptr<DeviceSegment> segment_;
  Mutex mutex_;
  std::vector<std::weak_ptr<Segments>> readers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_
