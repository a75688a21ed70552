// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The effect of another job's large rounds on one reduce thread: the time of a round of two workers
// with 1 MiB, alone and beside a neighbour whose workers contribute 16 MiB each, round after round
// and in several lanes at once, without computing anything between them. The engine runs with its
// threads and the real clock, over queues instead of sockets.
//
// Columns: `alone_ms` and `beside_ms`, the medians of the small job's rounds; `ratio`, the second
// by the first; `large`, rounds of the neighbour meanwhile.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "runtime/clock.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kLargeBytes = uint64_t{16} << 20;  // As much as may wait for others.
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;
constexpr size_t kAlone = 200;  // Rounds.

TensorSpec Floats(const std::string& name, uint64_t bytes) {
  return F32(name, bytes / sizeof(float));
}

class Quiet : public NoteSink {
 public:
  void OnNote(const Note&, absl::Time) override {}
};

class OneReduceThread : public EngineNetwork {
 public:
  OneReduceThread() : EngineNetwork(engine), engine(Options(), clock, *reducer, quiet, nullptr) {
    engine.Start(transport);
  }
  ~OneReduceThread() override { engine.Stop(); }

  static EngineOptions Options() {
    EngineOptions options;
    options.reduce_threads = 1;
    options.core.lease = absl::Minutes(10);  // The workers of this benchmark have no heartbeats.
    return options;
  }

  MonotonicClock clock;
  Quiet quiet;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
};

// One contribution in frames, made once: all workers of the neighbour send it in all rounds.
class Frames {
 public:
  explicit Frames(const TensorSpec& tensor) {
    constexpr uint32_t kChunks = 4;
    const kernels::TensorKey key(tensor.name);
    for (uint32_t first = 0; first < kLargeBytes / kChunkBytes; first += kChunks) {
      IncomingFrame frame;
      frame.header = ContributionHeader{0, 1, {0, first, kChunks}};
      frame.payload_bytes = kChunks * kChunkBytes;
      frame.payload = std::make_shared<StringPayload>(GradientOf(first, kChunks * kChunkFloats),
                                                      kChunks * kChunkBytes);
      frame.contents = HashChunks(frame.payload->pieces(), kChunkBytes);
      for (uint32_t i = 0; i < kChunks; ++i) {
        frame.claimed.push_back(kernels::TermOf(key, first + i, frame.contents[i]).low);
        digest_ += frame.claimed.back();
      }
      frames_.push_back(std::move(frame));
    }
  }
  Digest digest() const { return digest_; }
  IncomingFrame At(size_t i, LaneIndex lane, RoundNumber round) const {
    IncomingFrame frame = frames_[i];
    auto& header = std::get<ContributionHeader>(frame.header);
    header.lane = lane;
    header.round = round;
    return frame;
  }
  size_t size() const { return frames_.size(); }

 private:
  std::vector<IncomingFrame> frames_;
  Digest digest_ = 0;
};

// The neighbour: a thread with its workers, which acknowledge results without reading them.
class LargeRounds {
 public:
  LargeRounds(OneReduceThread& network, size_t workers, size_t lanes)
      : network_(network), workers_(workers), lanes_(lanes) {
    for (size_t i = 0; i < workers; ++i) Connect(workers_[i], i);
    for (Worker& worker : workers_) Send(worker, Ready{});
    for (Worker& worker : workers_) {
      while (Await<MembershipChanged>(worker).membership.members.size() < workers) {
      }
    }
    thread_ = std::thread([this] {
      for (RoundNumber round = 1; !stop_; ++round) Run(round);
    });
  }
  ~LargeRounds() {
    stop_ = true;
    thread_.join();
  }
  uint64_t rounds() const { return rounds_; }

 private:
  struct Worker {
    SessionId session = 0;
    StreamId stream = 0;
    std::vector<LaneIndex> lanes;
    size_t verdicts = 0;
  };

  void Send(Worker& worker, ToAggregator message) {
    network_.OnMessage(worker.session, std::move(message));
  }
  template <typename T>
  T Await(Worker& worker) {
    std::optional<T> found;
    network_.transport.Await(worker.session, [&](QueueTransport::Connection& connection) {
      while (!connection.messages.empty() && !found.has_value()) {
        if (auto* wanted = std::get_if<T>(&connection.messages.front())) found = *wanted;
        connection.messages.pop_front();
      }
      return found.has_value();
    });
    return *found;
  }

  void Connect(Worker& worker, size_t number) {
    worker.session = network_.OpenSession();
    const auto count = static_cast<uint32_t>(workers_.size());
    Hello hello;
    hello.job = "neighbour";
    hello.run = "run";
    hello.worker = absl::StrCat("w-", number);
    hello.nonce = number + 1;
    hello.fresh = true;
    hello.settings = {count, count, count};
    Send(worker, hello);
    worker.stream = network_.OpenStream(Await<Welcome>(worker).token);
    network_.transport.Await(worker.stream, [](auto& connection) { return connection.accepted; });
    for (size_t i = 0; i < lanes_; ++i) {
      Send(worker, Register{absl::StrCat("lane-", i), LaneKind::kGradient, {tensor_}});
      worker.lanes.push_back(Await<LaneLayout>(worker).lane);
      Send(worker, LayoutSeen{worker.lanes.back(), 1});
    }
  }

