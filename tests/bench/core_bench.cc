// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The cost of the aggregator's decisions: the core alone handles every event of one round of a 1 GB
// model, one event for each frame of 1 MiB that a worker pushes or acknowledges. Bytes, sockets and
// arithmetic are left out. The targets are 0.1 s a round for 256 workers and 5 s for 10,000.
//
// Columns: time of one round; its events and CPU ns per event; `of_target`: CPU time / target.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aggregator/core/coordinator.h"
#include "benchmark/benchmark.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kModelBytes = 1'000'000'000;

// Sizes as a transformer's: matrices, projections, norms, biases.
std::vector<TensorSpec> MakeModel() {
  constexpr uint64_t kSizes[] = {16 << 20, 16 << 20, 4 << 20, 4 << 20, 16 << 10, 4 << 10};
  std::vector<TensorSpec> model;
  for (uint64_t bytes = 0; bytes < kModelBytes; bytes += ElementSize(DType::kF32)) {
    const uint64_t size = std::min(kSizes[model.size() % 6], kModelBytes - bytes);
    model.push_back({absl::StrCat("layer", model.size(), ".weight"), DType::kF32, {size / 4}});
    bytes += size - ElementSize(DType::kF32);
  }
  return model;
}

class Bench {
 public:
  explicit Bench(uint32_t workers) : workers_(workers), core_(MakeConfig(), now_) {
    const std::vector<TensorSpec> model = MakeModel();
    for (TensorIndex tensor = 0; tensor < model.size(); ++tensor) {
      const uint64_t bytes = *TensorBytes(model[tensor]);
      const uint32_t chunks = ChunkCount(bytes);
      for (uint32_t first = 0; first < chunks; first += 4) {
        FrameReceived frame;
        frame.ranges = {{tensor, first, std::min(4u, chunks - first)}};
        for (uint32_t i = 0; i < frame.ranges[0].count; ++i) {
          frame.bytes += ChunkSize(bytes, first + i);
          frame.digests.push_back(1);
        }
        chunks_ += frame.ranges[0].count;
        bytes_ += frame.bytes;
        frames_.push_back(std::move(frame));
      }
    }
    for (uint32_t worker = 1; worker <= workers_; ++worker) {
      Take(SessionOpened{worker, worker});
      Hello hello;
      hello.job = "bench";
      hello.worker = absl::StrFormat("w%05d", worker);
      hello.nonce = worker;
      hello.fresh = true;
      hello.settings = {workers_, workers_, workers_};
      Deliver(worker, std::move(hello));
      Deliver(worker, Register{"gradients", LaneKind::kGradient, model});
      Deliver(worker, LayoutSeen{0, static_cast<uint32_t>(model.size())});
    }
    for (uint32_t worker = 1; worker <= workers_; ++worker) Deliver(worker, Ready{});
    present_ = Bitmap(model.size());
    for (size_t tensor = 0; tensor < model.size(); ++tensor) present_.Set(tensor);
  }

  // One round from begin to verdict. Returns its number of events.
  uint64_t Round() {
    ++round_;
    events_ = 0;
    sent_ = 0;
    Begin begin{0, round_, {}, {}, 0, {}};
    begin.spec.op = ReduceOp::kAverage;
    for (uint32_t worker = 1; worker <= workers_; ++worker) Deliver(worker, begin);
    for (FrameReceived& frame : frames_) {
      frame.round = round_;
      Input input = frame;
      for (uint32_t worker = 1; worker <= workers_; ++worker) {
        std::get<FrameReceived>(input).session = worker;
        Take(input);
      }
      Drain();
    }
    const Commit commit{0,      round_, static_cast<uint32_t>(present_.size()), present_, chunks_,
                        bytes_, chunks_};
    for (uint32_t worker = 1; worker <= workers_; ++worker) Deliver(worker, commit);
    Drain();
    for (uint32_t worker = 1; worker <= workers_; ++worker) {
      Deliver(worker, Staged{0, round_, prepared_});
    }
    if (sent_ != workers_) {
      std::fprintf(stderr, "core_bench: %u of %u workers were told the verdict\n", sent_, workers_);
      std::exit(1);
    }
    return events_;
  }

 private:
  static Config MakeConfig() {
    Config config;
    config.memory_bytes = uint64_t{1} << 50;  // Only the windows limit the parked bytes.
    return config;
  }

