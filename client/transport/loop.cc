// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/loop.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "protocol/limits/limits.h"

namespace basin::client {

Loop::Loop(Clock& clock) : clock_(clock) {}

Loop::~Loop() { Stop(); }

void Loop::Start(Runner& runner) {
  {
    MutexLock lock(inbox_->mutex);
    inbox_->running = true;
  }
  // A thread inherits the signal mask of its creator.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, &runner] {
    pthread_setname_np(pthread_self(), "basin-client");
    Run(runner);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Loop::Stop() {
  std::vector<Task> dropped;
  {
    MutexLock lock(inbox_->mutex);
    inbox_->running = false;
    inbox_->changed.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(inbox_->mutex);
  dropped.swap(inbox_->tasks);
}

bool Loop::Inbox::Post(Task task, bool wait_for_room) {
  bool first;
  {
    MutexLock lock(mutex);
    while (wait_for_room && running && tasks.size() >= kMaxTensors) changed.Wait(mutex);
    if (!running) return false;
    first = tasks.empty();
    tasks.push_back(std::move(task));
  }
  // Notifies outside of the lock, because the loop would otherwise wake up only to wait for it.
  if (first) changed.NotifyAll();
  return true;
}

std::function<void(Task)> Loop::poster() const {
  return [inbox = inbox_](Task task) { inbox->Post(std::move(task), false); };
}

bool Loop::PostWithRoom(Task task) { return inbox_->Post(std::move(task), true); }

void Loop::Run(Runner& runner) {
  std::vector<Task> batch;
  while (true) {
    {
      MutexLock lock(inbox_->mutex);
      while (inbox_->running && inbox_->tasks.empty() && clock_.Now() < runner.NextDeadline()) {
        clock_.Wait(inbox_->changed, inbox_->mutex, runner.NextDeadline());
      }
      if (!inbox_->running) return;
      batch.swap(inbox_->tasks);
      if (!batch.empty()) inbox_->changed.NotifyAll();
    }
    // Waiting events come before deadlines.
    for (Task& task : batch) task(runner, clock_.Now());
    batch.clear();
    const absl::Time now = clock_.Now();
    if (runner.NextDeadline() <= now) runner.Tick(now);
  }
}

}  // namespace basin::client
