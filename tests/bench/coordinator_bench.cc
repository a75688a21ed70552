// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The cost of a round for a coordinator's loop, where shards hold the bytes of a 1 GB model: the
// runner and its core handle each event that shards and workers report, and encode what the shards
// are to do. Sockets, threads and arithmetic are left out. Every frame that arrives at a shard is a
// message of its own, as over slow links; under load, several share one. The target is 50 ms a
// round for 64 workers and 16 shards.
//
// Columns: time of one round; `core_ms`, the CPU time of the loop in it, and `encode_ms`, the part
// of it in which messages to shards are encoded; its events and CPU ns per event; `of_target`.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/reduction.h"
#include "aggregator/engine/runner.h"
#include "aggregator/shard/wire/codec.h"
#include "benchmark/benchmark.h"
#include "kernels/cpu/cpu_reducer.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kModelBytes = 1'000'000'000;
constexpr double kTargetSeconds = 0.05;

void Expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "coordinator_bench: %s\n", what.c_str());
  std::exit(1);
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Sizes as a transformer's: matrices, projections, norms, biases.
std::vector<TensorSpec> MakeModel() {
  constexpr uint64_t kSizes[] = {16 << 20, 16 << 20, 4 << 20, 4 << 20, 16 << 10, 4 << 10};
  std::vector<TensorSpec> model;
  for (uint64_t bytes = 0; bytes < kModelBytes;) {
    const uint64_t size = std::min(kSizes[model.size() % 6], kModelBytes - bytes);
    model.push_back({absl::StrCat("layer", model.size(), ".weight"), DType::kF32, {size / 4}});
    bytes += size;
  }
  return model;
}

class Quiet : public NoteSink {
 public:
  void OnNote(const Note&, absl::Time) override {}
};

// Frames of one shard, in the order in which every worker sends them.
struct FrameOfShard {
  FrameReceived event;     // At a shard of its own,
  IncomingFrame incoming;  // or at the coordinator,
  ChunkRuns runs;          // with these chunks.
};

// The coordinator, with workers and shards that do at once what they are asked for.
class Bench : public Transport {
 public:
  Bench(uint32_t workers, uint32_t shards, uint32_t frame_chunks)
      : workers_(workers),
        others_(shards - 1),
        runner_(MakeConfig(frame_chunks), Dependencies(), now_) {
    for (ShardId shard = 1; shard <= others_; ++shard) {
      ShardHello hello;
      hello.name = absl::StrCat("s-", shard);
      hello.endpoint = absl::StrCat(hello.name, ":29600");
      runner_.ShardOpened(shard, hello, now_);
    }
    model_ = MakeModel();
    for (SessionId worker = 1; worker <= workers_; ++worker) Join(worker);
    for (SessionId worker = 1; worker <= workers_; ++worker) Deliver(worker, Ready{});
    Cut(frame_chunks);
    present_ = Bitmap(model_.size());
    for (size_t tensor = 0; tensor < model_.size(); ++tensor) present_.Set(tensor);
    runner_.Flush();
  }

  // One round from begin to verdict.
  void Round() {
    ++round_;
    verdicts_ = 0;
    Begin begin{0, round_, {}, {}, 0, {}};
    begin.spec.op = ReduceOp::kAverage;
    for (SessionId worker = 1; worker <= workers_; ++worker) Deliver(worker, begin);
    for (size_t i = 0; i < most_frames_; ++i) {
      for (SessionId worker = 1; worker <= workers_; ++worker) PushAll(worker, i);
      Drain();
    }
    const Commit commit{
        0, round_, static_cast<uint32_t>(present_.size()), present_, chunks_, bytes_, digest_, 0};
    for (SessionId worker = 1; worker <= workers_; ++worker) Deliver(worker, commit);
    Drain();
    for (SessionId worker = 1; worker <= workers_; ++worker) {
      Deliver(worker, Staged{0, round_, prepared_});
    }
    Expect(verdicts_ == workers_,
           absl::StrCat(verdicts_, " of ", workers_, " workers have the verdict"));
  }

