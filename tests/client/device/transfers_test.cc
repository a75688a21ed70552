// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds with tensors on a device: the order with the trainer's streams, errors in every call,
// rounds that end while tensors are on their way.

#include "client/device/transfers.h"

#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

using accelerator::AllocateForTrainer;
using accelerator::EmulatedStream;
using accelerator::FaultPlan;
using accelerator::Memory;

constexpr uint64_t kPinnedBytes = uint64_t{64} << 20;
// The elements of tensor a; many are copied in parts.
constexpr uint64_t kFewElements = kChunkBytes * 5 / 8;
constexpr uint64_t kManyElements = 5'000'000;

// A worker whose tensors a and b are on a device.
class DeviceRig {
 public:
  explicit DeviceRig(uint64_t pinned_bytes = kPinnedBytes, int devices = 1,
                     uint64_t elements = kFewElements)
      : rig(1, nullptr, elements) {
    for (int i = 0; i < devices; ++i) faults.push_back(std::make_shared<FaultPlan>());
    transfers = std::make_unique<DeviceTransfers>(
        *rig.worker,
        [this](int index) -> kernels::Result<std::unique_ptr<accelerator::Device>> {
          if (index < 0 || static_cast<size_t>(index) >= faults.size()) {
            return kernels::Failure{kernels::FailureCode::kDevice,
                                    "emulated device: there is no such device"};
          }
          return accelerator::MakeEmulatedDevice(faults[index], {index, false});
        },
        pinned_bytes);
    for (TensorHandle tensor = 0; tensor < rig.model.size(); ++tensor) {
      memory.push_back(AllocateForTrainer(faults[tensor % devices], BytesOf(tensor)));
    }
    rig.Join();
  }

  uint64_t BytesOf(TensorHandle tensor) const { return rig.gradients.at(tensor).size(); }
  Source Pushed(TensorHandle tensor, wire::Encoding encoding = {}) const {
    return {tensor, memory[tensor].get(), BytesOf(tensor), encoding};
  }
  RoundResult::Destination Destination(TensorHandle tensor) const {
    return {tensor, memory[tensor].get(), BytesOf(tensor)};
  }
  absl::Status Begin() {
    BeginRound begin;
    begin.lane = rig.lane.lane;
    begin.spec.op = ReduceOp::kAverage;
    return transfers->Begin(begin);
  }
  // The trainer's backward, in the stream.
  void Compute() {
    stream.Add([this] {
      for (TensorHandle tensor = 0; tensor < memory.size(); ++tensor) {
        std::memcpy(memory[tensor].get(), rig.gradients[tensor].data(), BytesOf(tensor));
      }
    });
  }
  absl::Status Push() {
    return transfers->Push(rig.lane.lane, {Pushed(0), Pushed(1), Pushed(2)}, {0, &stream});
  }
  absl::Status WaitUntilPassed() { return transfers->WaitUntilPassed(rig.lane.lane); }
  // The rest of a round whose contribution was passed to the worker.
  RoundOutcome Finish(const std::map<TensorIndex, std::string>& results, RoundNumber round = 1,
                      uint64_t* chain = nullptr) {
    const absl::Status status = rig.worker->Commit(rig.lane.lane);
    EXPECT_TRUE(status.ok()) << status;
    uint32_t chunks = 0;
    for (const TensorSpec& tensor : rig.model) chunks += ChunkCount(*TensorBytes(tensor));
    const auto pushed = rig.TakeContribution(chunks, round);
    for (TensorIndex tensor = 0; tensor < 2; ++tensor) {
      EXPECT_EQ(pushed.at(tensor), rig.gradients.at(tensor));
    }
    rig.SendResults(results, round);
    const VerdictRecord record =
        rig.Conclude(rig.ValueOf(results), round, chain == nullptr ? 0 : *chain);
    if (chain != nullptr) *chain = record.chain;
    return rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  }
  // What the stream sees after what it was given so far.
  std::map<TensorIndex, std::string> Seen() {
    std::map<TensorIndex, std::string> seen;
    stream.Add([&] {
      for (TensorHandle tensor = 0; tensor < memory.size(); ++tensor) {
        seen[tensor] = std::string(static_cast<char*>(memory[tensor].get()), BytesOf(tensor));
      }
    });
    stream.Synchronize();
    return seen;
  }
  std::vector<RoundResult::Destination> AllDestinations() const {
    return {Destination(0), Destination(1), Destination(2)};
  }

