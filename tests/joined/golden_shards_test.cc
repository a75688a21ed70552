// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The golden vectors through real workers, a real aggregator and real shards, over gRPC: every
// placement gives the bits that one process gives.
//
// The values of a case repeat over the tensors of a lane, each tensor from another one of them on,
// so a chunk that is cut, ordered or scaled wrongly has other bits.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/shard/coordinator_link.h"
#include "aggregator/shard/shard_engine.h"
#include "aggregator/transport/server.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_reducer.h"
#include "runtime/clock.h"
#include "tests/joined/over_grpc.h"
#include "tests/kernels/golden_case.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

using kernels::contract::ElementBytes;
using kernels::contract::GoldenCase;
using kernels::contract::GoldenWorker;
using kernels::contract::Repeat;

constexpr size_t kMostWorkers = 4;
constexpr size_t kSmallTensors = 11;
constexpr size_t kLargeChunks = 6;
// One case of so many also has a tensor that is cut within.
constexpr size_t kLargeEvery = 40;

// A shard that takes the first and the last contribution of a reduction for each other's.
class SwappingReducer : public kernels::Reducer {
 public:
  std::string_view name() const override { return right_->name(); }
  std::optional<kernels::Failure> Reduce(const kernels::ReductionPlan& plan,
                                         const kernels::Input* inputs, const kernels::Span& span,
                                         const kernels::Output& output,
                                         kernels::Facts* facts) const override {
    std::vector<kernels::Input> swapped(inputs,
                                        inputs + plan.terms().back().contribution + size_t{1});
    std::swap(swapped[plan.terms().front().contribution], swapped.back());
    return right_->Reduce(plan, swapped.data(), span, output, facts);
  }

 private:
  std::unique_ptr<kernels::Reducer> right_ = kernels::MakeCpuReducer();
};

class Shard {
 public:
  Shard(int coordinator, const std::string& name,
        std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer())
      : reducer_(std::move(reducer)),
        link_(OptionsFor(coordinator, name)),
        engine_(name, {}, clock_, *reducer_, nullptr, link_,
                [](const char*, bool, const std::string&) {}),
        server_(ServerAt()) {
    engine_.Start(server_);
    const absl::StatusOr<int> port = server_.Start(engine_);
    EXPECT_TRUE(port.ok()) << port.status();
    link_.Start(engine_, absl::StrCat("127.0.0.1:", *port));
    Await([this] { return link_.view().ok(); });
  }
  ~Shard() {
    link_.Stop();
    server_.Stop();
    engine_.Stop();
  }

  uint64_t reductions() {
    Mutex mutex;
    Condition done;
    std::optional<uint64_t> seen;
    engine_.Inspect([&](const aggregator::ShardSnapshot& snapshot) {
      MutexLock lock(mutex);
      seen = snapshot.counters.reductions;
      done.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!seen.has_value()) done.Wait(mutex);
    return *seen;
  }

 private:
  static aggregator::LinkOptions OptionsFor(int coordinator, const std::string& name) {
    aggregator::LinkOptions options;
    options.coordinators = {absl::StrCat("127.0.0.1:", coordinator)};
    options.hello.name = name;
    return options;
  }
  static aggregator::ServerOptions ServerAt() {
    aggregator::ServerOptions options;
    options.address = "127.0.0.1:0";
    return options;
  }

  MonotonicClock clock_;
  const std::unique_ptr<kernels::Reducer> reducer_;
  aggregator::CoordinatorLink link_;
  aggregator::ShardEngine engine_;
  aggregator::GrpcServer server_;
};

// The tensors of one dtype: small ones, of which each has a chunk, or one of several chunks.
class GoldenLane {
 public:
  GoldenLane() = default;
  GoldenLane(DType dtype, bool large) : dtype_(dtype), name_(absl::StrCat(DTypeName(dtype))) {
    if (large) {
      absl::StrAppend(&name_, "/large");
      Add(kLargeChunks * kChunkBytes / ElementSize(dtype) - 3);
      return;
    }
    for (size_t i = 0; i < kSmallTensors; ++i) Add(9 + i % 4);
  }