  uint64_t events = 0;
  double core_seconds = 0;
  double encode_seconds = 0;

  // ---- Transport
  void Send(absl::Span<const SessionId> sessions, const ToWorker& message) override {
    if (const auto* prepared = std::get_if<Prepared>(&message)) prepared_ = prepared->ballot;
    if (std::holds_alternative<Verdict>(message)) verdicts_ += sessions.size();
  }
  void CloseSession(SessionId session) override {
    Expect(false, absl::StrCat("session ", session, " was closed"));
  }
  void AcceptStream(StreamId, SessionId, const JobName&) override {}
  void Send(absl::Span<const StreamId>, const OutgoingFrame& frame) override {
    const auto& header = std::get<ResultHeader>(frame.header);
    Publish(header.lane, header.round, header.ballot, RangesOf(header.runs));
  }
  void CloseStream(StreamId, const absl::Status& why) override {
    Expect(false, std::string(why.message()));
  }
  void Consumed(uint64_t, uint64_t) override {}
  void SendToShard(ShardId shard, const std::vector<ShardStep>& steps) override {
    // A look at the CPU time would cost as much.
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(Encode(ToShard(steps)));
    encode_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const ShardStep& step : steps) {
      for (const ShardAction& action : step.actions) {
        if (const auto* reduce = std::get_if<Reduce>(&action)) {
          reduced_.push_back({shard,
                              {reduce->job,
                               reduce->lane,
                               reduce->round,
                               reduce->ballot,
                               reduce->ranges,
                               ChunkDigests(CountChunks(reduce->ranges), 1),
                               {}}});
        } else if (const auto* publish = std::get_if<aggregator::Publish>(&action)) {
          for (const Route& route : publish->routes) {
            Publish(publish->lane, publish->round, publish->ballot, route.ranges);
          }
        }
      }
    }
  }
  void CloseShard(ShardId, const absl::Status& why) override {
    Expect(false, std::string(why.message()));
  }

 private:
  static Config MakeConfig(uint32_t frame_chunks) {
    Config config;
    config.frame_bytes = frame_chunks * kChunkBytes;
    config.window_bytes = config.result_window_bytes = kModelBytes;
    config.memory_bytes = uint64_t{1} << 50;  // Only the windows limit the parked bytes.
    config.lease = absl::Hours(1);            // There are no heartbeats.
    return config;
  }
  RunnerDependencies Dependencies() {
    RunnerDependencies dependencies;
    dependencies.notes = &quiet_;
    dependencies.new_token = [this] { return ++last_token_; };
    dependencies.new_stream = [this] { return ++last_stream_; };
    dependencies.bytes.transport = this;
    dependencies.bytes.reduce = [this](std::unique_ptr<Reduction> reduction) {
      reducing_.push_back(std::move(reduction));
    };
    return dependencies;
  }

  template <typename Do>
  void Measure(uint64_t count, Do&& run) {
    const double begin = CpuSeconds();
    run();
    core_seconds += CpuSeconds() - begin;
    events += count;
  }

  void Deliver(SessionId session, ToAggregator message) {
    Measure(1, [&] {
      runner_.MessageReceived(session, std::move(message), 0, now_);
      runner_.Flush();
    });
  }

  void Join(SessionId worker) {
    runner_.SessionOpened(worker, "", now_);
    Hello hello;
    hello.job = "bench";
    hello.worker = absl::StrCat("w", 10000 + worker);
    hello.nonce = worker;
    hello.fresh = true;
    hello.features = kFeaturePlacement | kFeatureRuns;
    hello.settings = {workers_, workers_, workers_};
    Deliver(worker, std::move(hello));
    // Tokens are given in the order of the sessions.
    runner_.StreamOpened(StreamOf(worker), worker, now_);
    for (ShardId shard = 1; shard <= others_; ++shard) {
      runner_.ShardReported(shard, {StreamOpened{StreamOf(worker), worker}}, 0, now_);
    }
    Deliver(worker, Register{"gradients", LaneKind::kGradient, model_});
    Deliver(worker, LayoutSeen{0, static_cast<uint32_t>(model_.size())});
  }
  static StreamId StreamOf(SessionId worker) { return 1'000'000 + worker; }

  // Cuts the model into the frames of each shard, as a client does: small tensors share one.
  void Cut(uint32_t frame_chunks) {
    const Lane& lane = runner_.core().jobs().begin()->second.lanes[0];
    Expect(others_ == 0 || !lane.shares.single(), "everything is on one shard");
    frames_.resize(others_ + 1);
    for (TensorIndex tensor = 0; tensor < model_.size(); ++tensor) {
      const uint32_t chunks = ChunkCount(*TensorBytes(model_[tensor]));
      lane.shares.Split(
          lane.layout, {tensor, 0, chunks}, [&](ShardId shard, const ChunkRange& part) {
            for (uint32_t done = 0; done < part.count; done += frame_chunks) {
              Add(lane, shard,
                  {tensor, part.first + done, std::min(frame_chunks, part.count - done)},
                  frame_chunks * kChunkBytes);
            }
          });
    }
    for (FrameOfShard& frame : frames_[kCoordinatorShard]) FillIn(lane, frame);
    for (const auto& frames : frames_) {
      most_frames_ = std::max(most_frames_, frames.size());
      for (const FrameOfShard& frame : frames) {
        for (const Digest digest : frame.event.digests) digest_ += digest;
        chunks_ += CountChunks(frame.event.ranges);
        bytes_ += frame.event.bytes;
      }
    }
  }

  void Add(const Lane& lane, ShardId shard, const ChunkRange& range, uint64_t most_bytes) {
    const uint64_t bytes = lane.layout.RangeBytes(range);
    std::vector<FrameOfShard>& frames = frames_[shard];
    if (frames.empty() || frames.back().event.bytes + bytes > most_bytes) frames.emplace_back();
    FrameReceived& frame = frames.back().event;
    frame.ranges.push_back(range);
    frame.bytes += bytes;
    frame.digests.resize(frame.digests.size() + range.count, 1);
  }

  // The bytes of a frame for the coordinator's own shard.
  void FillIn(const Lane& lane, FrameOfShard& frame) {
    PayloadPtr& payload = payloads_[frame.event.bytes];
    if (payload == nullptr) {
      payload = std::make_shared<OwnPayload>(std::string(frame.event.bytes, '\0'));
    }
    IncomingFrame& incoming = frame.incoming;
    incoming.payload = payload;
    incoming.payload_bytes = frame.event.bytes;
    const bool only = frame.event.ranges.size() == 1;
    for (const ChunkRange& range : frame.event.ranges) {
      frame.runs.push_back(
          {range, only ? 0 : static_cast<uint32_t>(lane.layout.RangeBytes(range))});
    }
    incoming.contents = only ? HashChunks(payload->pieces(), kChunkBytes)
                             : HashRuns(payload->pieces(), frame.runs, kChunkBytes);
    frame.event.digests.clear();
    for (const ChunkRange& range : frame.event.ranges) {
      const kernels::TensorKey key(model_[range.tensor].name);
      for (uint32_t i = 0; i < range.count; ++i) {
        const size_t at = frame.event.digests.size();
        frame.event.digests.push_back(DigestOf(key, range.first + i, incoming.contents[at]));
      }
    }
    incoming.claimed.assign(frame.event.digests.begin(), frame.event.digests.end());
  }

  // Frame `i` of the worker arrives at each shard.
  void PushAll(SessionId worker, size_t i) {
    std::vector<std::pair<ShardId, std::vector<ShardEvent>>> reports;
    IncomingFrame* own = nullptr;
    for (ShardId shard = 0; shard <= others_; ++shard) {
      if (i >= frames_[shard].size()) continue;
      FrameOfShard& frame = frames_[shard][i];
      frame.event.round = round_;
      if (shard == kCoordinatorShard) {
        own = &frame.incoming;
        own->header = ContributionHeader{0, round_, frame.runs};
      } else {
        reports.push_back(
            {shard, {ShardFrameReceived{++last_frames_[shard], StreamOf(worker), frame.event}}});
      }
    }
    Measure(reports.size() + (own == nullptr ? 0 : 1), [&] {
      if (own != nullptr) runner_.FrameReceived(StreamOf(worker), *own, now_);
      for (auto& [shard, events] : reports) {
        runner_.ShardReported(shard, std::move(events), 0, now_);
      }
      runner_.Flush();
    });
  }

  void Publish(LaneIndex lane, RoundNumber round, const Ballot& ballot, const ChunkRanges& ranges) {
    published_.push_back({lane, round, ballot, {ranges.begin(), ranges.end()}});
  }

  // Requested work is done, and all workers acknowledge published results.
  void Drain() {
    while (!reduced_.empty() || !reducing_.empty() || !published_.empty()) {
      for (auto& [shard, done] : std::exchange(reduced_, {})) {
        std::vector<ShardEvent> events = {std::move(done)};
        Measure(1, [&, shard = shard] {
          runner_.ShardReported(shard, std::move(events), 0, now_);
          runner_.Flush();
        });
      }
      for (const std::shared_ptr<Reduction>& reduction : std::exchange(reducing_, {})) {
        RunPart(*reduction, *reducer_, pool_, std::numeric_limits<uint64_t>::max());
        Measure(1, [&] { runner_.Reduced(reduction, now_); });
      }
      for (const ResultAck& ack : std::exchange(published_, {})) {
        std::vector<ToAggregator> acks(workers_, ack);
        Measure(workers_, [&] {
          for (SessionId worker = 1; worker <= workers_; ++worker) {
            runner_.MessageReceived(worker, std::move(acks[worker - 1]), 0, now_);
          }
          runner_.Flush();
        });
      }
    }
  }

  struct Done {
    ShardId shard;
    ReduceDone done;
  };

  const uint32_t workers_;
  const uint32_t others_;  // Shards besides the coordinator's own.
  const absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  std::vector<TensorSpec> model_;
  Quiet quiet_;
  SessionToken last_token_ = 0;
  StreamId last_stream_ = 2'000'000;
  const std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  BufferPool pool_{uint64_t{64} << 20};

  std::map<uint64_t, PayloadPtr> payloads_;        // By size.
  std::vector<std::vector<FrameOfShard>> frames_;  // By shard.
  size_t most_frames_ = 0;
  std::map<ShardId, ShardFrame> last_frames_;
  uint64_t chunks_ = 0;
  uint64_t bytes_ = 0;
  Digest digest_ = 0;
  Bitmap present_;
  RoundNumber round_ = 0;
  Ballot prepared_;
  size_t verdicts_ = 0;
  std::vector<Done> reduced_;
  std::vector<std::shared_ptr<Reduction>> reducing_;
  std::vector<ResultAck> published_;
  Runner runner_;
};

