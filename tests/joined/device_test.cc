// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Trainers whose gradients are in memory of a device that the aggregator on the same machine reads:
// whole rounds with the bits of the CPU, and what happens when one side dies, misbehaves or loses
// its device. The devices are emulated; their memory is really shared.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/transfer/reduce_devices.h"
#include "client/device/transfers.h"
#include "gtest/gtest.h"
#include "proto/wire/status_detail.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/joined/over_grpc.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

using accelerator::EmulatedStream;
using accelerator::FaultPlan;
using accelerator::Memory;

constexpr uint64_t kBudget = uint64_t{256} << 20;
constexpr uint64_t kUnlimited = uint64_t{1} << 40;

std::unique_ptr<accelerator::ReduceDevices> Emulated(const std::shared_ptr<FaultPlan>& plan,
                                                     int count = 1) {
  std::vector<accelerator::ReduceDevice> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back({"cuda:" + std::to_string(i), accelerator::MakeEmulatedDevice(plan)});
  }
  return *accelerator::ReduceDevices::Make(std::move(devices), 2, kBudget);
}

// Every dtype that has another kernel, and sizes that leave their neighbours unaligned.
std::vector<TensorSpec> ModelOnDevice() {
  return {{"weight", DType::kF32, {kElements}}, {"bias", DType::kF32, {3}},
          {"half", DType::kF16, {300'001}},     {"brain", DType::kBF16, {77}},
          {"double", DType::kF64, {70'000}},    {"count", DType::kI64, {5}},
          {"narrow", DType::kF32, {200'000}},   {"fitted", DType::kF32, {50'001}}};
}

// The bytes of worker `worker` in round `round`: finite numbers, and integers.
std::string GradientOf(const TensorSpec& spec, uint32_t worker, uint32_t round) {
  std::mt19937_64 random(worker * 1000 + round);
  std::string bytes(*TensorBytes(spec), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0x3f);
  return bytes;
}

class DeviceTrainer {
 public:
  explicit DeviceTrainer(int port, uint32_t number, uint32_t workers, bool local = true,
                         uint32_t least = 0)
      : number_(number),
        connector_(std::make_unique<client::GrpcConnector>("127.0.0.1:" + std::to_string(port),
                                                           ClientTls(), GrpcSettings(),
                                                           StreamWindow(), "", local)) {
    client::WorkerOptions options;
    options.core.job = "job";
    options.core.run = "run";
    options.core.worker = "w" + std::to_string(number);
    options.core.fresh = true;
    options.core.settings = {least == 0 ? workers : least, workers, workers};
    worker_ = *client::Worker::Connect(std::move(options), *connector_, clock_);
    transfers_ = std::make_unique<client::DeviceTransfers>(
        *worker_,
        [this](int) -> kernels::Result<std::unique_ptr<accelerator::Device>> {
          return accelerator::MakeEmulatedDevice(plan, {0, false});
        },
        uint64_t{64} << 20);
    const auto registered = worker_->Register("model", LaneKind::kGradient, model_);
    EXPECT_TRUE(registered.ok()) << registered.status();
    lane_ = registered->lane;
    for (const TensorSpec& spec : model_) {
      memory_.push_back(accelerator::AllocateForTrainer(plan, *TensorBytes(spec)));
    }
    EXPECT_TRUE(worker_->Call(client::DeclareReady{}).ok());
  }
  ~DeviceTrainer() { Die(); }
  void Die() {
    transfers_.reset();
    worker_.reset();
    connector_.reset();
  }

  client::Worker& worker() { return *worker_; }

  // `on_device`: the gradients are there; otherwise in memory of the host.
  void Contribute(uint32_t round, bool on_device = true) {
    client::BeginRound begin;
    begin.lane = lane_;
    begin.spec.op = ReduceOp::kSum;
    const absl::Status begun = transfers_->Begin(begin);
    ASSERT_TRUE(begun.ok()) << begun;
    std::vector<client::Source> pushed;
    gradients_.clear();
    for (client::TensorHandle tensor = 0; tensor < model_.size(); ++tensor) {
      gradients_.push_back(GradientOf(model_[tensor], number_, round));
    }
    for (client::TensorHandle tensor = 0; tensor < model_.size(); ++tensor) {
      const std::string& gradient = gradients_[tensor];
      void* const data = on_device ? memory_[tensor].get() : gradients_[tensor].data();
      pushed.push_back({tensor, data, gradient.size(), EncodingOf(tensor)});
    }
    if (!on_device) {
      const absl::Status status = worker_->Push(lane_, absl::MakeSpan(pushed));
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    stream_.Add([this] {
      for (size_t i = 0; i < gradients_.size(); ++i) {
        std::memcpy(memory_[i].get(), gradients_[i].data(), gradients_[i].size());
      }
    });
    const absl::Status status = transfers_->Push(lane_, pushed, {0, &stream_});
    EXPECT_TRUE(status.ok()) << status;
  }
  void Commit() {
    absl::Status status = transfers_->WaitUntilPassed(lane_);
    EXPECT_TRUE(status.ok()) << status;
    status = worker_->Commit(lane_);
    EXPECT_TRUE(status.ok()) << status;
  }
  // The same, if the round may have been aborted before.
  void TryCommit() {
    if (transfers_->WaitUntilPassed(lane_).ok()) worker_->Commit(lane_).IgnoreError();
  }
  absl::Status WaitUntilPassed() { return transfers_->WaitUntilPassed(lane_); }
  void Withdraw() {
    transfers_->Drop(lane_);
    EXPECT_TRUE(worker_->Withdraw({lane_, "bad batch"}).ok());
  }
  // The results of all tensors.
  std::vector<std::string> Finish() {
    const client::RoundOutcome outcome = Wait();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    result = outcome.ok() ? *outcome : nullptr;
    if (result == nullptr) return {};
    std::vector<client::RoundResult::Destination> to;
    for (client::TensorHandle tensor = 0; tensor < model_.size(); ++tensor) {
      to.push_back({tensor, memory_[tensor].get(), *TensorBytes(model_[tensor])});
    }
    const absl::Status copied = transfers_->Copy(*result, to, {0, &stream_});
    EXPECT_TRUE(copied.ok()) << copied;
    stream_.Synchronize();
    std::vector<std::string> results;
    for (client::TensorHandle tensor = 0; tensor < model_.size(); ++tensor) {
      results.emplace_back(static_cast<const char*>(memory_[tensor].get()),
                           *TensorBytes(model_[tensor]));
    }
    return results;
  }
  client::RoundOutcome Wait() { return worker_->Wait(lane_, kLong); }

  bool Shares() { return connector_->shared() != nullptr; }
  // Writes to the contributions that are in memory of the device, as a faulty trainer might.
  void Scribble(char byte) {
    for (const auto& segment : connector_->shared()->offered_devices()) {
      std::memset(segment->data(), byte, segment->size());
    }
  }

  const std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>();
  std::shared_ptr<const client::RoundResult> result;

 private:
  static Encoding EncodingOf(client::TensorHandle tensor) {
    if (tensor == 6) return {DType::kBF16, 3};
    if (tensor == 7) return {DType::kF16, kernels::kFitExponent};
    return {};
  }

  const uint32_t number_;
  const std::vector<TensorSpec> model_ = ModelOnDevice();
  MonotonicClock clock_;
  std::unique_ptr<client::GrpcConnector> connector_;
  std::unique_ptr<client::Worker> worker_;
  std::vector<Memory> memory_;
  std::vector<std::string> gradients_;
  EmulatedStream stream_;
  std::unique_ptr<client::DeviceTransfers> transfers_;
  client::LaneHandle lane_ = 0;
};

using Trainers = std::vector<std::unique_ptr<DeviceTrainer>>;

Trainers JoinWithDevices(int port, uint32_t workers, bool local = true, uint32_t least = 0) {
  Trainers trainers;
  for (uint32_t i = 0; i < workers; ++i) {
    trainers.push_back(std::make_unique<DeviceTrainer>(port, i, workers, local, least));
  }
  for (const auto& trainer : trainers) EXPECT_TRUE(trainer->worker().AwaitMember(kLong).ok());
  return trainers;
}

struct Outcome {
  std::vector<std::string> results;
  RoundFacts facts;
  uint64_t digest = 0;
};

// A round of all; they agree on it.
Outcome Round(const Trainers& trainers, uint32_t round, bool on_device = true) {
  for (const auto& trainer : trainers) trainer->Contribute(round, on_device);
  for (const auto& trainer : trainers) trainer->Commit();
  Outcome outcome;
  for (const auto& trainer : trainers) {
    std::vector<std::string> results = trainer->Finish();
    if (trainer == trainers.front()) outcome.results = results;
    EXPECT_TRUE(results == outcome.results);
    if (trainer->result == nullptr) return outcome;
    EXPECT_EQ(trainer->result->record().chain, trainers.front()->result->record().chain);
  }
  const RoundValue& value = trainers.front()->result->record().value;
  outcome.facts = value.facts;
  outcome.digest = value.digest;
  return outcome;
}

// The same round by an aggregator without devices, over the network.
Outcome OnTheCpu(uint32_t workers, uint32_t round) {
  Aggregator aggregator(1);
  const Trainers trainers = JoinWithDevices(aggregator.port(), workers, false);
  Outcome outcome = Round(trainers, round, false);
  EXPECT_EQ(aggregator.counters().local_frames, 0u);
  return outcome;
}

// Rounds, until all of a round's payload stays on the device.
// `begins`: is called before each.
void RoundsUntilOnDevice(
    const Aggregator& aggregator, const Trainers& trainers,
    const std::function<void(uint32_t round)>& begins = [](uint32_t) {}) {
  const auto all_shared = [&] {
    for (const auto& trainer : trainers) {
      if (!trainer->Shares()) return false;
    }
    return true;
  };
  Await(all_shared);
  bool on_device = false;
  for (uint32_t round = 0; round < 1000 && !on_device && !testing::Test::HasFailure(); ++round) {
    const auto& counters = aggregator.counters();
    const uint64_t frames = counters.device_frames;
    const uint64_t host = counters.local_frames - frames;
    const uint64_t received = counters.bytes_received;
    begins(round);
    Round(trainers, round);
    on_device = counters.device_frames > frames &&
                counters.local_frames - counters.device_frames == host &&
                counters.bytes_received - received < kChunkBytes / 4;
  }
  EXPECT_TRUE(on_device);
}

TEST(Device, Criterion_5_7_RoundsHaveTheBitsOfTheCpu) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 3);
  RoundsUntilOnDevice(aggregator, trainers);
  for (const uint32_t round : {2001, 2002}) {
    const uint64_t frames = aggregator.counters().device_frames;
    const Outcome outcome = Round(trainers, round);
    EXPECT_GT(aggregator.counters().device_frames, frames);
    const Outcome expected = OnTheCpu(3, round);
    EXPECT_TRUE(outcome.results == expected.results);
    EXPECT_EQ(outcome.digest, expected.digest);
    EXPECT_EQ(outcome.facts.squared_norm, expected.facts.squared_norm);
    EXPECT_EQ(outcome.facts.tensor_squared_norms, expected.facts.tensor_squared_norms);
    EXPECT_GT(outcome.facts.squared_norm, 0.0);
  }
  EXPECT_EQ(plan->reads, 0) << "the device reads the contributions where they are";
  EXPECT_GT(plan->shared_bytes, 0);
  EXPECT_GT(aggregator.server().shared_device_bytes(), 0u);
}

TEST(Device, WithoutADeviceInTheAggregatorMemoryOfTheHostIsShared) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  Await([&] { return trainers[0]->Shares() && trainers[1]->Shares(); });
  for (uint32_t round = 0; round < 1000 && aggregator.counters().local_frames == 0; ++round) {
    Round(trainers, round);
  }
  EXPECT_GT(aggregator.counters().local_frames, 0u);
  EXPECT_EQ(aggregator.counters().device_frames, 0u);
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->plan->shared_bytes, 0);
}

TEST(Device, SeveralDevicesInTheAggregatorTakeNone) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan, 2));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  Await([&] { return trainers[0]->Shares() && trainers[1]->Shares(); });
  for (uint32_t round = 0; round < 5; ++round) Round(trainers, round);
  EXPECT_EQ(aggregator.counters().device_frames, 0u);
}

