// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The effect of another job's flood: the time of a round of two workers with 64 bytes, while 60
// sessions of another job send one kind of message as fast as the aggregator takes them. The engine
// runs with its threads and the real clock, over queues instead of sockets; every message to a
// worker is serialised, as a server does. A session has 256 messages on their way, as the window of
// a stream allows. Where the aggregator ends a session of the flood, as after Leave or a second
// Hello, a new process of that worker joins at once and goes on.
//
// Columns: time of a round; `p99_ms` and `max_ms` of the rounds; `flood`: flood messages handled
// per round. The first line, None, is a round without a flood.
//
// In the last line, RegisterMost, each of the 60 registers as many tensors as a lane can have, in
// messages of as many as a client sends at once. Its time is that of all the registrations;
// `p99_ms` and `max_ms` are of the rounds meanwhile.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "proto/wire/session.h"
#include "runtime/clock.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

constexpr size_t kSessions = 60;
constexpr uint64_t kWindow = 256;
constexpr uint32_t kTensors = 4096;
constexpr uint32_t kMostTensors = 65536;
constexpr uint32_t kBatch = 1024;  // Tensors that a client names in one message.
constexpr char kFloodJob[] = "flood";

std::vector<TensorSpec> Tensors(uint32_t first, uint32_t count) {
  std::vector<TensorSpec> tensors;
  for (uint32_t i = first; i < first + count; ++i) {
    tensors.push_back(F32(absl::StrCat("layer.", i), 4));
  }
  return tensors;
}

Hello HelloOf(size_t source, Nonce nonce) {
  Hello hello;
  hello.job = kFloodJob;
  hello.worker = absl::StrCat("w-", source);
  hello.nonce = nonce;
  hello.fresh = true;
  hello.settings = {1, kSessions, kSessions};
  return hello;
}

class Silent : public NoteSink {
 public:
  void OnNote(const Note&, absl::Time) override {}
};

// Hands the messages of the idle job on, and drops those of the flood once they are serialised.
class Wire : public Transport {
 public:
  explicit Wire(QueueTransport& queues) : queues_(queues) {}

  void Send(absl::Span<const SessionId> sessions, const ToWorker& message) override {
    benchmark::DoNotOptimize(wire::Encode(message));
    std::vector<SessionId> kept;
    for (const SessionId session : sessions) {
      if (!IsFlood(session)) kept.push_back(session);
    }
    if (!kept.empty()) queues_.Send(absl::MakeConstSpan(kept), message);
  }
  void CloseSession(SessionId session) override {
    if (!IsFlood(session)) return queues_.CloseSession(session);
    Source& source = SourceOf(session);
    if (source.session == session) source.ended = true;
  }
  void AcceptStream(StreamId stream, SessionId session, const JobName& job) override {
    queues_.AcceptStream(stream, session, job);
  }
  void Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) override {
    queues_.Send(streams, frame);
  }
  void CloseStream(StreamId stream, const absl::Status& why) override {
    queues_.CloseStream(stream, why);
  }
  void Consumed(uint64_t connection, uint64_t bytes) override {
    if (!IsFlood(connection)) return queues_.Consumed(connection, bytes);
    SourceOf(connection).consumed.fetch_add(bytes, std::memory_order_relaxed);
  }

  // `session` is that of source `source` from now on. REQUIRES: before its first message; the
  // sessions of the flood are younger than all of the other job.
  void Assign(SessionId session, size_t source) {
    if (first_ == 0) first_ = session;
    source_of_[session % kRemembered] = source;
    sources_[source].session = session;
    sources_[source].ended = false;
  }
  // The aggregator has ended the present session of this source.
  bool ended(size_t source) const { return sources_[source].ended; }
  // Messages of this source that were handled, in all its sessions.
  uint64_t consumed(size_t source) const {
    return sources_[source].consumed.load(std::memory_order_relaxed);
  }

 private:
  // More than the sessions that can have a message on its way.
  static constexpr size_t kRemembered = 4 * kSessions * kWindow;

  struct Source {
    std::atomic<SessionId> session{0};
    std::atomic<bool> ended{false};
    std::atomic<uint64_t> consumed{0};
  };

  bool IsFlood(uint64_t connection) const { return first_ != 0 && connection >= first_; }
  Source& SourceOf(SessionId session) { return sources_[source_of_[session % kRemembered]]; }

  QueueTransport& queues_;
  std::atomic<SessionId> first_{0};
  std::atomic<size_t> source_of_[kRemembered]{};
  Source sources_[kSessions];
};

