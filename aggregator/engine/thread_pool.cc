// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/thread_pool.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// The bytes of a task that cost its job a share. Tasks of fewer bytes are not sent to a thread
// (Engine).
constexpr uint64_t kShareBytes = uint64_t{64} << 10;

// SplitMix64's finaliser: neighbouring chunks go to different threads.
uint64_t Mix(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

}  // namespace

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

ThreadPool::ThreadPool(const std::string& name, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    auto thread = std::make_unique<Thread>();
    thread->thread = std::thread([thread = thread.get(), title = absl::StrCat(name, "-", i)] {
      NameThread(title);
      Work(*thread);
    });
    threads_.push_back(std::move(thread));
  }
}

ThreadPool::~ThreadPool() {
  for (const auto& thread : threads_) {
    MutexLock lock(thread->mutex);
    thread->stop = true;
    thread->wake.NotifyAll();
  }
  for (const auto& thread : threads_) thread->thread.join();
}

uint32_t ThreadPool::ThreadOf(uint64_t key) const {
  return static_cast<uint32_t>(Mix(key) % threads_.size());
}

void ThreadPool::Submit(uint64_t key, uint64_t job, uint64_t bytes, std::function<void()> task) {
  Thread& thread = *threads_[ThreadOf(key)];
  {
    MutexLock lock(thread.mutex);
    thread.tasks.Add(job, {job, bytes, std::move(task)});
  }
  thread.wake.NotifyAll();
}

void ThreadPool::Work(Thread& thread) {
  while (true) {
    Task task;
    {
      MutexLock lock(thread.mutex);
      while (thread.tasks.empty() && !thread.stop) thread.wake.Wait(thread.mutex);
      if (thread.tasks.empty()) return;
      task = thread.tasks.Next();
      thread.tasks.Charge(task.job, task.bytes / kShareBytes);
    }
    task.run();
  }
}

}  // namespace basin::aggregator
