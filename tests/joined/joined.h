// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A job of real workers and the real engine in one process; see network.h.
//
// Thread contract: that of the parts.

#ifndef BASIN_TESTS_JOINED_JOINED_H_
#define BASIN_TESTS_JOINED_JOINED_H_

#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/engine/engine.h"
#include "client/transport/worker.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_reducer.h"
#include "proto/wire/status_detail.h"
#include "runtime/clock.h"
#include "tests/joined/network.h"

namespace basin::joined {

constexpr absl::Duration kLong = absl::Minutes(1);
constexpr char kLane[] = "model";

class Notes : public aggregator::NoteSink {
 public:
  void OnNote(const aggregator::Note&, absl::Time) override {}
};

inline ErrorCode CodeOf(const absl::Status& status) { return wire::ToError(status).code; }

// The service's side.
class Service {
 public:
  Service(Network& network, Clock& clock, aggregator::Config config) : network_(network) {
    aggregator::EngineOptions options;
    options.core = std::move(config);
    options.reduce_threads = 2;
    engine_ = std::make_unique<aggregator::Engine>(options, clock, *reducer_, notes_, nullptr);
    engine_->Start(network_);
    network_.Serve(engine_.get());
  }
  ~Service() {
    network_.Serve(nullptr);
    engine_->Stop();
  }
  aggregator::Engine& engine() { return *engine_; }

 private:
  Network& network_;
  Notes notes_;
  std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  std::unique_ptr<aggregator::Engine> engine_;
};

// A trainer with two tensors, "weight" (several chunks and a rest) and "bias".
class Trainer {
 public:
  Trainer(Network& network, Clock& clock, const std::string& id, JobSettings settings)
      : connector_(network.ConnectorFor(id)) {
    client::WorkerOptions options;
    options.core.job = "job";
    options.core.run = "run";
    options.core.worker = id;
    options.core.fresh = true;  // A new job: no window of recovery at the start.
    options.core.settings = settings;
    absl::StatusOr<std::unique_ptr<client::Worker>> worker =
        client::Worker::Connect(std::move(options), *connector_, clock);
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    const auto model =
        worker_->Register(kLane, LaneKind::kGradient,
                          {{"weight", DType::kF32, {kWeights}}, {"bias", DType::kF32, {3}}});
    EXPECT_TRUE(model.ok()) << model.status();
    lane_ = model->lane;
    EXPECT_TRUE(worker_->Call(client::DeclareReady{}).ok());
  }

  client::Worker& worker() { return *worker_; }
  client::LaneHandle lane() const { return lane_; }
  void Die() { worker_.reset(); }
  absl::Status AwaitMember() { return worker_->AwaitMember(kLong); }

  // One round whose gradients are `value` everywhere; the result is in `weight` and `bias`.
  client::RoundOutcome Step(float value, RoundSpec spec = Sum()) {
    Contribute(value, spec);
    return Finish();
  }
  void Contribute(float value, RoundSpec spec = Sum(), uint32_t represents = 0) {
    sent_weight_.assign(kWeights, value);
    sent_bias_.assign(3, value);
    client::BeginRound begin;
    begin.lane = lane_;
    begin.spec = spec;
    begin.represents = represents;
    EXPECT_TRUE(worker_->Begin(begin).ok());
    EXPECT_TRUE(
        worker_->Push(lane_, {1, sent_bias_.data(), sent_bias_.size() * sizeof(float)}).ok());
    EXPECT_TRUE(
        worker_->Push(lane_, {0, sent_weight_.data(), sent_weight_.size() * sizeof(float)}).ok());
    const absl::Status committed = worker_->Commit(lane_);
    EXPECT_TRUE(committed.ok()) << committed;
  }
  client::RoundOutcome Finish(absl::Duration timeout = kLong) {
    client::RoundOutcome outcome = worker_->Wait(lane_, timeout);
    if (outcome.ok()) {
      weight.resize(kWeights);
      bias.resize(3);
      EXPECT_TRUE((*outcome)->CopyTo(0, weight.data(), weight.size() * sizeof(float)).ok());
      EXPECT_TRUE((*outcome)->CopyTo(1, bias.data(), bias.size() * sizeof(float)).ok());
    }
    return outcome;
  }
  // The value that the whole result has; NaN when it is not the same everywhere.
  float result() const {
    for (const float x : weight) {
      if (x != bias[0]) return std::nanf("");
    }
    return bias[0];
  }

  static RoundSpec Sum() {
    RoundSpec spec;
    spec.op = ReduceOp::kSum;
    return spec;
  }

  static constexpr size_t kWeights = 5 * kChunkBytes / sizeof(float) + 1234;
  std::vector<float> weight;
  std::vector<float> bias;

 private:
  const std::unique_ptr<client::Connector> connector_;
  std::unique_ptr<client::Worker> worker_;
  client::LaneHandle lane_ = 0;
  std::vector<float> sent_weight_;
  std::vector<float> sent_bias_;
};

// Runs `step` for all trainers at once, as their processes would, and returns the results.
template <typename F>
auto Together(const std::vector<Trainer*>& trainers, F step) {
  using Result = decltype(step(*trainers[0], size_t{0}));
  std::vector<std::future<Result>> running;
  running.reserve(trainers.size());
  for (size_t i = 0; i < trainers.size(); ++i) {
    running.push_back(std::async(std::launch::async,
                                 [&step, trainer = trainers[i], i] { return step(*trainer, i); }));
  }
  std::vector<Result> results;
  results.reserve(running.size());
  for (auto& one : running) results.push_back(one.get());
  return results;
}

// Worker i contributes 2^i, so a sum shows the counted workers.
inline float Bit(size_t i) { return std::ldexp(1.0F, static_cast<int>(i)); }

class Joined : public testing::TestWithParam<uint64_t> {
 protected:
  Joined() : network(GetParam()) {
    config.frame_bytes = 2 * kChunkBytes;
    service = std::make_unique<Service>(network, clock, config);
  }
  ~Joined() override {
    trainers.clear();
    service.reset();
  }

  // Workers "w0", "w1", ...; all are members when this returns.
  std::vector<Trainer*> Launch(size_t count, JobSettings settings) {
    std::vector<Trainer*> launched;
    for (size_t i = 0; i < count; ++i) launched.push_back(Add(settings));
    for (const absl::Status& status :
         Together(launched, [](Trainer&trainer, size_t) { return trainer.AwaitMember(); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return launched;
  }
  Trainer* Add(JobSettings settings) {
    trainers.push_back(
        std::make_unique<Trainer>(network, clock, "w" + std::to_string(trainers.size()), settings));
    return trainers.back().get();
  }
  // A round of these, each with the bit of its place in the list.
  std::vector<client::RoundOutcome> Round(const std::vector<Trainer*>& members) {
    return Together(members, [](Trainer& trainer, size_t i) { return trainer.Step(Bit(i)); });
  }
  static void ExpectSum(const std::vector<Trainer*>& members,
                        const std::vector<client::RoundOutcome>& outcomes, float sum) {
    for (size_t i = 0; i < members.size(); ++i) {
      ASSERT_TRUE(outcomes[i].ok()) << outcomes[i].status();
      EXPECT_EQ(members[i]->result(), sum);
      EXPECT_EQ((*outcomes[i])->record(), (*outcomes[0])->record());
    }
  }

  MonotonicClock clock;
  aggregator::Config config;
  Network network;
  std::unique_ptr<Service> service;
  std::vector<std::unique_ptr<Trainer>> trainers;
};

}  // namespace basin::joined

#endif  // BASIN_TESTS_JOINED_JOINED_H_
