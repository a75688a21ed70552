// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The thread of a worker. It owns the runner; all other threads post functions to it.
//
// Thread contract: Start and Stop from one thread; the rest from any, at any time. Functions that
// are posted before Start, or after Stop, are dropped. The thread blocks signals, which belong to
// the trainer. Failure: none of its own.

#ifndef BASIN_CLIENT_TRANSPORT_LOOP_H_
#define BASIN_CLIENT_TRANSPORT_LOOP_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "client/transport/runner.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::client {

class Loop {
 public:
  // REQUIRES: the clock outlives the loop.
  explicit Loop(Clock& clock);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // REQUIRES: the runner outlives the loop, or Stop.
  void Start(Runner& runner);
  // Returns when the thread has ended. Idempotent.
  void Stop();

  // Never blocks. The result outlives the loop.
  std::function<void(Task)> poster() const;

  // For trainer threads: waits while more tasks wait than a model has tensors, so that a trainer
  // that is faster than the loop cannot fill the memory. Returns false when the loop has ended.
  bool PostWithRoom(Task task);

  bool InLoop() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  // Shared with the listeners of channels, which may outlive the loop.
  struct Inbox {
    // Returns false, and drops the task, when the loop does not run.
    bool Post(Task task, bool wait_for_room);

    Mutex mutex;
    Condition changed;
    std::vector<Task> tasks ABSL_GUARDED_BY(mutex);
    bool running ABSL_GUARDED_BY(mutex) = false;
  };

  void Run(Runner& runner);

  Clock& clock_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::thread thread_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_LOOP_H_