  std::vector<std::shared_ptr<FaultPlan>> faults;
  Rig rig;
  std::vector<Memory> memory;
  EmulatedStream stream;  // Runs what it has at its end.
  std::unique_ptr<DeviceTransfers> transfers;
};

ErrorCode CodeOfText(const absl::Status& status, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status << "\n" << part;
  }
  return CodeOf(status);
}

TEST(DeviceTransfersTest, NothingIsKeptOfHandlesThatMeanNothingAnyMore) {
  DeviceRig t;
  ASSERT_TRUE(t.Begin().ok());
  for (LaneHandle lane = 1000; lane < 3000; ++lane) {
    EXPECT_TRUE(t.transfers->WaitUntilPassed(lane).ok());
  }
  EXPECT_LE(t.transfers->lanes(), 100u);
  // The round of the model goes on.
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const RoundOutcome outcome = t.Finish(Results(t.rig));
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

TEST(DeviceTransfersTest, AGradientIsSentAsItIsWhenTheStreamHasWrittenIt) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  auto passed = std::async(std::launch::async, [&] { return t.WaitUntilPassed(); });
  EXPECT_EQ(t.rig.aggregator.queued(), 0u) << "the stream has not run";
  t.stream.Release();
  ASSERT_TRUE(passed.get().ok());
  const RoundOutcome outcome = t.Finish(Results(t.rig));
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

TEST(DeviceTransfersTest, AResultComesBetweenWhatTheStreamDoesBeforeAndAfter) {
  DeviceRig t;
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const auto results = Results(t.rig);
  const RoundOutcome outcome = t.Finish(results);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  // Work that still reads the gradients: the result must not overtake it.
  t.stream.Hold();
  std::string before;
  t.stream.Add([&] { before = std::string(static_cast<char*>(t.memory[0].get()), t.BytesOf(0)); });
  ASSERT_TRUE(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream}).ok());
  t.stream.Release();
  EXPECT_EQ(t.Seen(), results);
  EXPECT_EQ(before, t.rig.gradients[0]);
}

