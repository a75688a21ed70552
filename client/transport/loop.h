// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The thread of a worker, which owns the runner; all other threads post functions to it.
//
// While the loop has nothing to do, the posting thread may hold it (runtime/event_loop.h).
// The loop's own thread does what must not be done in a callback of the network, which is what
// becomes due at a deadline.
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
#include "runtime/event_loop.h"

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
  // Returns when the thread has ended, and nothing runs. Idempotent. REQUIRES: not InLoop().
  void Stop();

  // Neither blocks. The results outlive the loop.
  std::function<void(Task)> poster() const;
  // The same, but the caller may hold the loop. REQUIRES: it holds no lock.
  std::function<void(Task)> now_poster() const;

  // For trainer threads: waits while more tasks wait than a model has tensors, so that a trainer
  // that is faster than the loop cannot fill the memory. Returns false when the loop has ended.
  bool PostWithRoom(Task task);
  // The same for a task whose outcome the trainer waits for, so it may hold the loop for
  // this task, and for no other.
  bool Call(Task task);

  // Whether the calling thread holds the loop: it runs a task, or a callback of one.
  bool InLoop() const;
  // Whether it does for its own Call.
  bool InCall() const;

 private:
  // Shared with the listeners of channels, which may outlive the loop.
  struct Shared {
    explicit Shared(Clock& of) : clock(of), events(of) {}

    // Holds the loop for the task, if it is idle, and posts the task otherwise. `alone`: does not
    // run what is posted meanwhile, such as the last step of a round. Returns false, and drops the
    // task, when the loop does not run.
    bool RunOrPost(Task task, bool alone, size_t most);
    void Run();  // The loop's thread.
    // Runs them. REQUIRES: this thread holds the loop.
    void RunAll(std::vector<Task>& tasks);

    Clock& clock;  // Used only while the loop runs.
    EventLoop<Task> events;
    Runner* runner = nullptr;  // Constant after Start; used by the thread that holds the loop.
  };

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_LOOP_H_
