// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The service as it is used: real workers and the real aggregator, over gRPC and TCP, in one
// process.

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/engine/engine.h"
#include "aggregator/transport/server.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_reducer.h"
#include "proto/wire/status_detail.h"
#include "runtime/clock.h"

namespace basin::joined {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Minutes(1);
// Several frames and a rest.
constexpr size_t kElements = 9 * kChunkBytes / sizeof(float) + 1234;

class Notes : public aggregator::Observer {
 public:
  void OnNote(const aggregator::Note&, absl::Time) override {}
};

class Aggregator {
 public:
  explicit Aggregator(Term term, int port = 0) {
    aggregator::EngineOptions options;
    options.core.term = term;
    options.core.lease = absl::Seconds(2);
    engine_ = std::make_unique<aggregator::Engine>(options, clock_, *reducer_, notes_, nullptr);
    aggregator::ServerOptions at;
    at.address = "127.0.0.1:" + std::to_string(port);
    server_ = std::make_unique<aggregator::GrpcServer>(at);
    const absl::StatusOr<int> started = server_->Start(*engine_);
    EXPECT_TRUE(started.ok()) << started.status();
  }
  ~Aggregator() { server_->Stop(); }

  int port() const { return server_->port(); }

 private:
  MonotonicClock clock_;
  Notes notes_;
  std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  std::unique_ptr<aggregator::Engine> engine_;
  std::unique_ptr<aggregator::GrpcServer> server_;
};

class Trainer {
 public:
  Trainer(int port, const std::string& id, JobSettings settings)
      : connector_("127.0.0.1:" + std::to_string(port)) {
    client::WorkerOptions options;
    options.core.job = "job";
    options.core.run = "run";
    options.core.worker = id;
    options.core.fresh = true;
    options.core.settings = settings;
    auto worker = client::Worker::Connect(std::move(options), connector_, clock_);
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    const auto model =
        worker_->Register("model", LaneKind::kGradient,
                          {{"weight", DType::kF32, {kElements}}, {"bias", DType::kF32, {3}}});
    EXPECT_TRUE(model.ok()) << model.status();
    lane_ = model->lane;
    EXPECT_TRUE(worker_->Ready().ok());
  }
  ~Trainer() { Die(); }

  client::Worker& worker() { return *worker_; }
  void Die() { worker_.reset(); }

  void Contribute(float value) {
    weight_.assign(kElements, value);
    bias_.assign(3, value);
    client::BeginRound begin;
    begin.lane = lane_;
    begin.spec.op = ReduceOp::kSum;
    EXPECT_TRUE(worker_->Begin(begin).ok());
    EXPECT_TRUE(worker_->Push(lane_, 1, bias_.data(), bias_.size() * sizeof(float)).ok());
    EXPECT_TRUE(worker_->Push(lane_, 0, weight_.data(), weight_.size() * sizeof(float)).ok());
  }
  void Commit() {
    const absl::Status committed = worker_->Commit(lane_);
    EXPECT_TRUE(committed.ok()) << committed;
  }
  // The value that the whole result has.
  float Finish() {
    const client::RoundOutcome outcome = worker_->Wait(lane_, kLong);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (!outcome.ok()) return -1;
    result = *outcome;
    EXPECT_TRUE(result->CopyTo(0, weight_.data(), weight_.size() * sizeof(float)).ok());
    EXPECT_TRUE(result->CopyTo(1, bias_.data(), bias_.size() * sizeof(float)).ok());
    for (const float x : weight_) {
      if (x != bias_[0]) return -1;
    }
    return bias_[0];
  }

  std::shared_ptr<const client::RoundResult> result;

 private:
  MonotonicClock clock_;
  client::GrpcConnector connector_;
  std::unique_ptr<client::Worker> worker_;
  client::LaneHandle lane_ = 0;
  std::vector<float> weight_;
  std::vector<float> bias_;
};

std::vector<std::unique_ptr<Trainer>> Join(int port, uint32_t workers, uint32_t min) {
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (uint32_t i = 0; i < workers; ++i) {
    trainers.push_back(std::make_unique<Trainer>(port, "w" + std::to_string(i),
                                                 JobSettings{min, workers, workers}));
  }
  for (const auto& trainer : trainers) {
    const absl::Status member = trainer->worker().AwaitMember(kLong);
    EXPECT_TRUE(member.ok()) << member;
  }
  return trainers;
}

// Worker k contributes 2^k, so that a sum shows the counted workers.
TEST(OverGrpc, RoundsAreSummedBitForBit) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 3, 3);
  for (int step = 0; step < 5; ++step) {
    for (size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->Contribute(static_cast<float>(1 << k));
      trainers[k]->Commit();
    }
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 7.0f);
    EXPECT_EQ(trainers[0]->result->record().chain, trainers[2]->result->record().chain);
  }
}

TEST(OverGrpc, Fault_W1_TheOthersGoOnWithoutAWorkerThatDies) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 3, 2);
  for (size_t k = 0; k < trainers.size(); ++k) {
    trainers[k]->Contribute(static_cast<float>(1 << k));
    if (k != 1) trainers[k]->Commit();
  }
  trainers[1]->Die();
  EXPECT_EQ(trainers[0]->Finish(), 5.0f);
  EXPECT_EQ(trainers[2]->Finish(), 5.0f);
  EXPECT_THAT(trainers[0]->result->record().next.members, ElementsAre("w0", "w2"));
}

TEST(OverGrpc, Fault_A1_ARoundOutlivesItsAggregator) {
  auto aggregator = std::make_unique<Aggregator>(1);
  const int port = aggregator->port();
  const auto trainers = Join(port, 3, 2);
  for (int step = 0; step < 3; ++step) {
    for (size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->Contribute(static_cast<float>(1 << k));
    }
    // In the middle of the round: no worker has committed, and the pushed tensors are lost.
    aggregator.reset();
    aggregator = std::make_unique<Aggregator>(static_cast<Term>(step) + 2, port);
    for (const auto& trainer : trainers) trainer->Commit();
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 7.0f);
  }
}

TEST(OverGrpc, AValueReachesWhoAsksForIt) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 2);
  std::vector<float> parameters(kElements);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i);
  const ValueKey key{"model", "parameters", 1};
  const TensorSpec spec{"parameters", DType::kF32, {kElements}};
  ASSERT_TRUE(trainers[0]
                  ->worker()
                  .Announce(key, spec, parameters.data(), parameters.size() * sizeof(float),
                            client::Hold::kInPlace)
                  .ok());
  const client::ValueOutcome value = trainers[1]->worker().Get(key, spec, "w0", kLong);
  ASSERT_TRUE(value.ok()) << value.status();
  std::vector<float> got(kElements);
  ASSERT_TRUE((*value)->CopyTo(got.data(), got.size() * sizeof(float)).ok());
  EXPECT_TRUE(got == parameters);
}

TEST(OverGrpc, Fault_W6_AWorkerThatLeavesIsNotWaitedFor) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 1);
  const absl::Status left = trainers[1]->worker().Leave();
  EXPECT_TRUE(left.ok()) << left;
  trainers[0]->Contribute(1);
  trainers[0]->Commit();
  EXPECT_EQ(trainers[0]->Finish(), 1.0f);
  EXPECT_THAT(trainers[0]->result->record().value.contributors, SizeIs(1));
}

}  // namespace
}  // namespace basin::joined