// On the device, or on the host if the device has no memory for it: the bits and the norm are those
// of a push from the host.
TEST(DeviceTransfersTest, NarrowGradientsAreCastOnTheirWay) {
  for (const bool on_device : {true, false}) {
    SCOPED_TRACE(on_device);
    DeviceRig t;
    if (!on_device) t.faults[0]->device_bytes = 0;
    std::map<TensorIndex, std::string> wanted;
    double squared_norm = 0;
    for (const TensorHandle tensor : {0u, 1u}) {
      std::vector<float> floats(t.BytesOf(tensor) / sizeof(float));
      for (size_t i = 0; i < floats.size(); ++i) {
        floats[i] = 1.0F / static_cast<float>(i + 1 + tensor);
      }
      std::memcpy(t.rig.gradients[tensor].data(), floats.data(), t.BytesOf(tensor));
      wanted[tensor].resize(floats.size() * 2);
      kernels::CastToWire(floats.data(), floats.size(), DType::kBF16, 3, wanted[tensor].data());
      std::vector<double> leaves;
      kernels::AppendNormLeaves(DType::kF32, floats.data(), floats.size(), &leaves);
      squared_norm += kernels::SquaredNorm(leaves.data(), leaves.size());
    }
    ASSERT_TRUE(t.Begin().ok());
    t.Compute();
    const Encoding narrow = {DType::kBF16, 3};
    const auto pushed = {t.Pushed(0, narrow), t.Pushed(1, narrow)};
    ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, pushed, {0, &t.stream}).ok());
    ASSERT_TRUE(t.WaitUntilPassed().ok());
    ASSERT_TRUE(t.rig.worker->Commit(t.rig.lane.lane).ok());
    EXPECT_EQ(t.faults[0]->launches, on_device ? 1 : 0);
    std::map<TensorIndex, std::string> sent;
    for (uint64_t bytes = 0; bytes < wanted[0].size() + wanted[1].size();) {
      const TakenFrame frame = t.rig.aggregator.AwaitFrame();
      const auto& header = std::get<wire::ContributionHeader>(frame.header.kind);
      EXPECT_EQ(frame.header.encoding, narrow);
      uint64_t begin = bytes;
      for (const ChunkRun& run : header.runs) {
        const uint64_t size = header.runs.size() == 1 ? frame.payload.size() : run.bytes;
        std::string& tensor = sent[run.range.tensor];
        tensor.resize(wanted[run.range.tensor].size());
        tensor.replace(run.range.first * WireChunkBytes(DType::kBF16), size,
                       frame.payload.substr(bytes - begin, size));
        bytes += size;
      }
    }
    EXPECT_TRUE(sent == wanted);
    EXPECT_EQ(t.rig.aggregator.Await<Commit>().squared_norm, squared_norm);
  }
}

TEST(DeviceTransfersTest, RoundsInARowUseTheSameMemory) {
  DeviceRig t;
  const int64_t all = t.faults[0]->pinned_bytes;
  uint64_t chain = 0;
  int64_t of_one = 0;
  for (RoundNumber round = 1; round <= 10; ++round) {
    ASSERT_TRUE(t.Begin().ok());
    t.Compute();
    ASSERT_TRUE(t.Push().ok());
    ASSERT_TRUE(t.WaitUntilPassed().ok());
    const auto results = Results(t.rig);
    const RoundOutcome outcome = t.Finish(results, round, &chain);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_TRUE(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream}).ok());
    EXPECT_EQ(t.Seen(), results);
    if (round == 1) of_one = all - t.faults[0]->pinned_bytes;
  }
  EXPECT_GT(of_one, 0);
  // A round may begin before the last block of the one before is free again.
  EXPECT_LE(all - t.faults[0]->pinned_bytes, 2 * of_one);
}

TEST(DeviceTransfersTest, WorksWithoutPinnedMemoryAndWithoutMemoryOfTheDevice) {
  DeviceRig t(0);
  t.faults[0]->device_bytes = 0;
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const auto results = Results(t.rig);
  const RoundOutcome outcome = t.Finish(results);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream}).ok());
  EXPECT_EQ(t.Seen(), results);
}

TEST(DeviceTransfersTest, TensorsOfALaneMayBeOnSeveralDevices) {
  DeviceRig t(kPinnedBytes, 2);
  EmulatedStream second(1);
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  t.stream.Synchronize();
  ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, {t.Pushed(0), t.Pushed(2)}, {0, &t.stream}).ok());
  ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, {t.Pushed(1)}, {1, &second}).ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const auto results = Results(t.rig);
  const RoundOutcome outcome = t.Finish(results);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(
      t.transfers->Copy(**outcome, {t.Destination(0), t.Destination(2)}, {0, &t.stream}).ok());
  ASSERT_TRUE(t.transfers->Copy(**outcome, {t.Destination(1)}, {1, &second}).ok());
  second.Synchronize();
  EXPECT_EQ(t.Seen(), results);
}

// ---- large tensors, which are sent as they come

