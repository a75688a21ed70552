// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Real workers and the real aggregator, over gRPC and TCP, in one process.
//
// Thread contract: each object on one thread.

#ifndef BASIN_TESTS_JOINED_OVER_GRPC_H_
#define BASIN_TESTS_JOINED_OVER_GRPC_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/engine/engine.h"
#include "aggregator/tls/sessions.h"
#include "aggregator/transport/server.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/worker.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_reducer.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::joined {

inline constexpr absl::Duration kLong = absl::Minutes(1);
// Several frames and a rest.
inline constexpr size_t kElements = 9 * kChunkBytes / sizeof(float) + 1234;

class Notes : public aggregator::NoteSink {
 public:
  void OnNote(const aggregator::Note&, absl::Time) override {}
};

class Aggregator {
 public:
  explicit Aggregator(Term term, int port = 0, const ServerTls& tls = {},
                      aggregator::Gatekeeper* gatekeeper = nullptr, bool local = false,
                      uint64_t local_bytes = uint64_t{1} << 40,
                      std::unique_ptr<accelerator::ReduceDevices> devices = nullptr,
                      const aggregator::Config& core = {})
      : devices_(std::move(devices)) {
    aggregator::EngineOptions options;
    options.core = core;
    options.core.term = term;
    options.core.lease = absl::Seconds(2);
    options.shared_result_bytes = local ? uint64_t{1} << 30 : 0;
    engine_ = std::make_unique<aggregator::Engine>(options, clock_, *reducer_, notes_, nullptr,
                                                   devices_.get());
    aggregator::ServerOptions at;
    at.address = "127.0.0.1:" + std::to_string(port);
    if (tls.on()) {
      auto sessions = aggregator::TlsSessions::Open(tls);
      EXPECT_TRUE(sessions.ok()) << sessions.status();
      tls_ = *std::move(sessions);
      at.tls = [this] {
        tls_->Refresh().IgnoreError();
        return tls_->InForce();
      };
    }
    at.gatekeeper = gatekeeper;
    at.local = local;
    at.local_bytes = local_bytes;
    at.devices = devices_.get();
    at.on_device_refused = [this](const std::string& what) {
      MutexLock lock(mutex_);
      reports_.push_back(what);
    };
    at.report = [this](const std::string&, const std::string&, const std::string& what) {
      MutexLock lock(mutex_);
      reports_.push_back(what);
    };
    server_ = std::make_unique<aggregator::GrpcServer>(at);
    const absl::StatusOr<int> started = server_->Start(*engine_);
    EXPECT_TRUE(started.ok()) << started.status();
  }
  ~Aggregator() { server_->Stop(); }

  int port() const { return server_->port(); }
  const aggregator::TransportCounters& counters() const { return server_->counters(); }
  aggregator::GrpcServer& server() { return *server_; }
  aggregator::Engine& engine() { return *engine_; }
  // What peers did wrong, as the operator sees it.
  std::vector<std::string> reports() const {
    MutexLock lock(mutex_);
    return reports_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mutex_);
  MonotonicClock clock_;
  Notes notes_;
  std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  const std::unique_ptr<accelerator::ReduceDevices> devices_;
  std::unique_ptr<aggregator::Engine> engine_;
  std::unique_ptr<aggregator::TlsSessions> tls_;
  std::unique_ptr<aggregator::GrpcServer> server_;
};

class Trainer {
 public:
  Trainer(int port, const std::string& id, JobSettings settings, const ClientTls& tls = {},
          const std::string& token_file = "", bool local = true)
      : connector_("127.0.0.1:" + std::to_string(port), tls, {}, {}, token_file, local) {
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
    EXPECT_TRUE(worker_->Call(client::DeclareReady{}).ok());
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
    if (samples.has_value()) {
      begin.spec.op = ReduceOp::kWeightedAverage;
      begin.spec.weight_by = WeightBy::kSamples;
      begin.counts.samples = samples;
    }
    EXPECT_TRUE(worker_->Begin(begin).ok());
    EXPECT_TRUE(worker_->Push(lane_, {1, bias_.data(), bias_.size() * sizeof(float)}).ok());
    const float* from = weight_.data();
    if (registered != nullptr) {
      std::fill_n(registered, kElements, value);
      from = registered;
    }
    EXPECT_TRUE(worker_->Push(lane_, {0, from, kElements * sizeof(float)}).ok());
  }
  // From now on it keeps the weight's gradient in memory that the aggregator may read.
  void Allocate() {
    const absl::StatusOr<void*> memory = worker_->memory().Allocate(kElements * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status();
    registered = static_cast<float*>(*memory);
  }
  float* registered = nullptr;  // By Allocate.
  // With a number, rounds are averages weighted by samples, of which this worker has so many.
  std::optional<uint64_t> samples;

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

  // The same, whatever its values are.
  void FinishAny() {
    const client::RoundOutcome outcome = worker_->Wait(lane_, kLong);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    result = *outcome;
    EXPECT_TRUE(result->CopyTo(0, weight_.data(), weight_.size() * sizeof(float)).ok());
  }
  const std::vector<float>& weight() const { return weight_; }

  bool Shares() { return connector_.shared() != nullptr; }
  // Whether it has offered memory, and all of that has this value.
  bool SharesOnly(float value) {
    const std::shared_ptr<Segments> shared = connector_.shared();
    if (shared == nullptr || shared->offered().empty()) return false;
    for (const std::shared_ptr<Segment>& segment : shared->offered()) {
      const auto* at = reinterpret_cast<const float*>(segment->data());
      const auto* end = at + segment->size() / sizeof(float);
      if (std::any_of(at, end, [&](float x) { return x != value; })) return false;
    }
    return true;
  }
  // Writes to all memory that this worker shares, as a faulty trainer might.
  void Scribble(float value) {
    const std::shared_ptr<Segments> shared = connector_.shared();
    ASSERT_NE(shared, nullptr);
    for (const std::shared_ptr<Segment>& segment : shared->offered()) {
      auto* to = reinterpret_cast<float*>(segment->writable());
      std::fill(to, to + segment->size() / sizeof(float), value);
    }
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

inline std::vector<std::unique_ptr<Trainer>> Join(int port, uint32_t workers, uint32_t min,
                                                  const ClientTls& tls = {}) {
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (uint32_t i = 0; i < workers; ++i) {
    trainers.push_back(std::make_unique<Trainer>(port, "w" + std::to_string(i),
                                                 JobSettings{min, workers, workers}, tls));
  }
  for (const auto& trainer : trainers) {
    const absl::Status member = trainer->worker().AwaitMember(kLong);
    EXPECT_TRUE(member.ok()) << member;
  }
  return trainers;
}

}  // namespace basin::joined

#endif  // BASIN_TESTS_JOINED_OVER_GRPC_H_