  void Run(RoundNumber round) {
    Bitmap present(1);
    present.Set(0);
    for (Worker& worker : workers_) {
      worker.verdicts = 0;
      for (const LaneIndex lane : worker.lanes) {
        Send(worker, Begin{lane, round, spec_, {}, 0, {}});
        for (size_t i = 0; i < frames_.size(); ++i) {
          network_.OnFrame(worker.stream, frames_.At(i, lane, round));
        }
        Commit commit;
        commit.lane = lane;
        commit.round = round;
        commit.layout_version = 1;
        commit.present = present;
        commit.chunks = kLargeBytes / kChunkBytes;
        commit.bytes = kLargeBytes;
        commit.digest = frames_.digest();
        Send(worker, commit);
      }
    }
    std::vector<uint64_t> connections;
    for (const Worker& worker : workers_) {
      connections.push_back(worker.session);
      connections.push_back(worker.stream);
    }
    const auto over = [&](const Worker& worker) { return worker.verdicts == lanes_; };
    while (!std::all_of(workers_.begin(), workers_.end(), over)) {
      std::vector<ToWorker> messages;
      std::vector<OutgoingFrame> results;
      const uint64_t from =
          network_.transport.AwaitAny(connections, [&](QueueTransport::Connection& connection) {
            messages.assign(connection.messages.begin(), connection.messages.end());
            results.assign(connection.frames.begin(), connection.frames.end());
            connection.messages.clear();
            connection.frames.clear();
            return !messages.empty() || !results.empty();
          });
      Worker& worker = *std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) {
        return w.session == from || w.stream == from;
      });
      for (const OutgoingFrame& result : results) {
        const auto& header = std::get<ResultHeader>(result.header);
        ResultAck ack{header.lane, header.round, header.ballot, {}};
        for (const ChunkRun& run : header.runs) ack.ranges.push_back(run.range);
        Send(worker, std::move(ack));
      }
      for (const ToWorker& message : messages) {
        if (const auto* prepared = std::get_if<Prepared>(&message)) {
          Send(worker, Staged{prepared->lane, prepared->round, prepared->ballot});
        }
        if (std::holds_alternative<Verdict>(message)) ++worker.verdicts;
      }
    }
    ++rounds_;
  }

  OneReduceThread& network_;
  const TensorSpec tensor_ = Floats("w", kLargeBytes);
  const Frames frames_{tensor_};
  const RoundSpec spec_ = AverageOf({tensor_}, 1).spec;
  std::vector<Worker> workers_;
  const size_t lanes_;
  std::atomic<uint64_t> rounds_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class SmallRounds {
 public:
  explicit SmallRounds(OneReduceThread& network) : clock_(network.clock), network_(network) {
    Join({&a_, &b_});
    Run();
  }
  // Milliseconds.
  double Run() {
    const absl::Time begin = clock_.Now();
    for (RigWorker* worker : {&a_, &b_}) {
      worker->Begin();
      worker->Push(0, gradient_);
      worker->Commit();
    }
    Finish({&a_, &b_});
    return absl::ToDoubleMilliseconds(clock_.Now() - begin);
  }

 private:
  const Clock& clock_;
  Network& network_;
  const Model model_ = AverageOf({Floats("w", kSmallBytes)}, 2);
  RigWorker a_{network_, "a", model_};
  RigWorker b_{network_, "b", model_};
  const std::string gradient_ = GradientOf(0, kSmallBytes / sizeof(float));
};

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void RoundBesideLargeRounds(benchmark::State& state) {
  OneReduceThread network;
  SmallRounds rounds(network);
  std::vector<double> alone;
  while (alone.size() < kAlone) alone.push_back(rounds.Run());
  LargeRounds neighbour(network, state.range(0), state.range(1));
  std::vector<double> beside;
  const uint64_t before = neighbour.rounds();
  for (auto _ : state) beside.push_back(rounds.Run());
  state.counters["alone_ms"] = MedianOf(alone);
  state.counters["beside_ms"] = MedianOf(beside);
  state.counters["ratio"] = MedianOf(beside) / MedianOf(alone);
  state.counters["large"] = static_cast<double>(neighbour.rounds() - before);
}
BENCHMARK(RoundBesideLargeRounds)
    ->ArgNames({"workers", "lanes"})
    ->Args({4, 1})
    ->Args({16, 1})
    ->Args({16, 4})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(200);

}  // namespace
}  // namespace basin::aggregator