// The trainer frees what it made for nothing, and makes no more.
TEST(Device, MemoryThatTheAggregatorDoesNotMapIsFreed) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, 4096, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  Await([&] { return trainers[0]->Shares() && trainers[1]->Shares(); });
  const auto asked = [&] {
    for (const auto& trainer : trainers) {
      if (trainer->plan->most_shared_bytes == 0 || trainer->plan->shared_bytes != 0) return false;
    }
    return true;
  };
  for (uint32_t round = 0; round < 1000 && !asked() && !testing::Test::HasFailure(); ++round) {
    Round(trainers, round);
  }
  EXPECT_TRUE(asked());
  const Outcome outcome = Round(trainers, 2001);
  EXPECT_TRUE(outcome.results == OnTheCpu(2, 2001).results);
  EXPECT_EQ(aggregator.counters().device_frames, 0u);
  EXPECT_EQ(aggregator.server().shared_device_bytes(), 0u);
}

// As when the driver has no such memory, or the aggregator's device cannot read it.
TEST(Device, ARefusalIsReportedWithItsReason) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  plan->refuses = true;
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  Await([&] { return trainers[0]->Shares() && trainers[1]->Shares(); });
  for (uint32_t round = 0; round < 1000 && aggregator.reports().empty(); ++round) {
    Round(trainers, round);
  }
  ASSERT_FALSE(aggregator.reports().empty());
  EXPECT_NE(aggregator.reports()[0].find("cannot read the memory"), std::string::npos);
  Round(trainers, 2001);
  EXPECT_EQ(aggregator.counters().device_frames, 0u);
  EXPECT_EQ(aggregator.counters().local_refused, 0u) << "it is no violation";
}

