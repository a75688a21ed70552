// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Threads that reduce. A chunk belongs to one thread, chosen by a hash of its position, so that no
// lock stands around an accumulator and a job's chunks spread over all threads. Jobs that wait for
// a thread share it equally, by the bytes that they reduce (fair_queue.h): the tasks of a job with
// many of them delay another job's by one.
//
// Thread contract: Submit from any thread; tasks of one key and job run in order, on one thread.
// Failure: none; a task that is submitted runs, the destructor included.

#ifndef BASIN_AGGREGATOR_ENGINE_THREAD_POOL_H_
#define BASIN_AGGREGATOR_ENGINE_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aggregator/engine/fair_queue.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class ThreadPool {
 public:
  // Threads are named "<name>-<number>". REQUIRES: count > 0; name has at most 12 bytes.
  ThreadPool(const std::string& name, uint32_t count);
  // Runs what was submitted, then ends the threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // For a thread that serves no jobs: tasks run in the order in which they come.
  void Submit(uint64_t key, std::function<void()> task) { Submit(key, 0, 0, std::move(task)); }
  // `bytes`: how much the task reads, by which it is charged to its job.
  void Submit(uint64_t key, uint64_t job, uint64_t bytes, std::function<void()> task);

  // The thread of a key, from 0.
  uint32_t ThreadOf(uint64_t key) const;

  uint32_t count() const { return static_cast<uint32_t>(threads_.size()); }

 private:
  struct Task {
    uint64_t job = 0;
    uint64_t bytes = 0;
    std::function<void()> run;
  };
  // One thread and what it is to do.
  struct Thread {
    Mutex mutex;
    Condition wake;
    FairQueue<Task> tasks ABSL_GUARDED_BY(mutex);
    bool stop ABSL_GUARDED_BY(mutex) = false;
    std::thread thread;
  };
  static void Work(Thread& thread);

  std::vector<std::unique_ptr<Thread>> threads_;
};

// Names the calling thread for debuggers and profilers. At most 15 bytes count.
void NameThread(const std::string& name);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_THREAD_POOL_H_