void ShardedRound(benchmark::State& state) {
  Bench bench(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)),
              static_cast<uint32_t>(state.range(2)));
  bench.Round();  // The first one also allocates.
  bench.events = 0;
  bench.core_seconds = bench.encode_seconds = 0;
  for (auto _ : state) {
    const double before = bench.core_seconds;
    bench.Round();
    state.SetIterationTime(bench.core_seconds - before);
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["core_ms"] = bench.core_seconds / rounds * 1e3;
  state.counters["encode_ms"] = bench.encode_seconds / rounds * 1e3;
  state.counters["events"] = static_cast<double>(bench.events) / rounds;
  state.counters["ns_per_event"] = bench.core_seconds * 1e9 / static_cast<double>(bench.events);
  if (state.range(0) == 64 && state.range(1) == 16) {
    state.counters["of_target"] = bench.core_seconds / rounds / kTargetSeconds;
  }
}
// A frame has 15 chunks where links are fast, and 1 where they are slow.
BENCHMARK(ShardedRound)
    ->ArgNames({"workers", "shards", "chunks"})
    ->Args({64, 1, 4})
    ->Args({64, 16, 15})
    ->Args({64, 16, 4})
    ->Args({64, 16, 1})
    ->Args({256, 64, 4})
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace basin::aggregator