// Rounds of those that are left, until the memory of a dead trainer is let go of.
void RoundsUntilLess(const FaultPlan& plan, int64_t mapped, const Trainers& trainers) {
  uint32_t round = 3001;
  do {
    Round(trainers, round);
  } while (plan.shared_bytes >= mapped && ++round < 4000 && !testing::Test::HasFailure());
  EXPECT_LT(plan.shared_bytes, mapped);
}

TEST(Device, Fault_W1_TheOthersGoOnWithoutAWorkerThatDiesWithItsMemoryMapped) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  Trainers trainers = JoinWithDevices(aggregator.port(), 3, true, 2);
  RoundsUntilOnDevice(aggregator, trainers);
  const int64_t mapped = plan->shared_bytes;
  for (const auto& trainer : trainers) trainer->Contribute(2001);
  for (const size_t k : {0, 2}) trainers[k]->Commit();
  trainers[1]->Die();
  const std::vector<std::string> results = trainers[0]->Finish();
  EXPECT_TRUE(trainers[2]->Finish() == results);
  EXPECT_EQ(trainers[0]->result->record().value.contributors.size(), 2u);
  trainers.erase(trainers.begin() + 1);
  RoundsUntilLess(*plan, mapped, trainers);
}

// A trainer in a process of its own: takes part in the rounds whose numbers it reads, and does not
// wait for the outcome of the last.
class TrainerProcess {
 public:
  TrainerProcess(int port, uint32_t number, uint32_t workers) {
    std::array<int, 2> ends;
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    rounds_ = ends[1];
    const std::vector<std::string> words = {"/proc/self/exe", kTrainer, std::to_string(port),
                                            std::to_string(number), std::to_string(workers)};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    EXPECT_EQ(
        posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
  }
  ~TrainerProcess() {
    Kill();
    close(rounds_);
  }
  void Begin(uint32_t round) const {
    const std::string line = std::to_string(round) + "\n";
    EXPECT_EQ(write(rounds_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  // As the kernel does it when memory is short: nothing of the process runs any more.
  void Kill() {
    if (process_ == 0) return;
    EXPECT_EQ(kill(process_, SIGKILL), 0);
    EXPECT_EQ(waitpid(std::exchange(process_, 0), nullptr, 0) > 0, true);
  }

  static constexpr char kTrainer[] = "--trainer";
  static constexpr uint32_t kLastRound = 2001;

  static int Run(int port, uint32_t number, uint32_t workers) {
    DeviceTrainer trainer(port, number, workers, true, 2);
    if (!trainer.worker().AwaitMember(kLong).ok()) return 1;
    for (uint32_t round = 0; std::cin >> round;) {
      trainer.Contribute(round);
      trainer.Commit();
      if (round < kLastRound) trainer.Finish();
    }
    return 0;
  }

 private:
  pid_t process_ = 0;
  int rounds_ = -1;
};

// How many contributions of the open round count from now on, whatever happens to their workers.
uint32_t EffectiveIn(Aggregator& aggregator) {
  std::promise<uint32_t> counted;
  aggregator.engine().Inspect([&](const aggregator::Runner& runner, absl::Time) {
    uint32_t effective = 0;
    const aggregator::Lane& lane = runner.core().jobs().begin()->second.lanes[0];
    if (lane.round.has_value()) {
      for (const aggregator::RoundMember& member : lane.round->members()) {
        effective += member.contribution.effective() ? 1 : 0;
      }
    }
    counted.set_value(effective);
  });
  return counted.get_future().get();
}

// The aggregator reads the contribution of a process that is no more.
TEST(Device, Fault_W1_TheMemoryOfAKilledProcessIsReadToTheEndOfTheRound) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  TrainerProcess killed(aggregator.port(), 1, 3);
  Trainers trainers;
  for (const uint32_t number : {0, 2}) {
    trainers.push_back(std::make_unique<DeviceTrainer>(aggregator.port(), number, 3, true, 2));
  }
  for (const auto& trainer : trainers) ASSERT_TRUE(trainer->worker().AwaitMember(kLong).ok());
  Await([&] { return aggregator.counters().local_sessions == 3; });
  RoundsUntilOnDevice(aggregator, trainers, [&](uint32_t round) { killed.Begin(round); });
  const int64_t mapped = plan->shared_bytes;

  constexpr uint32_t kRound = TrainerProcess::kLastRound;
  killed.Begin(kRound);
  trainers[0]->Contribute(kRound);
  Await([&] { return EffectiveIn(aggregator) == 1; });
  killed.Kill();
  trainers[1]->Contribute(kRound);
  for (const auto& trainer : trainers) trainer->Commit();
  const std::vector<std::string> results = trainers[0]->Finish();
  EXPECT_TRUE(trainers[1]->Finish() == results);
  EXPECT_EQ(trainers[0]->result->record().value.contributors.size(), 3u);
  EXPECT_TRUE(results == OnTheCpu(3, kRound).results);
  RoundsUntilLess(*plan, mapped, trainers);
}

// A worker that changes its contribution after its commit changes only what it contributes.
TEST(Device, Fault_N10_AWorkerThatScribblesDoesNotMakeTwoMembersDiffer) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 3);
  RoundsUntilOnDevice(aggregator, trainers);
  for (uint32_t round = 2001; round < 2006; ++round) {
    for (const auto& trainer : trainers) trainer->Contribute(round);
    trainers[1]->Commit();
    trainers[1]->Scribble(static_cast<char>(round & 0x3f));
    trainers[0]->Commit();
    trainers[2]->Commit();
    const std::vector<std::string> results = trainers[0]->Finish();
    for (const size_t k : {1, 2}) {
      EXPECT_TRUE(trainers[k]->Finish() == results);
      EXPECT_EQ(trainers[k]->result->record().chain, trainers[0]->result->record().chain);
    }
  }
  Round(trainers, 2006);
}

// What is left of a round that was withdrawn must not write to the places of the next.
TEST(Device, ARoundAfterAWithdrawnOneHasItsOwnBits) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  RoundsUntilOnDevice(aggregator, trainers);
  for (uint32_t round = 2001; round < 2006; ++round) {
    trainers[0]->plan->AllowWaits(0);  // Its copies are late.
    for (const auto& trainer : trainers) trainer->Contribute(round);
    trainers[0]->Withdraw();
    trainers[1]->Commit();
    EXPECT_TRUE(trainers[0]->Wait().ok());
    EXPECT_TRUE(trainers[1]->Wait().ok());
    const auto on_host = [&] {
      const auto& counters = aggregator.counters();
      return counters.local_frames - counters.device_frames + counters.bytes_received / kChunkBytes;
    };
    const uint64_t before = on_host();
    for (const auto& trainer : trainers) trainer->Contribute(round + 100);
    trainers[0]->plan->AllowWaits(int64_t{1} << 40);
    for (const auto& trainer : trainers) trainer->Commit();
    const std::vector<std::string> results = trainers[0]->Finish();
    EXPECT_TRUE(trainers[1]->Finish() == results);
    EXPECT_TRUE(results == OnTheCpu(2, round + 100).results);
    EXPECT_GT(on_host(), before) << "the places were not free";
  }
}

