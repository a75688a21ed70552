// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/bench.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "aggregator/admin/words.h"
#include "aggregator/ctl/client.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/table.h"
#include "aggregator/text/units.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/worker.h"
#include "nlohmann/json.hpp"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

constexpr uint32_t kWorkersByDefault = 2;
constexpr uint64_t kModelByDefault = uint64_t{64} << 20;

// They are threads of this process, and each holds two models.
constexpr uint32_t kMostBenchWorkers = 64;

// Rounds that are not measured: the first ones allocate memory and open windows.
constexpr int kWarmUpRounds = 2;

// What a round costs besides its bytes.
constexpr uint64_t kSmallBytes = 1024;
constexpr int kSmallRounds = 50;

struct Measured {
  absl::Duration median;
  absl::Duration slowest;
};

Measured Summarise(std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.back()};
}

// One worker, from its hello until it has left.
class BenchWorker {
 public:
  BenchWorker(const Arguments& arguments, std::string job, uint32_t index, uint32_t workers,
              Clock& clock)
      : arguments_(arguments),
        job_(std::move(job)),
        index_(index),
        workers_(workers),
        connector_(arguments.workers_address, arguments.tls, {}, {}, arguments.token_file),
        clock_(clock) {}

  absl::Status Run() {
    absl::Status ran = Join();
    if (ran.ok()) ran = Measure("small", kSmallBytes, kSmallRounds, small);
    if (ran.ok()) {
      ran = Measure("model", arguments_.model_bytes, static_cast<int>(arguments_.rounds), model);
    }
    // Leaves also after a failure, so that the others do not wait for this worker.
    if (worker_ != nullptr) {
      if (ran.ok()) ran = worker_->Call(client::Finish{});
      // Nobody will ask how this job ended.
      worker_->Leave(true).IgnoreError();
    }
    return ran;
  }

  // The times of each round.
  std::vector<absl::Duration> small;
  std::vector<absl::Duration> model;

 private:
  absl::Status Join() {
    client::WorkerOptions options;
    options.core.job = job_;
    options.core.worker = absl::StrCat("bench-", index_);
    options.core.fresh = true;
    options.core.settings.min_workers = workers_;
    options.core.settings.max_workers = workers_;
    options.core.aggregator = arguments_.workers_address;
    auto worker = client::Worker::Connect(std::move(options), connector_, clock_);
    if (!worker.ok()) return worker.status();
    worker_ = *std::move(worker);
    absl::Status ready = worker_->Call(client::DeclareReady{});
    return ready.ok() ? worker_->AwaitMember(arguments_.timeout) : ready;
  }

  absl::Status Measure(const std::string& lane, uint64_t bytes, int rounds,
                       std::vector<absl::Duration>& times) {
    const uint64_t elements = std::max<uint64_t>(bytes / sizeof(float), 1);
    const auto registered =
        worker_->Register(lane, LaneKind::kGradient, {{"weight", DType::kF32, {elements}}});
    if (!registered.ok()) return registered.status();
    std::vector<float> weight(elements);
    const client::TensorHandle tensor = registered->tensors[0];
    client::BeginRound begin;
    begin.lane = registered->lane;
    begin.spec.op = ReduceOp::kAverage;
    for (int round = 0; round < kWarmUpRounds + rounds; ++round) {
      std::fill(weight.begin(), weight.end(), 1.0F);
      const absl::Time began = clock_.Now();
      client::Source source(tensor, weight.data(), elements * sizeof(float));
      const client::RoundOutcome outcome = worker_->Allreduce(
          begin, {&source, 1}, {{tensor, weight.data(), source.bytes()}}, arguments_.timeout);
      if (!outcome.ok()) return outcome.status();
      if (round >= kWarmUpRounds) times.push_back(clock_.Now() - began);
      if (weight.front() != 1.0F || weight.back() != 1.0F) {
        return absl::DataLossError(absl::StrCat("The average of ones is ", weight.front(), " and ",
                                                weight.back(), " in round ", round + 1, " of job ",
                                                job_, ". Report this as a bug."));
      }
    }
    return absl::OkStatus();
  }

  const Arguments& arguments_;
  const std::string job_;
  const uint32_t index_;
  const uint32_t workers_;
  client::GrpcConnector connector_;
  Clock& clock_;
  std::unique_ptr<client::Worker> worker_;
};

// The name that no other job has.
std::string NameOfJob(const Arguments& arguments) {
  std::random_device random;
  return absl::StrCat(arguments.job.empty() ? "basinctl-bench" : arguments.job, "-",
                      absl::StrFormat("%08x", random()));
}