  void Take(const Input& input) {
    ++events_;
    actions_.clear();
    core_.Step(input, now_, actions_);
    for (const Action& action : actions_) {
      if (const auto* reduce = std::get_if<Reduce>(&action)) {
        ReduceDone done{reduce->job,
                        reduce->lane,
                        reduce->round,
                        reduce->ballot,
                        reduce->ranges,
                        ChunkDigests(CountChunks(reduce->ranges), 1),
                        {}};
        reduced_.push_back(std::move(done));
      } else if (const auto* publish = std::get_if<Publish>(&action)) {
        published_.push_back({publish->lane,
                              publish->round,
                              publish->ballot,
                              {publish->ranges.begin(), publish->ranges.end()}});
      } else if (const auto* all = std::get_if<SendAll>(&action)) {
        Read(all->message, static_cast<uint32_t>(all->sessions.size()));
      } else if (const auto* send = std::get_if<Send>(&action)) {
        Read(send->message, 1);
      }
    }
  }

  void Deliver(SessionId session, ToAggregator message) {
    Take(MessageReceived{session, std::move(message)});
  }

  void Read(const ToWorker& message, uint32_t receivers) {
    if (const auto* prepared = std::get_if<Prepared>(&message)) prepared_ = prepared->ballot;
    if (std::holds_alternative<Verdict>(message)) sent_ += receivers;
  }

  // Requested work is done at once, and all workers acknowledge published results.
  void Drain() {
    while (!reduced_.empty() || !published_.empty()) {
      for (const ReduceDone& done : std::exchange(reduced_, {})) Take(done);
      for (const ResultAck& ack : std::exchange(published_, {})) {
        Input input = MessageReceived{0, ack};
        for (uint32_t worker = 1; worker <= workers_; ++worker) {
          std::get<MessageReceived>(input).session = worker;
          Take(input);
        }
      }
    }
  }

  const uint32_t workers_;
  const absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  Coordinator core_;
  std::vector<FrameReceived> frames_;
  uint64_t chunks_ = 0;
  uint64_t bytes_ = 0;
  Bitmap present_;
  RoundNumber round_ = 0;
  Ballot prepared_;
  uint32_t sent_ = 0;
  uint64_t events_ = 0;
  std::vector<Action> actions_;
  std::vector<ReduceDone> reduced_;
  std::vector<ResultAck> published_;
};

void CoreRound(benchmark::State& state) {
  const auto workers = static_cast<uint32_t>(state.range(0));
  Bench bench(workers);
  bench.Round();  // The first one also allocates.
  uint64_t events = 0;
  const std::clock_t begin = std::clock();
  for (auto _ : state) events += bench.Round();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const auto rounds = static_cast<double>(state.iterations());
  const double target = workers <= 256 ? 0.1 : 5;
  state.counters["events"] = static_cast<double>(events) / rounds;
  state.counters["ns_per_event"] = seconds * 1e9 / static_cast<double>(events);
  state.counters["of_target"] = seconds / rounds / target;
}
BENCHMARK(CoreRound)->ArgName("workers")->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(CoreRound)->ArgName("workers")->Arg(10000)->Iterations(1)->Unit(benchmark::kMillisecond);

// The workers of a job report their history to an aggregator that has lost its memory, and the job
// goes on. Each hello names all members.
void CoreRecovery(benchmark::State& state) {
  const auto workers = static_cast<uint32_t>(state.range(0));
  Hello hello;
  hello.job = "bench";
  hello.settings = {workers, workers, workers};
  hello.membership.generation = {1, 1};
  std::vector<WorkerId> members;
  for (uint32_t worker = 1; worker <= workers; ++worker) {
    members.push_back(absl::StrFormat("w%05d", worker));
  }
  LaneHistory lane;
  lane.name = "gradients";
  lane.layout = MakeModel();
  lane.last_verdict = 5;
  lane.chain = 5;
  hello.lanes.push_back(std::move(lane));
  Config config;
  config.memory_bytes = uint64_t{1} << 50;
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  double slowest = 0;
  for (auto _ : state) {
    Coordinator core(config, now);
    std::vector<Action> actions;
    for (uint32_t worker = 1; worker <= workers; ++worker) {
      core.Step(SessionOpened{worker, worker}, now, actions);
      hello.worker = members[worker - 1];
      hello.membership.members = members;  // Decoded from the hello of each.
      hello.nonce = worker;
      hello.incarnation = {1, worker};
      actions.clear();
      const std::clock_t begin = std::clock();
      core.Step(MessageReceived{worker, hello}, now, actions);
      slowest = std::max(slowest, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    const auto welcomed = std::count_if(actions.begin(), actions.end(), [](const Action& action) {
      const auto* send = std::get_if<Send>(&action);
      return send != nullptr && std::holds_alternative<Welcome>(send->message);
    });
    if (welcomed != workers) {
      std::fprintf(stderr, "core_bench: %td of %u workers were welcomed\n", welcomed, workers);
      std::exit(1);
    }
  }
  state.counters["slowest_event_ms"] = slowest * 1e3;
}
BENCHMARK(CoreRecovery)
    ->ArgName("workers")
    ->Arg(1000)
    ->Arg(4000)
    ->Arg(10000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace basin::aggregator
