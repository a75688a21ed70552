// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whole rounds through an engine that reduces on devices: the bits of the CPU, and what happens
// when a device fails. Each case runs on the emulated device; the cases of real devices are skipped
// where there is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "accelerator/device/cuda_device.h"
#include "aggregator/engine/choose_device.h"
#include "tests/accelerator/device/driver_is_loaded.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

using accelerator::FaultPlan;
using accelerator::MakeEmulatedDevice;
using accelerator::ReduceDevice;
using accelerator::ReduceDevices;

constexpr uint64_t kBudget = uint64_t{256} << 20;

std::unique_ptr<ReduceDevices> Emulated(const std::vector<std::shared_ptr<FaultPlan>>& plans,
                                        uint32_t threads, uint64_t budget = kBudget) {
  std::vector<ReduceDevice> devices;
  for (size_t i = 0; i < plans.size(); ++i) {
    devices.push_back({"cuda:" + std::to_string(i), MakeEmulatedDevice(plans[i])});
  }
  return *ReduceDevices::Make(std::move(devices), threads, budget);
}

Model LargeModel(uint32_t workers) {
  return AverageOf(
      {F32("embedding", 5 * kChunkFloats + 1234), F32("weight", kChunkFloats), F32("bias", 5)},
      workers);
}

// What the workers of a few rounds received.
struct Seen {
  std::vector<std::string> results;  // By round and tensor.
  std::vector<VerdictRecord> records;
};

// Rounds of three workers, which send frames of so many chunks.
class Rounds {
 public:
  explicit Rounds(ReduceDevices* devices, uint32_t chunks_per_frame = 4)
      : rig({}, nullptr, devices), chunks_per_frame_(chunks_per_frame) {
    for (const char* id : {"a", "b", "c"}) {
      workers_.push_back(std::make_unique<RigWorker>(rig, id, model_));
      all_.push_back(workers_.back().get());
    }
    Join(all_);
  }

  // `nan`: a contribution has one.
  void Run(bool nan = false) {
    for (uint32_t i = 0; i < 3; ++i) {
      RigWorker& worker = *workers_[i];
      worker.Begin();
      for (TensorIndex tensor = 0; tensor < model_.tensors.size(); ++tensor) {
        const size_t elements = TensorBytes(model_.tensors[tensor]).value_or(0) / sizeof(float);
        std::string bytes = GradientOf((i + tensor + round_) % 5, elements);
        if (nan && i == 1 && tensor == 0) {
          const float value = std::numeric_limits<float>::quiet_NaN();
          bytes.replace((3 * kChunkFloats + 77) * sizeof(float), sizeof(float),
                        reinterpret_cast<const char*>(&value), sizeof(float));
        }
        worker.Push(tensor, bytes, chunks_per_frame_, /*backwards=*/i == 2);
      }
      worker.Commit();
    }
    seen.records.push_back(Finish(all_)[0]);
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->results, workers_[0]->results);
    }
    for (const std::string& result : workers_[0]->results) seen.results.push_back(result);
    ++round_;
  }

  std::map<std::string, double> ReduceSeconds() {
    return rig.Look<std::map<std::string, double>>(
        [](const Runner& runner) { return runner.counters().reduce_seconds; });
  }

  Rig rig;
  Seen seen;

 private:
  const uint32_t chunks_per_frame_;
  const Model model_ = LargeModel(3);
  std::vector<std::unique_ptr<RigWorker>> workers_;
  std::vector<RigWorker*> all_;
  uint32_t round_ = 0;
};

// The norms of a value, as bits: one may be NaN. They are taken out of the value.
std::vector<uint64_t> TakeNorms(RoundValue& value) {
  std::vector<double> norms = std::move(value.facts.tensor_squared_norms);
  norms.push_back(value.facts.squared_norm);
  value.facts.tensor_squared_norms.clear();
  value.facts.squared_norm = 0;
  std::vector<uint64_t> bits(norms.size());
  std::memcpy(bits.data(), norms.data(), norms.size() * sizeof(double));
  return bits;
}