// Rounds of a bench take bandwidth and processors from other jobs.
absl::Status CheckThatNobodyTrains(const Arguments& arguments) {
  const std::string nevertheless = "`basinctl bench --beside-others` runs anyway.";
  absl::StatusOr<Client> client = Client::Open(arguments);
  if (!client.ok()) return client.status();
  v1::ListJobsResponse jobs;
  const absl::Status called =
      client->Call(&v1::Admin::Stub::ListJobs, Client::With<v1::ListJobsRequest>(), jobs);
  if (!called.ok()) {
    return absl::Status(called.code(), absl::StrCat("The aggregator at ", arguments.address,
                                                    " does not show whether it has other jobs: ",
                                                    called.message(), ". ", nevertheless));
  }
  for (const v1::JobStatus& job : jobs.jobs()) {
    if (job.state() == v1::JOB_STATE_FINISHED) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "The aggregator has the job ", job.job(), " (", Word(job.state()),
        "), from which a bench would take bandwidth. Wait until it ends; ", nevertheless));
  }
  return absl::OkStatus();
}

// The error of the worker that failed first: those of the others follow from it.
absl::Status RunAll(std::vector<std::unique_ptr<BenchWorker>>& workers) {
  Mutex mutex;
  absl::Status first;
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (const std::unique_ptr<BenchWorker>& worker : workers) {
    threads.emplace_back([&mutex, &first, &worker] {
      absl::Status ran = worker->Run();
      MutexLock lock(mutex);
      if (first.ok()) first = std::move(ran);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

double GigabytesPerSecond(uint64_t bytes, absl::Duration time) {
  return static_cast<double>(bytes) / 1e9 / absl::ToDoubleSeconds(time);
}

std::string AsTable(const Arguments& arguments, const Measured& small, const Measured& model) {
  const uint64_t moved = 2 * arguments.workers * arguments.model_bytes;
  TextTable table({"ROUND", "MEDIAN", "SLOWEST", "BANDWIDTH"});
  table.Add({"1 KiB", ShowTime(small.median), ShowTime(small.slowest), ""});
  table.Add({Size(arguments.model_bytes), ShowTime(model.median), ShowTime(model.slowest),
             absl::StrFormat("%.2f GB/s of a model, %.2f GB/s on the wire",
                             GigabytesPerSecond(arguments.model_bytes, model.median),
                             GigabytesPerSecond(moved, model.median))});
  return table.Text();
}

std::string AsJson(const Arguments& arguments, const Measured& small, const Measured& model) {
  const auto times = [](const Measured& measured) {
    return nlohmann::ordered_json{{"median_seconds", absl::ToDoubleSeconds(measured.median)},
                                  {"slowest_seconds", absl::ToDoubleSeconds(measured.slowest)}};
  };
  const nlohmann::ordered_json json = {{"workers", arguments.workers},
                                       {"rounds", arguments.rounds},
                                       {"model_bytes", arguments.model_bytes},
                                       {"small_round", times(small)},
                                       {"round", times(model)}};
  return json.dump();
}

}  // namespace

absl::Status RunBench(const Arguments& given) {
  Arguments arguments = given;
  if (arguments.workers == 0) arguments.workers = kWorkersByDefault;
  if (arguments.model_bytes == 0) arguments.model_bytes = kModelByDefault;
  if (arguments.workers > kMostBenchWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers is ", arguments.workers, ": they run in this process, so write at most ",
        kMostBenchWorkers, ", and start more processes with --beside-others"));
  }
  if (!arguments.beside_others) {
    if (absl::Status alone = CheckThatNobodyTrains(arguments); !alone.ok()) return alone;
  }
  const std::string job = NameOfJob(arguments);
  MonotonicClock clock;
  std::vector<std::unique_ptr<BenchWorker>> workers;
  for (uint32_t i = 0; i < arguments.workers; ++i) {
    workers.push_back(std::make_unique<BenchWorker>(arguments, job, i, arguments.workers, clock));
  }
  if (absl::Status ran = RunAll(workers); !ran.ok()) return ran;
  const Measured small = Summarise(workers[0]->small);
  const Measured model = Summarise(workers[0]->model);
  Print(arguments.format == Format::kTable
            ? AsTable(arguments, small, model)
            : Structured(AsJson(arguments, small, model), arguments.format));
  return absl::OkStatus();
}

}  // namespace basin::aggregator