TEST(DeviceTransfersTest, ALargeTensorIsSentWhileTheRestIsCopied) {
  DeviceRig t(kPinnedBytes, 1, kManyElements);
  FaultPlan& faults = *t.faults[0];
  faults.AllowWaits(1);
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, {t.Pushed(0)}, {0, &t.stream}).ok());
  t.rig.aggregator.AwaitQueued(1);
  EXPECT_GT(faults.running, 0) << "the device has not copied the rest";
  faults.AllowWaits(1000);
  ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, {t.Pushed(1), t.Pushed(2)}, {0, &t.stream}).ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const auto results = Results(t.rig);
  const RoundOutcome outcome = t.Finish(results);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream}).ok());
  EXPECT_TRUE(t.Seen() == results);
}

// Also if the exponent is to be fitted, which the first part already needs: without memory of the
// device the host computes it, from the whole tensor.
TEST(DeviceTransfersTest, ALargeNarrowTensorIsSentWhileTheRestIsCastOrCopied) {
  for (const auto& [on_device, fitted] : std::vector<std::pair<bool, bool>>{
           {true, false}, {false, false}, {true, true}, {false, true}}) {
    SCOPED_TRACE(testing::Message() << on_device << fitted);
    DeviceRig t(kPinnedBytes, 1, kManyElements);
    FaultPlan& faults = *t.faults[0];
    if (!on_device) faults.device_bytes = 0;
    faults.AllowWaits(on_device ? 1 : 1000);
    t.rig.gradients[0] = std::string(kManyElements * sizeof(float), '\x3f');
    t.rig.gradients[0].back() = '\x40';
    std::string wanted(kManyElements * 2, '\0');
    // The last element is just below 3, and the others are below 1.
    const int exponent = fitted ? 13 : -1;
    kernels::CastToWire(t.rig.gradients[0].data(), kManyElements, DType::kF16, exponent,
                        wanted.data());
    std::vector<double> leaves;
    kernels::AppendNormLeaves(DType::kF32, t.rig.gradients[0].data(), kManyElements, &leaves);
    ASSERT_TRUE(t.Begin().ok());
    t.Compute();
    const auto pushed = {t.Pushed(0, {DType::kF16, fitted ? kernels::kFitExponent : exponent})};
    ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, pushed, {0, &t.stream}).ok());
    if (on_device) {
      t.rig.aggregator.AwaitQueued(1);
      EXPECT_GT(faults.running, 0) << "the device has not cast the rest";
      faults.AllowWaits(1000);
    }
    ASSERT_TRUE(t.WaitUntilPassed().ok());
    ASSERT_TRUE(t.rig.worker->Commit(t.rig.lane.lane).ok());
    std::string sent(wanted.size(), '\0');
    for (uint64_t bytes = 0; bytes < wanted.size();) {
      const TakenFrame frame = t.rig.aggregator.AwaitFrame();
      const auto& header = std::get<wire::ContributionHeader>(frame.header.kind);
      ASSERT_EQ(header.runs.size(), 1u);
      EXPECT_EQ(frame.header.encoding, (Encoding{DType::kF16, exponent}));
      const ChunkRange& range = header.runs[0].range;
      sent.replace(range.first * WireChunkBytes(DType::kF16), frame.payload.size(), frame.payload);
      bytes += frame.payload.size();
      t.rig.aggregator.Send(Credit{header.lane, 1, t.rig.window, {range}, {}});
    }
    EXPECT_TRUE(sent == wanted);
    EXPECT_EQ(t.rig.aggregator.Await<Commit>().squared_norm,
              kernels::SquaredNorm(leaves.data(), leaves.size()));
  }
}