void ExpectSame(const Seen& seen, const Seen& cpu) {
  EXPECT_EQ(seen.results, cpu.results);
  ASSERT_EQ(seen.records.size(), cpu.records.size());
  for (size_t i = 0; i < seen.records.size(); ++i) {
    RoundValue value = seen.records[i].value;
    RoundValue expected = cpu.records[i].value;
    EXPECT_EQ(TakeNorms(value), TakeNorms(expected)) << "round " << i;
    EXPECT_EQ(value, expected) << "round " << i;
  }
}

Seen OnCpu(int rounds, bool nan = false) {
  Rounds cpu(nullptr);
  for (int i = 0; i < rounds; ++i) cpu.Run(nan && i == 1);
  return cpu.seen;
}

TEST(DeviceReduction, Criterion_5_7_RoundsHaveTheBitsOfTheCpu) {
  const Seen cpu = OnCpu(3, /*nan=*/true);
  for (const uint32_t threads : {1u, 3u}) {
    const auto faults = std::make_shared<FaultPlan>();
    const auto devices = Emulated({faults}, threads);
    Rounds rounds(devices.get());
    for (int i = 0; i < 3; ++i) rounds.Run(i == 1);
    ExpectSame(rounds.seen, cpu);
    ASSERT_TRUE(rounds.seen.records[1].value.facts.nonfinite.has_value());
    EXPECT_EQ(rounds.seen.records[1].value.facts.nonfinite->worker, "b");
    EXPECT_EQ(rounds.seen.records[1].value.facts.nonfinite->element, 3 * kChunkFloats + 77);
    EXPECT_GT(faults->launches, 0);
    EXPECT_EQ(faults->running, 0);
    EXPECT_GT(rounds.ReduceSeconds().at("cuda:0"), 0);
    EXPECT_TRUE(rounds.rig.notes.OfKind(NoteKind::kReduceDeviceFailed).empty());
    rounds.rig.engine.Stop();
    EXPECT_EQ(rounds.rig.engine.pool().used_bytes(), 0u);
  }
}

// The kernel would fault, which no device survives.
TEST(DeviceReduction, MemoryThatIsNotAlignedToItsElementsIsRefused) {
  const auto devices = Emulated({std::make_shared<FaultPlan>()}, 1);
  const Model model = AverageOf({F32("embedding", 2 * kChunkFloats)}, 2);
  Rig rig({}, nullptr, devices.get());
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  Join({&a, &b});
  b.Begin();
  const auto trainer = accelerator::MakeEmulatedDevice(std::make_shared<FaultPlan>());
  const auto segment = trainer->AllocateShared(3 * kChunkBytes).value();
  IncomingFrame frame;
  frame.header = ContributionHeader{b.lane, 1, {0, 0, 1}};
  frame.shared.Append(std::make_shared<const SharedPayload>(DevicePlace{segment, 2}), kChunkBytes);
  frame.payload_bytes = kChunkBytes;
  frame.claimed = {1};
  rig.engine.OnFrame(b.streams[0], std::move(frame));
  absl::Status why;
  ASSERT_TRUE(rig.transport.Await(b.streams[0], [&](QueueTransport::Connection& connection) {
    why = connection.why;
    return connection.closed;
  }));
  EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(why.message().find("embedding"), std::string::npos) << why;
  EXPECT_NE(why.message().find("not aligned"), std::string::npos) << why;
}

