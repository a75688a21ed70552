// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The thread of a worker, which owns the runner; all other threads post functions to it.
//
// A small round is mostly wake-ups. So while the loop has nothing to do, a thread that can afford
// it takes the loop's turn itself (PostNow, Call): the function runs at once, and no thread is
// woken. One thread has the turn at any time. The loop's own thread does what must not be done in a
// callback of the network, which is what becomes due at a deadline.
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
  // Returns when the thread has ended, and nothing runs. Idempotent. REQUIRES: not InLoop().
  void Stop();

  // Neither blocks. The results outlive the loop.
  std::function<void(Task)> poster() const;
  // The same, but the caller may take the loop's turn. REQUIRES: it holds no lock.
  std::function<void(Task)> now_poster() const;

  // For trainer threads: waits while more tasks wait than a model has tensors, so that a trainer
  // that is faster than the loop cannot fill the memory. Returns false when the loop has ended.
  bool PostWithRoom(Task task);
  // The same for a task whose outcome the trainer waits for, so it may take the loop's turn for
  // this task, and for no other.
  bool Call(Task task);

  // Whether the calling thread has the turn: it runs a task, or a callback of one.
  bool InLoop() const;
  // Whether it has the turn for its own Call.
  bool InCall() const;

 private:
  // Shared with the listeners of channels, which may outlive the loop.
  struct Inbox {
    explicit Inbox(Clock& of) : clock(of) {}

    // Returns false, and drops the task, when the loop does not run.
    bool Post(Task task, bool wait_for_room);
    // Takes the turn for the task, if the loop is idle, and posts it otherwise. `others`: also runs
    // what is posted meanwhile, such as the last step of a round.
    bool RunOrPost(Task task, bool others, bool wait_for_room);
    // Takes all tasks; whoever waits for room is woken.
    void TakeTasks(std::vector<Task>& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

    Clock& clock;  // Used only while the loop runs.
    Mutex mutex;
    Condition changed;
    std::vector<Task> tasks ABSL_GUARDED_BY(mutex);
    size_t waiting_for_room ABSL_GUARDED_BY(mutex) = 0;  // Threads.
    bool running ABSL_GUARDED_BY(mutex) = false;
    std::thread::id turn ABSL_GUARDED_BY(mutex);  // The thread that has it; none: the loop is idle.
    bool call ABSL_GUARDED_BY(mutex) = false;     // It has the turn for a Call.
    // When the loop's thread wakes up by itself; past while it waits for the turn or does not wait.
    absl::Time wakes ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
    Runner* runner ABSL_GUARDED_BY(mutex) = nullptr;  // Used by the thread that has the turn.
  };

  static void Run(Inbox& inbox, Runner& runner);

  const std::shared_ptr<Inbox> inbox_;
  std::thread thread_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_LOOP_H_
