// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A mirror (segments.h) of this process with its readers: the sessions that were referred to it,
// and may still read it.
//
// Ownership: shared. The memory outlives it in the processes that have mapped it. Thread contract:
// one thread, but for segment(). Failure: a reader that does not release what it read, such as a
// process whose device hangs, keeps the mirror from being written until its session ends; then the
// mirror is lost, because what is left of the process may still read it.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_
#define BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/shared_memory/segments.h"

namespace basin {

class Mirror {
 public:
  enum class State {
    kFree,  // Nobody reads it, so that it may be written.
    kRead,
    kLost,  // It must never be written again.
  };

  explicit Mirror(std::shared_ptr<DeviceSegment> segment) : segment_(std::move(segment)) {}

  const DeviceSegment& segment() const { return *segment_; }

  // The number for a frame that refers this session to the mirror's version; 0: it has not mapped
  // it. REQUIRES: no later version was referred to.
  uint64_t ReferTo(const std::shared_ptr<Segments>& session, uint64_t version) {
    session->Offer(segment_);
    const uint64_t number = session->NumberOf(segment_);
    if (number == 0) return 0;
    const auto known = std::find_if(readers_.begin(), readers_.end(), [&](const Reader& reader) {
      return reader.session.lock() == session;
    });
    if (known == readers_.end()) {
      readers_.push_back({session, number, version});
    } else {
      known->version = version;
    }
    return number;
  }

  // Asks the readers to release all versions so far. Says how far they are; to be called again.
  State Reclaim() {
    State state = State::kFree;
    for (auto reader = readers_.begin(); reader != readers_.end();) {
      const std::shared_ptr<Segments> session = reader->session.lock();
      if (session != nullptr && session->Released(reader->number) >= reader->version) {
        reader = readers_.erase(reader);
        continue;
      }
      if (session == nullptr || session->closed()) return State::kLost;
      session->Reclaim(reader->number, reader->version);
      state = State::kRead;
      ++reader;
    }
    return state;
  }

 private:
  struct Reader {
    std::weak_ptr<Segments> session;
    uint64_t number = 0;   // The mirror's, in the session.
    uint64_t version = 0;  // The last one that it was referred to.
  };

  const std::shared_ptr<DeviceSegment> segment_;
  std::vector<Reader> readers_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_MIRROR_H_
