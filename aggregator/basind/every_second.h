// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls a function once a second, on a thread of its own, to see whether something has changed.
//
// Thread contract: constructor and destructor on one thread; the destructor waits for the call in
// progress.

#ifndef BASIN_AGGREGATOR_BASIND_EVERY_SECOND_H_
#define BASIN_AGGREGATOR_BASIND_EVERY_SECOND_H_

#include <pthread.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/mutex.h"

namespace basin::aggregator {

class EverySecond {
 public:
  // The name of the thread has at most 15 letters.
  EverySecond(const char* name, std::function<void()> act) : act_(std::move(act)) {
    thread_ = std::thread([this, name] {
      pthread_setname_np(pthread_self(), name);
      while (Wait()) act_();
    });
  }
  ~EverySecond() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }
  EverySecond(const EverySecond&) = delete;
  EverySecond& operator=(const EverySecond&) = delete;

 private:
  bool Wait() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    MutexLock lock(mutex_);
    while (!stopping_ && std::chrono::steady_clock::now() < until) {
      changed_.WaitUntil(mutex_, until);
    }
    return !stopping_;
  }

  const std::function<void()> act_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_EVERY_SECOND_H_