  DType dtype() const { return dtype_; }
  const std::string& name() const { return name_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // What the tensor has, if the elements of a case are these.
  ElementBytes Of(const std::vector<uint64_t>& values, size_t tensor) const {
    return Repeat(values, dtype_, tensors_[tensor].shape[0], 3 * tensor);
  }

 private:
  void Add(uint64_t elements) {
    tensors_.push_back({absl::StrCat("t", tensors_.size()), dtype_, {elements}});
  }

  DType dtype_ = DType::kUnspecified;
  std::string name_;
  std::vector<TensorSpec> tensors_;
};

RoundSpec SpecOf(const GoldenCase& golden) {
  RoundSpec spec;
  spec.op = kernels::contract::OpFromName(golden.Line("op"));
  spec.prescale = kernels::contract::DoubleFromHex(golden.Line("prescale"));
  spec.postscale = kernels::contract::DoubleFromHex(golden.Line("postscale"));
  spec.predivide = kernels::contract::DoubleFromHex(golden.Line("predivide"));
  if (golden.Line("kind") == "SUM") spec.kind = ContributionKind::kSum;
  if (golden.Line("denominator") == "PRESENT") spec.denominator = Denominator::kPresent;
  if (spec.op == ReduceOp::kWeightedAverage) spec.weight_by = WeightBy::kSamples;
  return spec;
}

// A tensor that was pushed with weight 0 alone, while others have weight, is averaged as zeros.
bool IsZero(const GoldenCase& golden) {
  const auto pushes = [](const GoldenWorker& worker) { return !worker.contribution.skipped; };
  return golden.Line("outcome") == "NONE" && golden.Line("denominator") == "ALL" &&
         std::any_of(golden.workers.begin(), golden.workers.end(), pushes);
}

bool HasResult(const GoldenCase& golden) {
  return golden.Line("outcome") == "VALUES" || IsZero(golden);
}

std::vector<uint64_t> ResultOf(const GoldenCase& golden) {
  return IsZero(golden) ? std::vector<uint64_t>{0} : golden.Values();
}

// A trainer of the worker with this id, in a job of so many.
class Contributor {
 public:
  Contributor(int port, const std::string& id, uint32_t workers)
      : connector_(absl::StrCat("127.0.0.1:", port), {}, {}, {}, "", false) {
    client::WorkerOptions options;
    options.core.job = absl::StrCat("golden-", workers);
    options.core.run = "run";
    options.core.worker = id;
    options.core.fresh = true;
    options.core.settings = {workers, workers, workers};
    auto worker = client::Worker::Connect(std::move(options), connector_, clock_);
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
  }

  void Register(const GoldenLane& lane) {
    const auto registered = worker_->Register(lane.name(), LaneKind::kGradient, lane.tensors());
    ASSERT_TRUE(registered.ok()) << registered.status();
    lanes_[lane.name()] = {registered->lane, registered->tensors};
  }
  void DeclareReady() { EXPECT_TRUE(worker_->Call(client::DeclareReady{}).ok()); }
  absl::Status AwaitMember() { return worker_->AwaitMember(kLong); }

  void Contribute(const GoldenCase& golden, const GoldenLane& lane, const GoldenWorker& as) {
    const Handles& handles = lanes_.at(lane.name());
    client::BeginRound begin;
    begin.lane = handles.lane;
    begin.spec = SpecOf(golden);
    begin.counts.samples = as.contribution.weight;
    const absl::Status begun = worker_->Begin(begin);
    ASSERT_TRUE(begun.ok()) << golden.name << ": " << begun;
    sent_.clear();
    std::vector<client::Source> sources;
    for (size_t i = 0; i < lane.tensors().size(); ++i) {
      if (as.contribution.skipped) {
        ASSERT_TRUE(worker_->Skip(handles.lane, handles.tensors[i]).ok());
        continue;
      }
      sent_.push_back(lane.Of(as.values, i));
      sources.emplace_back(handles.tensors[i], sent_.back().data(), sent_.back().size());
    }
    ASSERT_TRUE(worker_->Push(handles.lane, absl::MakeSpan(sources)).ok());
    const absl::Status committed = worker_->Commit(handles.lane);
    ASSERT_TRUE(committed.ok()) << golden.name << ": " << committed;
  }

  // How the result differs from the golden one; empty: in nothing.
  std::string Difference(const GoldenCase& golden, const GoldenLane& lane) {
    const Handles& handles = lanes_.at(lane.name());
    const client::RoundOutcome outcome = worker_->Wait(handles.lane, kLong);
    if (!outcome.ok()) return absl::StrCat(golden.name, ": ", outcome.status().ToString());
    const client::RoundResult& result = **outcome;
    for (size_t i = 0; i < lane.tensors().size(); ++i) {
      const client::TensorHandle tensor = handles.tensors[i];
      const std::string which = absl::StrCat(golden.name, ", tensor ", i);
      if (result.Has(tensor) != HasResult(golden)) {
        return absl::StrCat(which, HasResult(golden) ? " has no result" : " has a result");
      }
      if (!HasResult(golden)) continue;
      if (const uint64_t divisor = result.FactsOf(tensor).divisor;
          absl::StrCat(divisor) != golden.Line("divisor")) {
        return absl::StrCat(which, " is divided by ", divisor);
      }
      const ElementBytes expected = lane.Of(ResultOf(golden), i);
      ElementBytes actual(expected.size());
      const absl::Status copied = result.CopyTo(tensor, actual.data(), actual.size());
      if (!copied.ok()) return absl::StrCat(which, ": ", copied.ToString());
      if (actual != expected) return absl::StrCat(which, " has other bits");
    }
    return "";
  }

 private:
  struct Handles {
    client::LaneHandle lane = 0;
    std::vector<client::TensorHandle> tensors;
  };