// A round that ends between two parts of a tensor gets no more of it, and nor does the next one.
TEST(DeviceTransfersTest, APartOfATensorThatWasDroppedIsNoPartOfTheNextRound) {
  DeviceRig t(kPinnedBytes, 1, kManyElements);
  t.faults[0]->AllowWaits(1);
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.transfers->Push(t.rig.lane.lane, {t.Pushed(0)}, {0, &t.stream}).ok());
  t.rig.aggregator.AwaitQueued(1);
  EXPECT_GT(t.faults[0]->running, 0) << "the device has not copied the rest";
  t.transfers->Drop(t.rig.lane.lane);
  ASSERT_TRUE(t.rig.worker->Withdraw({t.rig.lane.lane, "a test"}).ok());
  t.rig.aggregator.Await<Withdraw>();
  const auto results = Results(t.rig);
  t.rig.SendResults(results, 1);
  uint64_t chain = t.rig.Conclude(t.rig.ValueOf(results), 1, 0).chain;
  ASSERT_TRUE(t.rig.worker->Wait(t.rig.lane.lane, absl::InfiniteDuration()).ok());
  while (t.rig.aggregator.queued() > 0) t.rig.aggregator.AwaitFrame();
  ASSERT_TRUE(t.Begin().ok());
  t.faults[0]->AllowWaits(1000);
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  EXPECT_EQ(t.rig.aggregator.queued(), 0u);
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  EXPECT_TRUE(t.Finish(results, 2, &chain).ok());
}

// ---- refusals

