// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job feels of another job's flood: the time of a round of two workers with 64 bytes, while
// 60 sessions of another job send one kind of message as fast as the aggregator takes them. The
// engine runs with its threads and the real clock, over queues instead of sockets; every message to
// a worker is serialised, as a server does. A session has 256 messages on their way, as the window
// of a stream allows.
//
// Columns: time of a round; `p99_ms` and `max_ms` of the rounds; `flood`: flood messages handled
// per round. The first line, None, is a round without a flood.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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
constexpr char kFloodJob[] = "flood";

std::vector<TensorSpec> ManyTensors() {
  std::vector<TensorSpec> tensors;
  for (uint32_t i = 0; i < kTensors; ++i) tensors.push_back(F32(absl::StrCat("layer.", i), 4));
  return tensors;
}

class Silent : public Observer {
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
    if (!IsFlood(session)) queues_.CloseSession(session);
  }
  void AcceptStream(StreamId stream) override { queues_.AcceptStream(stream); }
  void Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) override {
    queues_.Send(streams, frame);
  }
  void CloseStream(StreamId stream, const absl::Status& why) override {
    queues_.CloseStream(stream, why);
  }
  void Consumed(uint64_t connection, uint64_t bytes) override {
    if (!IsFlood(connection)) return queues_.Consumed(connection, bytes);
    consumed_[connection - first_].fetch_add(bytes, std::memory_order_relaxed);
  }

  // REQUIRES: before these sessions say anything.
  void FloodBegins(SessionId first) { first_ = first; }
  uint64_t consumed(size_t session) const {
    return consumed_[session].load(std::memory_order_relaxed);
  }

 private:
  bool IsFlood(uint64_t connection) const {
    return first_ != 0 && connection >= first_ && connection < first_ + kSessions;
  }

  QueueTransport& queues_;
  std::atomic<uint64_t> first_{0};
  std::atomic<uint64_t> consumed_[kSessions]{};
};

class Aggregator : public Network {
 public:
  Aggregator() : wire(transport), engine(Options(), clock, *reducer, silent, nullptr) {
    engine.Start(wire);
  }
  ~Aggregator() override { engine.Stop(); }

  SessionId OpenSession() override { return engine.OpenSession(); }
  void TakeMessage(SessionId session, ToAggregator message) override {
    engine.TakeMessage(session, std::move(message), 1);
  }
  void CloseSession(SessionId session) override { engine.CloseSession(session); }
  StreamId OpenStream(SessionToken token) override { return engine.OpenStream(token); }
  void TakeFrame(StreamId stream, IncomingFrame frame) override {
    engine.TakeFrame(stream, std::move(frame));
  }
  void CloseStream(StreamId stream) override { engine.CloseStream(stream); }

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

// The flood: every session always has a window of messages on its way.
class Flood {
 public:
  using Make = std::function<ToAggregator(size_t session, uint64_t number)>;

  Flood(Aggregator& aggregator, const Make& make) : aggregator_(aggregator) {
    for (size_t i = 0; i < kSessions; ++i) {
      const SessionId session = aggregator.engine.OpenSession();
      if (i == 0) aggregator.wire.FloodBegins(first_ = session);
      Hello hello;
      hello.job = kFloodJob;
      hello.worker = absl::StrCat("w-", i);
      hello.nonce = i + 1;
      hello.fresh = true;
      hello.settings = {1, kSessions, kSessions};
      Say(i, hello);
      if (i == 0) Say(i, Register{kLane, LaneKind::kGradient, ManyTensors()});
      Say(i, Ready{});
    }
    thread_ = std::thread([this, make] {
      while (!stop_.load(std::memory_order_relaxed)) {
        bool any = false;
        for (size_t i = 0; i < kSessions; ++i) {
          if (sent_[i] - aggregator_.wire.consumed(i) >= kWindow) continue;
          Say(i, make(i, sent_[i]));
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
  uint64_t handled() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < kSessions; ++i) sum += aggregator_.wire.consumed(i);
    return sum;
  }

 private:
  void Say(size_t session, ToAggregator message) {
    ++sent_[session];
    aggregator_.engine.TakeMessage(first_ + session, std::move(message), 1);
  }

  Aggregator& aggregator_;
  SessionId first_ = 0;
  std::vector<uint64_t> sent_ = std::vector<uint64_t>(kSessions);
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void RoundBeside(benchmark::State& state, const Flood::Make& make) {
  Aggregator aggregator;
  const Model model = AverageOf({F32("w", 16)}, 2);
  RigWorker a(aggregator, "a", model);
  RigWorker b(aggregator, "b", model);
  Join({&a, &b});
  const std::string gradient = GradientOf(0, 16);
  const auto round = [&] {
    for (RigWorker* worker : {&a, &b}) {
      worker->Begin();
      worker->Push(0, gradient);
      worker->Commit();
    }
    Finish({&a, &b});
  };
  round();
  std::unique_ptr<Flood> flood;
  if (make != nullptr) {
    flood = std::make_unique<Flood>(aggregator, make);
    round();
  }
  const uint64_t before = flood == nullptr ? 0 : flood->handled();
  std::vector<double> milliseconds;
  for (auto _ : state) {
    const absl::Time begin = aggregator.clock.Now();
    round();
    milliseconds.push_back(absl::ToDoubleMilliseconds(aggregator.clock.Now() - begin));
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  state.counters["p99_ms"] = milliseconds[milliseconds.size() * 99 / 100];
  state.counters["max_ms"] = milliseconds.back();
  if (flood != nullptr) {
    state.counters["flood"] =
        static_cast<double>(flood->handled() - before) / static_cast<double>(milliseconds.size());
  }
}

ValueKey KeyOf(uint64_t version) { return {kLane, "layer.0", version}; }

void RegisterAll() {
  const std::vector<TensorSpec> one = {F32("layer.0", 4)};
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
       [](size_t session, uint64_t number) {
         return Announce{{kLane, absl::StrCat("v", session), number}, F32("v", 4), 1};
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
  };
  for (const auto& [name, make] : floods) {
    benchmark::RegisterBenchmark(absl::StrCat("RoundBeside/", name).c_str(), RoundBeside, make)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->Iterations(100);
  }
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace basin::aggregator