// The chunks of a frame are one launch, and one copy in each direction.
TEST(DeviceReduction, AFrameIsOneLaunch) {
  const auto faults = std::make_shared<FaultPlan>();
  const auto devices = Emulated({faults}, 1);
  Rig rig({}, nullptr, devices.get());
  const Model model = AverageOf({F32("weight", 4 * kChunkFloats)}, 1);
  RigWorker worker(rig, "a", model);
  Join({&worker});
  const int64_t before = faults->calls;
  worker.Begin();
  worker.Push(0, GradientOf(0, 4 * kChunkFloats), /*chunks=*/4);
  worker.Commit();
  Finish({&worker});
  EXPECT_EQ(worker.results[0], GradientOf(0, 4 * kChunkFloats));
  EXPECT_EQ(faults->launches, 1);
  EXPECT_EQ(faults->calls - before, 4) << "copy, launch, copy, wait";
}

TEST(DeviceReduction, SeveralDevicesShareTheChunks) {
  const Seen cpu = OnCpu(2);
  const auto first = std::make_shared<FaultPlan>();
  const auto second = std::make_shared<FaultPlan>();
  const auto devices = Emulated({first, second}, 4);
  Rounds rounds(devices.get(), /*chunks_per_frame=*/1);
  for (int i = 0; i < 2; ++i) rounds.Run();
  ExpectSame(rounds.seen, cpu);
  EXPECT_GT(first->launches, 0);
  EXPECT_GT(second->launches, 0);
  EXPECT_GT(rounds.ReduceSeconds().at("cuda:0"), 0);
  EXPECT_GT(rounds.ReduceSeconds().at("cuda:1"), 0);
}

// 31 contributions need more than the smallest lane has for a leaf.
TEST(DeviceReduction, WhatFitsIntoNoLaneIsReducedByTheCpu) {
  const auto faults = std::make_shared<FaultPlan>();
  const auto devices = Emulated({faults}, 2, uint64_t{64} << 20);
  ASSERT_EQ(devices->pinned_bytes(), uint64_t{16} << 20);
  Rig rig({}, nullptr, devices.get());
  constexpr uint32_t kWorkers = 31;
  const Model model = AverageOf({F32("weight", 1000)}, kWorkers);
  std::vector<std::unique_ptr<RigWorker>> workers;
  std::vector<RigWorker*> all;
  std::vector<std::string> gradients;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    const std::string id = {'w', static_cast<char>('0' + i / 10), static_cast<char>('0' + i % 10)};
    workers.push_back(std::make_unique<RigWorker>(rig, id, model));
    all.push_back(workers.back().get());
    gradients.push_back(GradientOf(i, 1000));
  }
  Join(all);
  for (uint32_t i = 0; i < kWorkers; ++i) {
    all[i]->Begin();
    all[i]->Push(0, gradients[i]);
    all[i]->Commit();
  }
  Finish(all);
  EXPECT_EQ(all[0]->results[0], ReferenceAverage(gradients));
  EXPECT_EQ(faults->launches, 0);
}

// Each call of a round fails once, and all calls from it on: in a copy, at a launch, in the wait
// that reports an asynchronous error. The round, and those after it, have the bits of the CPU.
TEST(DeviceReduction, Fault_A13_TheCpuTakesOverWithTheSameBits) {
  const Seen cpu = OnCpu(2);
  int64_t calls = 0;
  {
    const auto faults = std::make_shared<FaultPlan>();
    const auto devices = Emulated({faults}, 1);
    Rounds rounds(devices.get());
    const int64_t before = faults->calls;
    rounds.Run();
    calls = faults->calls - before;
  }
  ASSERT_GT(calls, 8);
  for (const bool for_good : {false, true}) {
    for (int64_t failing = 0; failing < calls; ++failing) {
      const auto faults = std::make_shared<FaultPlan>();
      const auto devices = Emulated({faults}, 1);
      (for_good ? faults->failing_from : faults->failing_call) = faults->calls + failing;
      Rounds rounds(devices.get());
      for (int i = 0; i < 2; ++i) rounds.Run();
      ExpectSame(rounds.seen, cpu);
      const std::vector<Note> notes = rounds.rig.notes.OfKind(NoteKind::kReduceDeviceFailed);
      ASSERT_EQ(notes.size(), 1u) << "call " << failing;
      EXPECT_THAT(notes[0].text, testing::HasSubstr("emulated device: "));
      EXPECT_THAT(notes[0].text, testing::HasSubstr("The CPU reduces instead"));
      EXPECT_EQ(faults->running, 0);
      rounds.rig.engine.Stop();
      EXPECT_EQ(rounds.rig.engine.pool().used_bytes(), 0u);
    }
  }
}