TEST(DeviceTransfersTest, RefusesACaptureAndWhatIsOnAnotherDevice) {
  DeviceRig t(kPinnedBytes, 2);
  ASSERT_TRUE(t.Begin().ok());
  const LaneHandle lane = t.rig.lane.lane;
  t.stream.captured = true;
  EXPECT_EQ(
      CodeOfText(t.transfers->Push(lane, {t.Pushed(0)}, {0, &t.stream}),
                 {"Cannot copy tensor a: emulated device: the stream is being captured into a "
                  "graph. ",
                  "Capture the forward and the backward"}),
      ErrorCode::kFailedPrecondition);
  t.stream.captured = false;
  EXPECT_EQ(CodeOfText(t.transfers->Push(lane, {t.Pushed(1)}, {0, &t.stream}),
                       {"Cannot copy tensor b: emulated device: the memory is not of it. ",
                        "Pass the index"}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOfText(t.transfers->Push(lane, {t.Pushed(1)}, {1, &t.stream}),
                       {"Cannot copy tensor b: emulated device: the stream is another's. ",
                        "one of its streams"}),
            ErrorCode::kInvalidArgument);
  EmulatedStream foreign(1);
  EXPECT_EQ(CodeOfText(t.transfers->Push(lane, {t.Pushed(0), t.Pushed(2)}, {0, &foreign}),
                       {"Cannot copy tensor a and 1 more: ", "the stream is another's"}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      CodeOfText(t.transfers->Push(lane, {t.Pushed(0)}, {2, nullptr}),
                 {"CUDA device 2", "there is no such device. Correct this, or train on the CPU."}),
      ErrorCode::kFailedPrecondition);
  const Source wrong(0, t.memory[0].get(), t.BytesOf(0) - 1);
  EXPECT_EQ(CodeOf(t.transfers->Push(lane, {t.Pushed(2), wrong}, {0, &t.stream})),
            ErrorCode::kInvalidArgument);
  // None of them was pushed, so that all of them still can be.
  t.Compute();
  t.stream.Synchronize();
  EmulatedStream second(1);
  ASSERT_TRUE(t.transfers->Push(lane, {t.Pushed(0), t.Pushed(2)}, {0, &t.stream}).ok());
  ASSERT_TRUE(t.transfers->Push(lane, {t.Pushed(1)}, {1, &second}).ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  EXPECT_TRUE(t.Finish(Results(t.rig)).ok());
}

TEST(DeviceTransfersTest, ARefusedCopyOfResultsWritesNothing) {
  DeviceRig t;
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const RoundOutcome outcome = t.Finish(Results(t.rig));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto before = t.Seen();
  RoundResult::Destination wrong = t.Destination(0);
  --wrong.size;
  EXPECT_EQ(CodeOf(t.transfers->Copy(**outcome, {t.Destination(1), wrong}, {0, &t.stream})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(t.transfers->Copy(**outcome, {{99, t.memory[0].get(), 4}}, {0, &t.stream})),
            ErrorCode::kNotFound);
  std::string host(t.BytesOf(0), '\0');
  EXPECT_EQ(CodeOfText(
                t.transfers->Copy(**outcome, {{0, host.data(), host.size()}}, {0, &t.stream}),
                {"Cannot copy the result of tensor a: emulated device: the memory is not of it. "}),
            ErrorCode::kInvalidArgument);
  t.stream.captured = true;
  EXPECT_EQ(CodeOfText(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream}),
                       {"Cannot copy the result of tensor a and 2 more: ", "captured"}),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(t.Seen(), before);
}

// ---- rounds that end early

TEST(DeviceTransfersTest, WhatWasDroppedIsNoPartOfTheNextRound) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  ASSERT_TRUE(t.Push().ok());
  t.transfers->Drop(t.rig.lane.lane);
  ASSERT_TRUE(t.rig.worker->Withdraw({t.rig.lane.lane, "a test"}).ok());
  t.rig.aggregator.Await<Withdraw>();
  const auto results = Results(t.rig);
  t.rig.SendResults(results, 1);
  uint64_t chain = t.rig.Conclude(t.rig.ValueOf(results), 1, 0).chain;
  ASSERT_TRUE(t.rig.worker->Wait(t.rig.lane.lane, absl::InfiniteDuration()).ok());
  ASSERT_TRUE(t.Begin().ok());
  t.stream.Release();
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  // The tensors of the round before would be refused as pushed twice, or have other bytes.
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  EXPECT_TRUE(t.Finish(results, 2, &chain).ok());
}

TEST(DeviceTransfersTest, ARoundWithoutItsDroppedTensorsIsNotCommitted) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  ASSERT_TRUE(t.Push().ok());
  t.transfers->DropAll();
  t.stream.Release();
  EXPECT_EQ(CodeOfText(t.WaitUntilPassed(), {"Begin another round"}),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(t.Push()), ErrorCode::kFailedPrecondition);
  t.transfers->WaitUntilAllPassed();
  EXPECT_EQ(t.faults[0]->running, 0);
}

TEST(DeviceTransfersTest, InACallbackWhatWouldWaitIsRefused) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  absl::Status passed;
  ASSERT_TRUE(t.rig.worker->Inspect([&](const Runner&) { passed = t.WaitUntilPassed(); }).ok());
  EXPECT_EQ(CodeOfText(passed, {"A callback", "from another thread"}),
            ErrorCode::kFailedPrecondition);
  t.stream.Release();
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  EXPECT_TRUE(t.Finish(Results(t.rig)).ok());
}

TEST(DeviceTransfersTest, Fault_A13_TheWorkerMayBeClosedWhileTheDeviceHangs) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  ASSERT_TRUE(t.Push().ok());
  t.transfers.reset();
  t.stream.Release();
}

TEST(DeviceTransfersTest, TensorsArriveWhileTheWorkerIsDisconnected) {
  DeviceRig t;
  t.stream.Hold();
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  t.rig.aggregator.Await<Begin>();
  t.rig.aggregator.LoseSession();
  t.stream.Release();
  EXPECT_TRUE(t.WaitUntilPassed().ok()) << "the worker keeps them until it is connected again";
  EXPECT_TRUE(t.rig.worker->Commit(t.rig.lane.lane).ok());
}

// ---- errors of the device

