// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/releases.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <utility>

namespace basin::accelerator {

using SteadyTime = std::chrono::steady_clock::time_point;

struct Releases::Queue {
  explicit Queue(std::shared_ptr<std::atomic<bool>> the_hangs) : hangs(std::move(the_hangs)) {}

  void Run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ended || !waiting.empty(); });
      if (waiting.empty()) break;
      std::function<void()> release = std::move(waiting.front());
      waiting.pop_front();
      runs = true;
      since = std::chrono::steady_clock::now();
      lock.unlock();
      release();
      release = nullptr;
      lock.lock();
      runs = false;
    }
    over = true;
    changed.notify_all();
  }

  const std::shared_ptr<std::atomic<bool>> hangs;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::deque<std::function<void()>> waiting;
  bool runs = false;  // A release has not returned,
  SteadyTime since;   // which began then.
  bool ended = false;
  bool over = false;
};

Releases::Releases(std::shared_ptr<std::atomic<bool>> hangs, std::chrono::milliseconds patience)
    : patience_(patience), queue_(std::make_shared<Queue>(std::move(hangs))) {}

Releases::~Releases() {
  if (!thread_.joinable()) return;
  bool over = false;
  {
    std::unique_lock<std::mutex> lock(queue_->mutex);
    queue_->ended = true;
    queue_->changed.notify_all();
    over = queue_->changed.wait_for(lock, patience_, [this] { return queue_->over; });
  }
  if (over) {
    thread_.join();
  } else {
    *queue_->hangs = true;
    thread_.detach();
  }
}

void Releases::Add(std::function<void()> release) {
  {
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    const auto now = std::chrono::steady_clock::now();
    if (queue_->runs && now - queue_->since > patience_) *queue_->hangs = true;
    queue_->waiting.push_back(std::move(release));
    queue_->changed.notify_all();
  }
  const std::lock_guard<std::mutex> lock(start_mutex_);
  if (thread_.joinable()) return;
  // Signals belong to the program, and a thread inherits what its creator blocks.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([queue = queue_] {
    pthread_setname_np(pthread_self(), "basin-release");
    queue->Run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace basin::accelerator
