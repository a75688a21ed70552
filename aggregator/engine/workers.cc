// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/workers.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

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

WorkerThreads::WorkerThreads(const std::string& name, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->thread = std::thread([lane = lane.get(), title = absl::StrCat(name, "-", i)] {
      NameThread(title);
      Work(*lane);
    });
    lanes_.push_back(std::move(lane));
  }
}

WorkerThreads::~WorkerThreads() {
  for (const auto& lane : lanes_) {
    MutexLock lock(lane->mutex);
    lane->stop = true;
    lane->wake.NotifyAll();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

uint32_t WorkerThreads::ThreadOf(uint64_t key) const {
  return static_cast<uint32_t>(Mix(key) % lanes_.size());
}

void WorkerThreads::Submit(uint64_t key, std::function<void()> task) {
  Lane& lane = *lanes_[ThreadOf(key)];
  {
    MutexLock lock(lane.mutex);
    lane.tasks.push_back(std::move(task));
  }
  lane.wake.NotifyAll();
}

void WorkerThreads::Work(Lane& lane) {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(lane.mutex);
      while (lane.tasks.empty() && !lane.stop) lane.wake.Wait(lane.mutex);
      if (lane.tasks.empty()) return;
      task = std::move(lane.tasks.front());
      lane.tasks.pop_front();
    }
    task();
  }
}

}  // namespace basin::aggregator