  MonotonicClock clock_;
  client::GrpcConnector connector_;
  std::unique_ptr<client::Worker> worker_;
  std::map<std::string, Handles> lanes_;
  std::vector<ElementBytes> sent_;  // Until the round has ended.
};

// The cases that a job of this many workers can be given: whose values travel and come back in the
// dtype of the tensor, and whose weights are counts that a trainer may have.
std::vector<GoldenCase> CasesFor(DType dtype, size_t workers) {
  std::vector<GoldenCase> cases = kernels::contract::ReadGoldenCases(
      absl::StrCat(BASIN_GOLDEN_FOLDER, "/reduce-", DTypeName(dtype), ".txt"));
  EXPECT_FALSE(cases.empty()) << DTypeName(dtype);
  const auto other = [workers](const GoldenCase& golden) {
    return golden.workers.size() != workers || golden.Line("elements") == "0" ||
           std::any_of(golden.workers.begin(), golden.workers.end(),
                       [](const auto& worker) { return worker.contribution.weight > kMaxCount; });
  };
  cases.erase(std::remove_if(cases.begin(), cases.end(), other), cases.end());
  return cases;
}

struct Spread {
  size_t processes = 1;  // The aggregator is one of them.
  bool coordinator_share = true;
};

class GoldenShards : public testing::TestWithParam<Spread> {};

TEST_P(GoldenShards, EveryPlacementGivesTheBitsOfTheGoldenVectors) {
  aggregator::Config config;
  config.least_share = 0;
  config.coordinator_share = GetParam().coordinator_share;
  Aggregator coordinator(1, 0, {}, nullptr, false, 0, nullptr, config);
  std::vector<std::unique_ptr<Shard>> shards;
  for (size_t i = 1; i < GetParam().processes; ++i) {
    shards.push_back(std::make_unique<Shard>(coordinator.port(), absl::StrCat("s-", i)));
  }
  const std::vector<DType> dtypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                     DType::kI64, DType::kI32, DType::kU8};
  size_t compared = 0;
  for (uint32_t workers = 1; workers <= kMostWorkers; ++workers) {
    std::vector<std::unique_ptr<Contributor>> job;
    for (uint32_t i = 0; i < workers; ++i) {
      job.push_back(
          std::make_unique<Contributor>(coordinator.port(), absl::StrCat("w0", i), workers));
      for (const DType dtype : dtypes) {
        for (const bool large : {false, true}) job.back()->Register(GoldenLane(dtype, large));
      }
      job.back()->DeclareReady();
    }
    for (const auto& worker : job) ASSERT_TRUE(worker->AwaitMember().ok());
    for (const DType dtype : dtypes) {
      for (const GoldenCase& golden : CasesFor(dtype, workers)) {
        const GoldenLane lane(dtype, ++compared % kLargeEvery == 0);
        for (size_t i = 0; i < job.size(); ++i) {
          job[i]->Contribute(golden, lane, golden.workers[i]);
        }
        for (const auto& worker : job) ASSERT_EQ(worker->Difference(golden, lane), "");
      }
    }
  }
  EXPECT_GT(compared, 700u);
  // Otherwise this would show nothing.
  for (const auto& shard : shards) EXPECT_GT(shard->reductions(), compared / 2);
}

// What the test above relies on: the vectors show that one shard of two is wrong.
TEST(GoldenShardsTest, AShardThatMixesUpTwoContributionsIsFound) {
  constexpr uint32_t kWorkers = 3;
  aggregator::Config config;
  config.least_share = 0;
  Aggregator coordinator(1, 0, {}, nullptr, false, 0, nullptr, config);
  Shard shard(coordinator.port(), "s-1", std::make_unique<SwappingReducer>());
  const GoldenLane lane(DType::kF32, false);
  std::vector<std::unique_ptr<Contributor>> job;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    job.push_back(
        std::make_unique<Contributor>(coordinator.port(), absl::StrCat("w0", i), kWorkers));
    job.back()->Register(lane);
    job.back()->DeclareReady();
  }
  for (const auto& worker : job) ASSERT_TRUE(worker->AwaitMember().ok());
  size_t found = 0;
  for (const GoldenCase& golden : CasesFor(lane.dtype(), kWorkers)) {
    for (uint32_t i = 0; i < kWorkers; ++i) job[i]->Contribute(golden, lane, golden.workers[i]);
    std::vector<std::string> differences;
    for (const auto& worker : job) differences.push_back(worker->Difference(golden, lane));
    // All workers have the same result, also a wrong one.
    for (const std::string& each : differences) ASSERT_EQ(each, differences[0]);
    if (differences[0].empty()) continue;
    ASSERT_THAT(differences[0], testing::HasSubstr("has other bits"));
    ++found;
  }
  EXPECT_GT(found, 0u);
  RecordProperty("found", static_cast<int>(found));
}

INSTANTIATE_TEST_SUITE_P(Shards, GoldenShards,
                         testing::Values(Spread{1}, Spread{2}, Spread{3}, Spread{5},
                                         Spread{3, false}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.processes, "Processes",
                                               info.param.coordinator_share ? "" : "ButOne");
                         });

}  // namespace
}  // namespace basin::joined
