// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Keeps the library from reading announced values while the trainer changes them, which is during
// an optimizer step and at no other time.
//
// Thread contract: Close and Open from the trainer's thread, by turns; the rest from the loop.
// Close waits for a read in progress, of one frame at most.

#ifndef BASIN_CLIENT_TRANSPORT_GATE_H_
#define BASIN_CLIENT_TRANSPORT_GATE_H_

#include <utility>

#include "runtime/mutex.h"

namespace basin::client {

class Gate {
 public:
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  void Open() {
    MutexLock lock(mutex_);
    closed_ = false;
  }

  // Calls `read` if the gate is open; returns whether it was.
  template <typename F>
  bool Read(F&& read) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    std::forward<F>(read)();
    return true;
  }

 private:
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GATE_H_