// The frames are sent again with their bytes, which the trainer's device still has.
TEST(Device, Fault_A1_ARoundOutlivesItsAggregatorAlsoWithoutADevice) {
  const auto plan = std::make_shared<FaultPlan>();
  auto aggregator =
      std::make_unique<Aggregator>(1, 0, ServerTls(), nullptr, true, kUnlimited, Emulated(plan));
  const int port = aggregator->port();
  const Trainers trainers = JoinWithDevices(port, 2);
  RoundsUntilOnDevice(*aggregator, trainers);
  for (const auto& trainer : trainers) trainer->Contribute(2001);
  aggregator.reset();
  aggregator = std::make_unique<Aggregator>(2, port, ServerTls(), nullptr, true);
  for (const auto& trainer : trainers) trainer->Commit();
  const std::vector<std::string> results = trainers[0]->Finish();
  EXPECT_TRUE(trainers[1]->Finish() == results);
  EXPECT_TRUE(results == OnTheCpu(2, 2001).results);
  EXPECT_EQ(aggregator->counters().device_frames, 0u);
  EXPECT_GT(trainers[0]->plan->reads, 0);
}

// The round in which the device fails may be lost, with the reason; the next one has the bits of
// the CPU, by way of the host.
TEST(Device, Fault_A13_RoundsGoOnWhenTheDeviceOfTheAggregatorFails) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
  RoundsUntilOnDevice(aggregator, trainers);
  plan->failing_from = plan->calls.load();
  for (const auto& trainer : trainers) trainer->Contribute(2001);
  for (const auto& trainer : trainers) trainer->TryCommit();
  for (const auto& trainer : trainers) {
    const client::RoundOutcome outcome = trainer->Wait();
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(wire::ToError(outcome.status()).code, ErrorCode::kRoundAborted);
    EXPECT_NE(outcome.status().message().find("emulated device"), absl::string_view::npos)
        << outcome.status();
  }
  const uint64_t frames = aggregator.counters().device_frames;
  for (const uint32_t round : {2002, 2003}) {
    const Outcome outcome = Round(trainers, round);
    EXPECT_TRUE(outcome.results == OnTheCpu(2, round).results);
  }
  EXPECT_LE(aggregator.counters().device_frames, frames);
}