// One of two devices fails: the other one goes on.
TEST(DeviceReduction, Fault_A13_OtherDevicesGoOn) {
  const Seen cpu = OnCpu(3);
  const auto broken = std::make_shared<FaultPlan>();
  const auto sound = std::make_shared<FaultPlan>();
  const auto devices = Emulated({broken, sound}, 4);
  broken->failing_from = broken->calls + 5;
  Rounds rounds(devices.get(), /*chunks_per_frame=*/1);
  rounds.Run();
  rounds.Run();
  const int64_t launches = sound->launches;
  rounds.Run();
  ExpectSame(rounds.seen, cpu);
  EXPECT_GT(sound->launches, launches);
  EXPECT_EQ(rounds.rig.notes.OfKind(NoteKind::kReduceDeviceFailed).size(), 1u)
      << "two threads of a device report its failure once";
}

TEST(DeviceReduction, Fault_A13_AHungDeviceWedgesNothing) {
  const Seen cpu = OnCpu(2);
  const auto faults = std::make_shared<FaultPlan>();
  const auto devices = Emulated({faults}, 2);
  faults->hangs = true;
  Rounds rounds(devices.get());
  for (int i = 0; i < 2; ++i) rounds.Run();
  ExpectSame(rounds.seen, cpu);
  EXPECT_EQ(rounds.rig.notes.OfKind(NoteKind::kReduceDeviceFailed).size(), 1u);
}

// The engine ends with chunks on their way through a device.
TEST(DeviceReduction, EndsWhileReductionsAreInFlight) {
  const auto faults = std::make_shared<FaultPlan>();
  const auto devices = Emulated({faults}, 2);
  {
    Rig rig({}, nullptr, devices.get());
    const Model model = AverageOf({F32("weight", 40 * kChunkFloats)}, 1);
    RigWorker worker(rig, "a", model);
    Join({&worker});
    worker.Begin();
    worker.Push(0, GradientOf(0, 40 * kChunkFloats));
  }
  EXPECT_EQ(faults->running, 0);
}

TEST(DeviceReduction, OnAGpu) {
  const auto count = accelerator::CountCudaDevices();
  const bool some = count.ok() && count.value() > 0;
  const std::string why = count.ok() ? "no device is visible" : count.failure().message;
  const bool may_skip = accelerator::CudaArchitectures().empty() || !accelerator::DriverIsLoaded();
  if (!some && may_skip) GTEST_SKIP() << why;
  ASSERT_TRUE(some) << why;
  const Seen cpu = OnCpu(3, /*nan=*/true);
  const DeviceSource source = {accelerator::CountCudaDevices, accelerator::OpenCudaDevice,
                               MeasureReduction, accelerator::LeaveCudaDevices};
  const auto choice = ChooseReduceDevices("cuda", 2, kBudget, source, *kernels::MakeCpuReducer());
  ASSERT_TRUE(choice.ok()) << choice.status();
  Rounds rounds(choice->devices.get());
  for (int i = 0; i < 3; ++i) rounds.Run(i == 1);
  ExpectSame(rounds.seen, cpu);
  EXPECT_GT(rounds.ReduceSeconds().at("cuda:0"), 0);
  EXPECT_TRUE(rounds.rig.notes.OfKind(NoteKind::kReduceDeviceFailed).empty());
}

}  // namespace
}  // namespace basin::aggregator
