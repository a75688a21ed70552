// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/engine.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "protocol/version.h"

namespace basin::aggregator {
namespace {

// From the system's own source: a token must not be guessed.
SessionToken NewToken() {
  std::random_device device;
  SessionToken token = 0;
  while (token == 0) token = uint64_t{device()} << 32 | device();
  return token;
}

// The time of the loop that one share stands for. Most events take less. An event that takes a
// thousand times as long, such as the layout of a lane of 65,536 tensors, costs its connection a
// thousand shares.
constexpr absl::Duration kShare = absl::Microseconds(50);

// What a transport thread may do in place of the loop: the events of a small round, of which only
// the first comes from the transport. A larger message may mean more work than that thread has time
// for.
constexpr int kTransportItems = 8;
constexpr uint64_t kTransportBytes = uint64_t{64} << 10;

}  // namespace

namespace {

EngineOptions WithFeatures(EngineOptions options, const accelerator::ReduceDevices* devices) {
  if (devices != nullptr && devices->CanOpen()) options.core.features |= kFeatureDeviceMemory;
  return options;
}

}  // namespace

Engine::Engine(EngineOptions options, Clock& clock, const kernels::Reducer& reducer,
               NoteSink& notes, StateFile* state_file, accelerator::ReduceDevices* devices)
    : options_(WithFeatures(std::move(options), devices)),
      clock_(clock),
      notes_(notes),
      state_file_(state_file),
      byte_threads_({options_.reduce_threads, options_.idle_buffer_bytes,
                     options_.shared_result_bytes, options_.most_arenas},
                    reducer, devices),
      term_(options_.core.term),
      events_(clock) {}

Engine::~Engine() { Stop(); }

void Engine::Start(Transport& transport) {
  transport_ = &transport;
  Run(options_.core.term);
}

void Engine::Restart(Term term) {
  Stop();
  // Their series end in the metrics.
  for (const auto& [id, job] : runner_->core().jobs()) {
    notes_.OnNote({NoteKind::kJobEnded, job.name, "", "", 0,
                   "This aggregator does not lead any more, and has forgotten the job."},
                  clock_.Now());
  }
  Run(term);
}

void Engine::Run(Term term) {
  byte_threads_.Start(ReportsOfThreads());
  if (state_file_ != nullptr) state_thread_ = std::make_unique<ThreadPool>("basin-state", 1);
  Config core = options_.core;
  core.term = term;
  term_ = term;
  runner_ = std::make_unique<Runner>(std::move(core), DependenciesFor(*transport_), clock_.Now());
  events_.Start();
  thread_ = std::thread([this] {
    NameThread("basin-loop");
    Loop();
  });
}

void Engine::Stop() {
  // What is left must not outlive the transport.
  std::vector<Posted> left = events_.Stop(thread_);
  left.clear();
  queue_ = FairQueue<Posted>();
  // What they still finish is dropped.
  byte_threads_.Stop();
  state_thread_.reset();
  MutexLock lock(hellos_mutex_);
  hellos_.clear();
}

RunnerDependencies Engine::DependenciesFor(Transport& transport) {
  RunnerDependencies dependencies;
  dependencies.bytes.transport = &transport;
  byte_threads_.Connect(dependencies.bytes);
  dependencies.notes = &notes_;
  dependencies.new_token = NewToken;
  dependencies.new_stream = [this] { return next_connection_.fetch_add(1); };
  dependencies.save = [this](const SaveState& state) {
    state_thread_->Submit(0, [this, state] {
      const bool ok = state_file_->Save(state).ok();
      Post(kNow, [state, ok](Runner& runner, absl::Time now) {
        runner.Saved({state.job, state.membership.generation, ok}, now);
      });
    });
  };
  dependencies.save_settings = [this](const SaveSettings& settings) {
    state_thread_->Submit(0, [this, settings] {
      const bool ok = state_file_->Save(settings).ok();
      Post(kNow, [job = settings.job, ok](Runner& runner, absl::Time now) {
        runner.Saved(SettingsSaved{job, ok}, now);
      });
    });
  };
  dependencies.drained = [this] {
    if (drained_) drained_();
  };
  return dependencies;
}

ByteThreads::Reports Engine::ReportsOfThreads() {
  ByteThreads::Reports reports;
  reports.reduced = [this](const std::shared_ptr<const Reduction>& reduction) {
    Post(kNow, [reduction](Runner& runner, absl::Time now) { runner.Reduced(reduction, now); });
  };
  reports.arena_made = [this](JobId job, LaneIndex lane, uint64_t bytes,
                              const std::shared_ptr<ResultArena>& arena) {
    Post(kNow, [job, lane, bytes, arena](Runner& runner, absl::Time now) {
      runner.ArenaMade(job, lane, bytes, arena, now);
    });
  };
  reports.device_failed = [this](const std::string& why) {
    Note note;
    note.kind = NoteKind::kReduceDeviceFailed;
    note.text = why;
    Post(kNow, [this, note](Runner&, absl::Time now) { notes_.OnNote(note, now); });
  };
  return reports;
}

bool Engine::Post(uint64_t connection, Task task) {
  return events_.Post({connection, clock_.Now(), std::move(task)});
}

bool Engine::PostNow(uint64_t connection, Task task) {
  Posted posted{connection, clock_.Now(), std::move(task)};
  const auto posting = events_.PostOrHold(posted);
  if (posting == EventLoop<Posted>::Posting::kHeld) {
    Wait(std::move(posted));
    for (int left = kTransportItems; left > 0 && !queue_.empty() && MayDecide(); --left) {
      TakeEvent();
    }
    LetGo();
  }
  return posting != EventLoop<Posted>::Posting::kStopped;
}

void Engine::LetGo() {
  taken_posted_ns_.store(kNothingTaken, std::memory_order_relaxed);
  events_.LetGo(!queue_.empty() && MayDecide(), NextDeadline());
}

absl::Time Engine::NextDeadline() const {
  return MayDecide() ? runner_->NextDeadline() : absl::InfiniteFuture();
}

void Engine::TakePosted() {
  events_.Take(taken_);
  for (Posted& posted : taken_) Wait(std::move(posted));
  taken_.clear();
}

void Engine::Wait(Posted posted) {
  const uint64_t connection = posted.connection;
  if (posted.looks && !MayDecide()) {
    posted.task(*runner_, clock_.Now());
  } else if (connection == kNow) {
    queue_.AddNow(std::move(posted));
  } else if (connection == kLast) {
    queue_.AddLast(std::move(posted));
  } else {
    queue_.Add(connection, std::move(posted));
  }
}

void Engine::NoteWaiting(absl::Time now) {
  if (runner_->core().NextDeadline() > now) return;
  std::vector<uint64_t> waiting = queue_.Waiting();
  if (waiting.empty()) return;
  std::vector<WaitingHello> hellos;
  {
    MutexLock lock(hellos_mutex_);
    for (const auto& [session, hello] : hellos_) hellos.push_back(hello);
  }
  runner_->MessagesWait(std::move(waiting), std::move(hellos), now);
  runner_->Flush();
}

void Engine::TakeEvent() {
  const absl::Time begun = clock_.Now();
  // Any step may judge a deadline.
  NoteWaiting(begun);
  const Posted posted = queue_.Next();
  taken_posted_ns_.store(absl::ToUnixNanos(posted.at), std::memory_order_relaxed);
  posted.task(*runner_, begun);
  runner_->Flush();
  const auto cost = 1 + static_cast<uint64_t>((clock_.Now() - begun) / kShare);
  queue_.Charge(posted.connection, cost * runner_->SharersOf(posted.connection) - 1);
  if (events_.arrived()) TakePosted();
}

void Engine::Loop() {
  while (events_.AwaitWork([this] { return NextDeadline(); }, taken_)) {
    TakePosted();
    // Waiting events are handled before a deadline is judged: after a stall of this process, the
    // message of a worker that seems late may have arrived long ago. Events that arrive meanwhile
    // are handled among them.
    for (size_t left = queue_.size(); left > 0 && MayDecide(); --left) TakeEvent();
    const absl::Time now = clock_.Now();
    if (NextDeadline() <= now) {
      TakePosted();
      NoteWaiting(now);
      runner_->Tick(now);
      runner_->Flush();
    }
    LetGo();
  }
}

absl::Duration Engine::InboxDelay() const {
  const absl::Time now = clock_.Now();
  const int64_t posted = taken_posted_ns_.load(std::memory_order_relaxed);
  absl::Time oldest =
      posted == kNothingTaken ? absl::InfiniteFuture() : absl::FromUnixNanos(posted);
  events_.Peek([&oldest](const Posted& first) { oldest = std::min(oldest, first.at); });
  return oldest >= now ? absl::ZeroDuration() : now - oldest;
}

SessionId Engine::OpenSession(std::string address) {
  const SessionId session = next_connection_.fetch_add(1);
  Post(session, [session, address = std::move(address)](Runner& runner, absl::Time now) mutable {
    runner.SessionOpened(session, std::move(address), now);
  });
  return session;
}

void Engine::OnMessage(SessionId session, ToAggregator message, uint64_t bytes) {
  const auto* hello = std::get_if<Hello>(&message);
  const bool says_hello = hello != nullptr;
  const auto forget_hello = [this, session] {
    MutexLock lock(hellos_mutex_);
    hellos_.erase(session);
  };
  if (says_hello) {
    MutexLock lock(hellos_mutex_);
    hellos_[session] = {hello->job, hello->worker, hello->nonce};
  }
  Task task = [says_hello, forget_hello, session, message = std::move(message), bytes](
                  Runner& runner, absl::Time now) mutable {
    runner.MessageReceived(session, std::move(message), bytes, now);
    if (says_hello) forget_hello();
  };
  const bool posted =
      bytes <= kTransportBytes ? PostNow(session, std::move(task)) : Post(session, std::move(task));
  if (says_hello && !posted) forget_hello();
}

void Engine::OnBatch(SessionId session, Batch batch) {
  uint64_t bytes = batch.frame_bytes;
  for (const auto& [message, size] : batch.messages) bytes += size;
  Task task = [session, batch = std::move(batch)](Runner& runner, absl::Time now) mutable {
    runner.BatchReceived(session, std::move(batch), now);
  };
  bytes <= kTransportBytes ? PostNow(session, std::move(task)) : Post(session, std::move(task));
}

void Engine::CloseSession(SessionId session, std::string ended, bool malformed) {
  SessionClosed closed{session, std::move(ended), malformed};
  Post(session, [closed = std::move(closed)](Runner& runner, absl::Time now) mutable {
    runner.SessionEnded(std::move(closed), now);
  });
}

void Engine::OnUnheard(std::vector<UnheardSession> sessions) {
  // Last, because what has arrived from these workers until now comes before.
  Post(kLast, [sessions = std::move(sessions), seen = clock_.Now()](Runner& runner,
                                                                    absl::Time now) mutable {
    runner.SessionsUnheard(std::move(sessions), now - seen, now);
  });
}

StreamId Engine::OpenStream(SessionToken token) {
  const StreamId stream = next_connection_.fetch_add(1);
  Post(stream, [stream, token](Runner& runner, absl::Time now) {
    runner.StreamOpened(stream, token, now);
  });
  return stream;
}

void Engine::OnFrame(StreamId stream, IncomingFrame frame) {
  Post(stream, [stream, frame = std::move(frame)](Runner& runner, absl::Time now) {
    runner.FrameReceived(stream, frame, now);
  });
}

void Engine::CloseStream(StreamId stream) {
  Post(stream, [stream](Runner& runner, absl::Time now) { runner.StreamClosed(stream, now); });
}

// ---- shards

namespace {

// Among the connections; no session or stream gets so far.
uint64_t ConnectionOf(ShardId shard) { return uint64_t{1} << 62 | shard; }

}  // namespace

ShardId Engine::OpenShard(ShardHello hello) {
  const ShardId shard = next_shard_.fetch_add(1);
  Post(ConnectionOf(shard), [shard, hello = std::move(hello)](Runner& runner, absl::Time now) {
    runner.ShardOpened(shard, hello, now);
  });
  return shard;
}

void Engine::OnShardEvents(ShardId shard, std::vector<ShardEvent> events, uint64_t bytes) {
  Post(ConnectionOf(shard),
       [shard, events = std::move(events), bytes](Runner& runner, absl::Time now) mutable {
         runner.ShardReported(shard, std::move(events), bytes, now);
       });
}

void Engine::CloseShard(ShardId shard, std::string why) {
  Post(ConnectionOf(shard), [shard, why = std::move(why)](Runner& runner, absl::Time now) mutable {
    runner.ShardClosed(shard, std::move(why), now);
  });
}

void Engine::Command(Event command) {
  Post(kLast, [command = std::move(command)](Runner& runner, absl::Time now) {
    runner.Command(command, now);
  });
}

void Engine::Inspect(std::function<void(const Runner&, absl::Time)> look) {
  Task task = [look = std::move(look)](Runner& runner, absl::Time now) { look(runner, now); };
  events_.Post({kLast, clock_.Now(), std::move(task), true});
}

void Engine::InspectInOrder(std::function<void(const Runner&, absl::Time)> look) {
  Post(kLast, [look = std::move(look)](Runner& runner, absl::Time now) { look(runner, now); });
}

void Engine::LookAgain() {
  Post(kNow, [](Runner&, absl::Time) {});
}

void Engine::InspectWritten(std::function<void(const Runner&, absl::Time)> look) {
  if (state_thread_ == nullptr) return InspectInOrder(std::move(look));
  // The loop has taken the commands before this, and the thread writes in the order of the loop.
  Post(kLast, [this, look = std::move(look)](Runner&, absl::Time) {
    state_thread_->Submit(0, [this, look] { Inspect(look); });
  });
}

}  // namespace basin::aggregator