class Aggregator : public EngineNetwork {
 public:
  Aggregator()
      : EngineNetwork(engine),
        wire(transport),
        engine(Options(), clock, *reducer, silent, nullptr) {
    engine.Start(wire);
  }
  ~Aggregator() override { engine.Stop(); }

  static EngineOptions Options() {
    EngineOptions options;
    options.core.lease = absl::Minutes(10);  // The workers of this benchmark have no heartbeats.
    return options;
  }

  Wire wire;
  MonotonicClock clock;
  Silent silent;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
};

// The flood: every source always has a window of messages on its way, until each has sent
// `messages` of them.
class Flood {
 public:
  using Make = std::function<ToAggregator(size_t source, uint64_t number)>;

  Flood(Aggregator& aggregator, const Make& make,
        uint64_t messages = std::numeric_limits<uint64_t>::max())
      : aggregator_(aggregator) {
    for (size_t i = 0; i < kSessions; ++i) Join(i);
    before_ = sent_;
    thread_ = std::thread([this, make, messages] {
      while (!stop_.load(std::memory_order_relaxed)) {
        bool any = false;
        for (size_t i = 0; i < kSessions; ++i) {
          const uint64_t number = sent_[i] - before_[i];
          if (number == messages || sent_[i] - aggregator_.wire.consumed(i) >= kWindow) continue;
          if (aggregator_.wire.ended(i)) {
            aggregator_.engine.CloseSession(sessions_[i], "");
            Join(i);
          }
          Send(i, make(i, number));
          any = true;
        }
        if (!any) std::this_thread::yield();
      }
    });
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  // Messages of the flood.
  uint64_t handled() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < kSessions; ++i) {
      sum += aggregator_.wire.consumed(i) - std::min(aggregator_.wire.consumed(i), before_[i]);
    }
    return sum;
  }

 private:
  // A new process of worker `source`.
  void Join(size_t source) {
    sessions_[source] = aggregator_.engine.OpenSession();
    aggregator_.wire.Assign(sessions_[source], source);
    Send(source, HelloOf(source, ++nonce_));
    if (nonce_ == 1) Send(source, Register{kLane, LaneKind::kGradient, Tensors(0, kTensors)});
    Send(source, Ready{});
  }
  void Send(size_t source, ToAggregator message) {
    ++sent_[source];
    aggregator_.engine.OnMessage(sessions_[source], std::move(message), 1);
  }

  Aggregator& aggregator_;
  std::vector<SessionId> sessions_ = std::vector<SessionId>(kSessions);
  Nonce nonce_ = 0;
  std::vector<uint64_t> sent_ = std::vector<uint64_t>(kSessions);
  std::vector<uint64_t> before_;  // Sent before the flood.
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The idle job.
class Rounds {
 public:
  explicit Rounds(Aggregator& aggregator) : aggregator_(aggregator) {
    Join({&a_, &b_});
    Run();
    milliseconds_.clear();
  }
  void Run() {
    const absl::Time begin = aggregator_.clock.Now();
    for (RigWorker* worker : {&a_, &b_}) {
      worker->Begin();
      worker->Push(0, gradient_);
      worker->Commit();
    }
    Finish({&a_, &b_});
    milliseconds_.push_back(absl::ToDoubleMilliseconds(aggregator_.clock.Now() - begin));
  }
  void Report(benchmark::State& state) {
    std::sort(milliseconds_.begin(), milliseconds_.end());
    state.counters["p99_ms"] = milliseconds_[milliseconds_.size() * 99 / 100];
    state.counters["max_ms"] = milliseconds_.back();
  }

 private:
  Aggregator& aggregator_;
  const Model model_ = AverageOf({F32("w", 16)}, 2);
  RigWorker a_{aggregator_, "a", model_};
  RigWorker b_{aggregator_, "b", model_};
  const std::string gradient_ = GradientOf(0, 16);
  std::vector<double> milliseconds_;
};

void RoundBeside(benchmark::State& state, const Flood::Make& make) {
  Aggregator aggregator;
  Rounds rounds(aggregator);
  std::unique_ptr<Flood> flood;
  if (make != nullptr) flood = std::make_unique<Flood>(aggregator, make);
  for (auto _ : state) rounds.Run();
  rounds.Report(state);
  if (flood != nullptr) {
    state.counters["flood"] =
        static_cast<double>(flood->handled()) / static_cast<double>(state.iterations());
  }
}

