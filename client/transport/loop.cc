// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/loop.h"

#include <pthread.h>

#include <optional>
#include <utility>

#include "protocol/limits/limits.h"
#include "runtime/signals_blocked.h"

namespace basin::client {

namespace {

// How often a thread that holds the loop looks for more: often enough for the end of a round.
constexpr int kPasses = 4;

}  // namespace

Loop::Loop(Clock& clock) : shared_(std::make_shared<Shared>(clock)) {}

Loop::~Loop() { Stop(); }

void Loop::Start(Runner& runner) {
  shared_->runner = &runner;
  shared_->events.Start();
  const SignalsBlocked blocked;
  thread_ = std::thread([shared = shared_] {
    pthread_setname_np(pthread_self(), "basin-client");
    shared->Run();
  });
}

void Loop::Stop() { shared_->events.Stop(thread_); }

void Loop::Shared::RunAll(std::vector<Task>& tasks) {
  for (Task& task : tasks) task(*runner, clock.Now());
  tasks.clear();  // Releases what the tasks hold, while it holds the loop.
}

bool Loop::Shared::RunOrPost(Task task, bool alone, size_t most) {
  switch (events.PostOrHold(task, alone, most)) {
    case EventLoop<Task>::Posting::kStopped:
      return false;
    case EventLoop<Task>::Posting::kPosted:
      return true;
    case EventLoop<Task>::Posting::kHeld:
      break;
  }
  std::optional<SignalsBlocked> blocked;
  if (alone) blocked.emplace();  // gRPC may start a thread in a trainer's call.
  std::vector<Task> tasks;
  tasks.push_back(std::move(task));
  for (int pass = 1;; ++pass) {
    RunAll(tasks);
    runner->Flush();
    if (!alone && pass < kPasses) events.Take(tasks);
    if (tasks.empty()) break;
  }
  events.LetGo(false, runner->NextDeadline());
  return true;
}

std::function<void(Task)> Loop::poster() const {
  return [shared = shared_](Task task) { shared->events.Post(std::move(task)); };
}

std::function<void(Task)> Loop::now_poster() const {
  return [shared = shared_](Task task) {
    shared->RunOrPost(std::move(task), false, EventLoop<Task>::kNoLimit);
  };
}

bool Loop::PostWithRoom(Task task) { return shared_->events.Post(std::move(task), kMaxTensors); }

bool Loop::Call(Task task) { return shared_->RunOrPost(std::move(task), true, kMaxTensors); }

bool Loop::InLoop() const { return shared_->events.Holds(); }

bool Loop::InCall() const { return shared_->events.HoldsAlone(); }

void Loop::Shared::Run() {
  std::vector<Task> tasks;
  while (events.AwaitWork([this] { return runner->NextDeadline(); }, tasks)) {
    // Waiting events come before deadlines.
    RunAll(tasks);
    const absl::Time now = clock.Now();
    if (runner->NextDeadline() <= now) runner->Tick(now);
    runner->Flush();
    events.LetGo(false, runner->NextDeadline());
  }
}

}  // namespace basin::client
