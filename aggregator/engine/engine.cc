// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/engine.h"

#include <algorithm>
#include <random>
#include <utility>

namespace basin::aggregator {
namespace {

// From the system's own source: a token must not be guessed.
SessionToken NewToken() {
  std::random_device device;
  SessionToken token = 0;
  while (token == 0) token = uint64_t{device()} << 32 | device();
  return token;
}

uint64_t PlaceOf(const Reduce& reduce) {
  return uint64_t{reduce.lane} << 48 ^ uint64_t { reduce.range.tensor } << 24 ^ reduce.range.first;
}

// What takes less time to reduce than to hand to another thread and back: 64 KiB are 3 us.
constexpr uint64_t kReducedByLoop = uint64_t{64} << 10;

uint64_t InputBytes(const Reduction& reduction) {
  uint64_t bytes = 0;
  for (const std::vector<ChunkInput>& chunk : reduction.inputs) {
    for (const ChunkInput& input : chunk) bytes += input.part.size;
  }
  return bytes;
}

}  // namespace

Engine::Engine(EngineOptions options, Clock& clock, const kernels::Reducer& reducer,
               Observer& observer, StateFile* state_file)
    : options_(std::move(options)),
      clock_(clock),
      reducer_(reducer),
      observer_(observer),
      state_file_(state_file),
      pool_(options_.idle_buffer_bytes) {}

Engine::~Engine() { Stop(); }

void Engine::Start(Transport& transport) {
  reduce_workers_ = std::make_unique<WorkerThreads>("basin-reduce", options_.reduce_threads);
  if (state_file_ != nullptr) state_worker_ = std::make_unique<WorkerThreads>("basin-state", 1);
  runner_ = std::make_unique<Runner>(options_.core, DependenciesFor(transport), clock_.Now());
  {
    MutexLock lock(mutex_);
    running_ = true;
  }
  loop_ = std::thread([this] {
    NameThread("basin-loop");
    Loop(*runner_);
  });
}

void Engine::Stop() {
  {
    MutexLock lock(mutex_);
    running_ = false;
    wake_.NotifyAll();
  }
  if (loop_.joinable()) loop_.join();
  // What they still finish is posted to an inbox that nobody reads.
  reduce_workers_.reset();
  state_worker_.reset();
  MutexLock lock(mutex_);
  inbox_.clear();
}

RunnerDependencies Engine::DependenciesFor(Transport& transport) {
  RunnerDependencies dependencies;
  dependencies.transport = &transport;
  dependencies.observer = &observer_;
  dependencies.new_token = NewToken;
  dependencies.reduce = [this](std::unique_ptr<Reduction> reduction) {
    // A std::function must be copyable.
    const std::shared_ptr<Reduction> shared = std::move(reduction);
    const auto reduce = [this, shared] {
      Run(*shared, reducer_, pool_);
      Post([shared](Runner& runner, absl::Time now) { runner.Reduced(shared, now); });
    };
    if (InputBytes(*shared) <= kReducedByLoop) return reduce();
    reduce_workers_->Submit(PlaceOf(shared->action), reduce);
  };
  dependencies.save = [this](const SaveState& state) {
    state_worker_->Submit(0, [this, state] {
      const bool ok = state_file_->Save(state).ok();
      Post([state, ok](Runner& runner, absl::Time now) {
        runner.Saved({state.job, state.membership.generation, ok}, now);
      });
    });
  };
  dependencies.drained = [this] {
    if (drained_) drained_();
  };
  return dependencies;
}

void Engine::Post(Task task) {
  const absl::Time now = clock_.Now();
  bool first;
  {
    MutexLock lock(mutex_);
    if (!running_) return;
    first = inbox_.empty();
    inbox_.push_back({now, std::move(task)});
  }
  // Outside of the lock, which the loop would only wake up to wait for.
  if (first) wake_.NotifyAll();
}

void Engine::Loop(Runner& runner) {
  std::vector<Entry> batch;
  while (true) {
    {
      MutexLock lock(mutex_);
      taken_since_ = absl::InfiniteFuture();
      while (running_ && inbox_.empty() && clock_.Now() < runner.NextDeadline()) {
        clock_.Wait(wake_, mutex_, runner.NextDeadline());
      }
      if (!running_) return;
      batch.swap(inbox_);
      if (!batch.empty()) taken_since_ = batch.front().posted;
    }
    // What waits is heard before a deadline is judged: after a stall of this process, the worker
    // that seems to be late may have spoken long ago.
    for (Entry& entry : batch) entry.task(runner, clock_.Now());
    batch.clear();
    const absl::Time now = clock_.Now();
    if (runner.NextDeadline() <= now) runner.Tick(now);
  }
}

absl::Duration Engine::InboxDelay() const {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  absl::Time oldest = taken_since_;
  if (!inbox_.empty()) oldest = std::min(oldest, inbox_.front().posted);
  return oldest >= now ? absl::ZeroDuration() : now - oldest;
}

SessionId Engine::OpenSession() {
  const SessionId session = next_connection_.fetch_add(1);
  Post([session](Runner& runner, absl::Time now) { runner.SessionOpened(session, now); });
  return session;
}

void Engine::TakeMessage(SessionId session, ToAggregator message, uint64_t bytes) {
  Post([session, message = std::move(message), bytes](Runner& runner, absl::Time now) mutable {
    runner.MessageReceived(session, std::move(message), bytes, now);
  });
}

void Engine::CloseSession(SessionId session) {
  Post([session](Runner& runner, absl::Time now) { runner.SessionClosed(session, now); });
}

StreamId Engine::OpenStream(SessionToken token) {
  const StreamId stream = next_connection_.fetch_add(1);
  Post(
      [stream, token](Runner& runner, absl::Time now) { runner.StreamOpened(stream, token, now); });
  return stream;
}

void Engine::TakeFrame(StreamId stream, IncomingFrame frame) {
  Post([stream, frame = std::move(frame)](Runner& runner, absl::Time now) mutable {
    runner.FrameReceived(stream, std::move(frame), now);
  });
}

void Engine::CloseStream(StreamId stream) {
  Post([stream](Runner& runner, absl::Time now) { runner.StreamClosed(stream, now); });
}

void Engine::Command(Event command) {
  Post([command = std::move(command)](Runner& runner, absl::Time now) {
    runner.Command(command, now);
  });
}

void Engine::Inspect(std::function<void(const Runner&, absl::Time)> look) {
  Post([look = std::move(look)](Runner& runner, absl::Time now) { look(runner, now); });
}

}  // namespace basin::aggregator