// Every call of the device fails once, in a round that pushes and copies results. Each time there
// is a typed error, or the right result; the next round works.
void FailAnyCall(uint64_t elements) {
  int failed = 0;
  int64_t calls = 1;
  for (int64_t failing = -1; failing < calls; ++failing) {
    SCOPED_TRACE(failing);
    DeviceRig t(kPinnedBytes, 1, elements);
    FaultPlan& faults = *t.faults[0];
    faults.failing_call = failing;
    uint64_t chain = 0;
    RoundNumber round = 1;
    const auto results = Results(t.rig);
    ASSERT_TRUE(t.Begin().ok());
    t.Compute();
    absl::Status status = t.Push();
    if (status.ok()) status = t.WaitUntilPassed();
    RoundOutcome outcome = absl::CancelledError("not committed");
    if (status.ok()) {
      outcome = t.Finish(results, round, &chain);
    } else {
      EXPECT_EQ(CodeOfText(status, {"emulated device", "failed", "Withdraw", "train on the CPU"}),
                ErrorCode::kFailedPrecondition);
      ASSERT_TRUE(t.rig.worker->Withdraw({t.rig.lane.lane, std::string(status.message())}).ok());
      while (t.rig.aggregator.queued() > 0) t.rig.aggregator.AwaitFrame();
      t.rig.SendResults(results, round);
      chain = t.rig.Conclude(t.rig.ValueOf(results), round, chain).chain;
      outcome = t.rig.worker->Wait(t.rig.lane.lane, absl::InfiniteDuration());
      ++failed;
    }
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    // The withdrawn worker gets the result, too.
    absl::Status copied = t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream});
    if (copied.ok()) {
      const auto seen = t.Seen();
      // The error of a copy that has started comes with a later call.
      while (copied.ok() && seen != results) {
        copied = t.transfers->Copy(**outcome, {}, {0, &t.stream});
      }
    }
    if (!copied.ok()) {
      ++failed;
      EXPECT_EQ(CodeOfText(copied, {"emulated device", "failed"}), ErrorCode::kFailedPrecondition);
    }
    if (failing < 0) calls = faults.calls;
    faults.failing_call = FaultPlan::kNever;

    ++round;
    ASSERT_TRUE(t.Begin().ok());
    t.Compute();
    ASSERT_TRUE(t.Push().ok());
    ASSERT_TRUE(t.WaitUntilPassed().ok());
    outcome = t.Finish(results, round, &chain);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    status = t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(t.Seen(), results);
    t.transfers.reset();
    EXPECT_EQ(faults.running, 0);
  }
  EXPECT_GT(failed, 10);
}

TEST(DeviceTransfersTest, Fault_A13_AnyCallOfTheDeviceMayFail) { FailAnyCall(kFewElements); }

// A tensor of which a part was sent already.
TEST(DeviceTransfersTest, Fault_A13_AnyCallMayFailInTheMiddleOfATensor) { FailAnyCall(2'200'000); }

// After an error that the context does not survive, every call fails with an error, and no more.
TEST(DeviceTransfersTest, Fault_A13_ADeviceMayFailForGood) {
  DeviceRig t;
  ASSERT_TRUE(t.Begin().ok());
  t.Compute();
  ASSERT_TRUE(t.Push().ok());
  ASSERT_TRUE(t.WaitUntilPassed().ok());
  const RoundOutcome outcome = t.Finish(Results(t.rig));
  t.faults[0]->failing_from = t.faults[0]->calls.load();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(CodeOf(t.transfers->Copy(**outcome, t.AllDestinations(), {0, &t.stream})),
              ErrorCode::kFailedPrecondition);
    EXPECT_EQ(CodeOf(t.Push()), ErrorCode::kFailedPrecondition);
  }
}

TEST(DeviceTransfersTest, Fault_A13_ADeviceThatHangsFailsTheRound) {
  DeviceRig t;
  ASSERT_TRUE(t.Begin().ok());
  t.faults[0]->hangs = true;
  ASSERT_TRUE(t.Push().ok());
  EXPECT_EQ(
      CodeOfText(t.WaitUntilPassed(), {"tensor a and 2 more", "emulated device", "has not ended"}),
      ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(t.Push()), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace basin::client