// A call that fails does not lose the memory: the CPU takes over within the round.
TEST(Device, Fault_A13_TheCpuTakesOverWhatIsOnTheDevice) {
  int64_t reads = 0;
  for (const int64_t call : {0, 1, 2, 3, 5, 8, 13, 21}) {
    const auto plan = std::make_shared<FaultPlan>();
    Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
    const Trainers trainers = JoinWithDevices(aggregator.port(), 2);
    RoundsUntilOnDevice(aggregator, trainers);
    plan->failing_call = plan->calls.load() + call;
    const Outcome outcome = Round(trainers, 2001);
    EXPECT_TRUE(outcome.results == OnTheCpu(2, 2001).results) << call;
    reads += plan->reads;
  }
  EXPECT_GT(reads, 0);
}

// The trainer's device fails in the middle: its round ends with a reason, as without sharing.
TEST(Device, AnErrorOfTheTrainersDeviceIsTheTrainersAlone) {
  const auto plan = std::make_shared<FaultPlan>();
  Aggregator aggregator(1, 0, {}, nullptr, true, kUnlimited, Emulated(plan));
  const Trainers trainers = JoinWithDevices(aggregator.port(), 2, true, 2);
  RoundsUntilOnDevice(aggregator, trainers);
  trainers[0]->plan->AllowWaits(0);
  for (const auto& trainer : trainers) trainer->Contribute(2001);
  trainers[0]->plan->failing_from = trainers[0]->plan->calls.load();
  trainers[0]->plan->AllowWaits(int64_t{1} << 40);
  const absl::Status passed = trainers[0]->WaitUntilPassed();
  EXPECT_EQ(wire::ToError(passed).code, ErrorCode::kFailedPrecondition) << passed;
  trainers[0]->Withdraw();
  trainers[1]->Commit();
  EXPECT_TRUE(trainers[0]->Wait().ok());
  EXPECT_TRUE(trainers[1]->Wait().ok());
}

}  // namespace
}  // namespace basin::joined

int main(int argc, char** argv) {
  using basin::joined::TrainerProcess;
  if (argc == 5 && std::string(argv[1]) == TrainerProcess::kTrainer) {
    return TrainerProcess::Run(std::stoi(argv[2]), static_cast<uint32_t>(std::stoi(argv[3])),
                               static_cast<uint32_t>(std::stoi(argv[4])));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