void RegisterMost(benchmark::State& state) {
  Aggregator aggregator;
  Rounds rounds(aggregator);
  std::vector<Register> pieces;
  for (uint32_t first = 0; first < kMostTensors; first += kBatch) {
    pieces.push_back({kLane, LaneKind::kGradient, Tensors(first, kBatch)});
  }
  const auto registered = [&] {
    return LookAt<size_t>(aggregator.engine, [](const Runner& runner) {
      return runner.core().FindJob(kFloodJob)->lanes[0].layout.tensors().size();
    });
  };
  for (auto _ : state) {
    Flood flood(
        aggregator, [&](size_t, uint64_t number) { return pieces[number]; }, pieces.size());
    while (flood.handled() < kSessions * pieces.size()) rounds.Run();
    if (registered() != kMostTensors) state.SkipWithError("a registration was refused");
  }
  rounds.Report(state);
}

BlobKey KeyOf(uint64_t version) { return {kLane, "layer.0", version}; }

void RegisterAll() {
  const std::vector<TensorSpec> one = Tensors(0, 1);
  const std::vector<TensorSpec> many = Tensors(0, kTensors);
  const std::vector<std::pair<const char*, Flood::Make>> floods = {
      {"None", nullptr},
      {"Heartbeat",
       [](size_t, uint64_t) {
         return Heartbeat{1, {}};
       }},
      {"Get",
       [](size_t, uint64_t number) {
         return Get{KeyOf(number % 1000), {}, {}, 0, 0, absl::Minutes(1)};
       }},
      {"GetThatExpires",
       [](size_t, uint64_t number) { return Get{KeyOf(number), {}, {}, 0, 0, {}}; }},
      {"Announce",
       [](size_t source, uint64_t number) {
         return Announce{{kLane, absl::StrCat("v", source), number}, F32("v", 4), 1};
       }},
      {"Busy",
       [](size_t, uint64_t) {
         return Busy{"flood", absl::Seconds(1)};
       }},
      {"Ready", [](size_t, uint64_t) { return Ready{}; }},
      {"RegisterOne",
       [one](size_t, uint64_t) {
         return Register{kLane, LaneKind::kGradient, one};
       }},
      {"RegisterMany",
       [many](size_t, uint64_t) {
         return Register{kLane, LaneKind::kGradient, many};
       }},
      {"LayoutSeen",
       [](size_t, uint64_t) {
         return LayoutSeen{0, 1};
       }},
      {"Begin", [](size_t, uint64_t) { return Begin{0, 1, {}, {}, 0, {}}; }},
      {"Skip",
       [](size_t, uint64_t) {
         return Skip{0, 1, {1}};
       }},
      {"ResultAck",
       [](size_t, uint64_t) {
         return ResultAck{0, 1, {}, {{0, 0, 1}}};
       }},
      {"Need",
       [](size_t, uint64_t) {
         return Need{0, 1, {}, {{0, 0, 1}}};
       }},
      {"Withdraw",
       [](size_t, uint64_t) {
         return Withdraw{0, 9, "flood"};
       }},
      {"Commit",
       [](size_t, uint64_t) { return Commit{0, 1, 1, {}, kTensors, kTensors * 16, 1, 1.0}; }},
      {"Staged",
       [](size_t, uint64_t) {
         return Staged{0, 1, {}};
       }},
      {"LeaseSamples",
       [](size_t, uint64_t number) {
         return LeaseSamples{0, number, {1, uint64_t{1} << 20, 1}, 64, {}};
       }},
      {"ReturnSamples",
       [](size_t, uint64_t) {
         return ReturnSamples{0, 1, {{0, 64}}};
       }},
      {"ReportBatch",
       [](size_t, uint64_t number) {
         return ReportBatch{0, 1, number, uint64_t{1} << 40};
       }},
      {"LetGo",
       [](size_t, uint64_t number) {
         return LetGo{0, number};
       }},
      {"ShardUnreachable",
       [](size_t, uint64_t) {
         return ShardUnreachable{1, "flood"};
       }},
      {"Abandon", [](size_t, uint64_t) { return Abandon{}; }},
      {"Finished", [](size_t, uint64_t) { return Finished{}; }},
      {"Leave", [](size_t, uint64_t) { return Leave{}; }},
      {"Hello", [](size_t source, uint64_t number) { return HelloOf(source, 1000 + number); }},
  };
  static_assert(std::variant_size_v<ToAggregator> == 23, "each kind of message has a flood above");
  for (const auto& [name, make] : floods) {
    benchmark::RegisterBenchmark(absl::StrCat("RoundBeside/", name).c_str(), RoundBeside, make)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->Iterations(100);
  }
  benchmark::RegisterBenchmark("RegisterMost", RegisterMost)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->Iterations(1);
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace basin::aggregator
