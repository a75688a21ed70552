// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What is known of a communicator: by its threads, by those that wait for its work, and by the
// device, whose callbacks may come after the communicator has ended.
//
// Thread contract: safe from any thread.

#ifndef BASIN_ACCELERATOR_NODE_NCCL_BOARD_H_
#define BASIN_ACCELERATOR_NODE_NCCL_BOARD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "accelerator/node/nccl/communicator.h"
#include "runtime/mutex.h"

namespace basin::accelerator::nccl {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

struct Communicator::Board {
  explicit Board(std::chrono::milliseconds the_quiet_within) : quiet_within(the_quiet_within) {}

  const SteadyTime started_at = SteadyNow();
  const std::chrono::milliseconds quiet_within;

  Mutex mutex;
  Condition changed;

  absl::Status failure ABSL_GUARDED_BY(mutex);
  SteadyTime failed_at ABSL_GUARDED_BY(mutex);
  bool formed ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool aborted ABSL_GUARDED_BY(mutex) = false;    // After a failure: NCCL's part has been aborted.
  bool quiet ABSL_GUARDED_BY(mutex) = false;      // Nothing runs on the device, and nothing will.
  bool work_over ABSL_GUARDED_BY(mutex) = false;  // The threads have ended.
  bool watch_over ABSL_GUARDED_BY(mutex) = false;

  // The call of NCCL that has not returned.
  const char* calling ABSL_GUARDED_BY(mutex) = nullptr;
  SteadyTime call_until ABSL_GUARDED_BY(mutex);

  // Work is numbered in the order in which it was given: ended <= added <= given.
  uint64_t given ABSL_GUARDED_BY(mutex) = 0;
  uint64_t added ABSL_GUARDED_BY(mutex) = 0;
  uint64_t reached ABSL_GUARDED_BY(mutex) = 0;  // The trainer's own work before it has ended.
  uint64_t ended ABSL_GUARDED_BY(mutex) = 0;
  SteadyTime reached_at ABSL_GUARDED_BY(mutex);  // The first that has not ended.
  SteadyTime ended_at ABSL_GUARDED_BY(mutex);    // The last that has ended.

  void Fail(absl::Status why) ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    FailLocked(std::move(why));
  }
  void FailLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!failure.ok()) return;
    failure = std::move(why);
    failed_at = SteadyNow();
    changed.NotifyAll();
  }

  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return work_over && watch_over; }

  // Waits for a while, or until something has changed.
  void WaitFor(std::chrono::microseconds time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    changed.WaitUntil(mutex, SteadyNow() + time);
  }
  // After a failure: until it is quiet, or the time for that is over.
  void WaitUntilQuiet() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    while (!quiet && SteadyNow() < failed_at + quiet_within) {
      changed.WaitUntil(mutex, failed_at + quiet_within);
    }
  }

  void OnReached() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    if (reached++ == ended) reached_at = SteadyNow();
    changed.NotifyAll();
  }
  void OnEnded() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    if (!failure.ok()) return;  // What was aborted ends as well.
    ++ended;
    ended_at = SteadyNow();
    changed.NotifyAll();
  }
  // Since when the oldest work could have run. Absent: there is none, or it waits for the trainer.
  std::optional<SteadyTime> RunsSince() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (reached <= ended) return std::nullopt;
    return std::max(reached_at, ended_at);
  }
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_ACCELERATOR_NODE_NCCL_BOARD_H_
