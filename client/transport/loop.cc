// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/loop.h"

#include <pthread.h>

#include <optional>
#include <utility>

#include "protocol/limits/limits.h"
#include "runtime/signals_blocked.h"

namespace basin::client {

namespace {

// How often a thread that has taken the turn looks for more: often enough for the end of a round.
constexpr int kPasses = 4;

}  // namespace

Loop::Loop(Clock& clock) : inbox_(std::make_shared<Inbox>(clock)) {}

Loop::~Loop() { Stop(); }

void Loop::Start(Runner& runner) {
  {
    MutexLock lock(inbox_->mutex);
    inbox_->running = true;
    inbox_->runner = &runner;
  }
  const SignalsBlocked blocked;
  thread_ = std::thread([inbox = inbox_, &runner] {
    pthread_setname_np(pthread_self(), "basin-client");
    Run(*inbox, runner);
  });
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
  while (inbox_->turn != std::thread::id()) inbox_->changed.Wait(inbox_->mutex);
  dropped.swap(inbox_->tasks);
}

bool Loop::Inbox::Post(Task task, bool wait_for_room) {
  bool idle;
  {
    MutexLock lock(mutex);
    ++waiting_for_room;
    while (wait_for_room && running && tasks.size() >= kMaxTensors) changed.Wait(mutex);
    --waiting_for_room;
    if (!running) return false;
    // The thread that has the turn looks again before it ends it.
    idle = tasks.empty() && turn == std::thread::id();
    tasks.push_back(std::move(task));
  }
  // Notifies outside of the lock, because the loop would otherwise wake up only to wait for it.
  if (idle) changed.NotifyAll();
  return true;
}

void Loop::Inbox::TakeTasks(std::vector<Task>& batch) {
  batch.swap(tasks);
  if (waiting_for_room > 0) changed.NotifyAll();
}

bool Loop::Inbox::RunOrPost(Task task, bool others, bool wait_for_room) {
  Runner* taken = nullptr;
  {
    MutexLock lock(mutex);
    if (!running) return false;
    if (turn == std::thread::id() && tasks.empty()) {
      turn = std::this_thread::get_id();
      call = !others;
      taken = runner;
    }
  }
  if (taken == nullptr) return Post(std::move(task), wait_for_room);
  std::optional<SignalsBlocked> blocked;
  if (!others) blocked.emplace();  // gRPC may start a thread in a trainer's call.
  std::vector<Task> batch;
  batch.push_back(std::move(task));
  for (int pass = 1;; ++pass) {
    for (Task& one : batch) one(*taken, clock.Now());
    batch.clear();  // Releases what the tasks hold, still in this turn.
    taken->Flush();
    MutexLock lock(mutex);
    if (others && pass < kPasses && running) TakeTasks(batch);
    if (!batch.empty()) continue;
    turn = std::thread::id();
    call = false;
    // Wakes the loop's thread if there is something for it to do.
    const bool wake = !running || !tasks.empty() || wakes == absl::InfinitePast() ||
                      taken->NextDeadline() < wakes;
    if (wake) changed.NotifyAll();
    return true;
  }
}

std::function<void(Task)> Loop::poster() const {
  return [inbox = inbox_](Task task) { inbox->Post(std::move(task), false); };
}

std::function<void(Task)> Loop::now_poster() const {
  return [inbox = inbox_](Task task) { inbox->RunOrPost(std::move(task), true, false); };
}

bool Loop::PostWithRoom(Task task) { return inbox_->Post(std::move(task), true); }

bool Loop::Call(Task task) { return inbox_->RunOrPost(std::move(task), false, true); }

bool Loop::InLoop() const {
  MutexLock lock(inbox_->mutex);
  return inbox_->turn == std::this_thread::get_id();
}

bool Loop::InCall() const {
  MutexLock lock(inbox_->mutex);
  return inbox_->call && inbox_->turn == std::this_thread::get_id();
}

void Loop::Run(Inbox& inbox, Runner& runner) {
  std::vector<Task> batch;
  while (true) {
    {
      MutexLock lock(inbox.mutex);
      while (inbox.running) {
        if (inbox.turn != std::thread::id()) {
          inbox.wakes = absl::InfinitePast();
          inbox.changed.Wait(inbox.mutex);
          continue;
        }
        inbox.wakes = runner.NextDeadline();
        if (!inbox.tasks.empty() || inbox.clock.Now() >= inbox.wakes) break;
        inbox.clock.Wait(inbox.changed, inbox.mutex, inbox.wakes);
      }
      if (!inbox.running) return;
      inbox.turn = std::this_thread::get_id();
      inbox.TakeTasks(batch);
    }
    // Waiting events come before deadlines.
    for (Task& task : batch) task(runner, inbox.clock.Now());
    batch.clear();
    const absl::Time now = inbox.clock.Now();
    if (runner.NextDeadline() <= now) runner.Tick(now);
    runner.Flush();
    MutexLock lock(inbox.mutex);
    inbox.turn = std::thread::id();
    if (!inbox.running) inbox.changed.NotifyAll();
  }
}

}  // namespace basin::client
