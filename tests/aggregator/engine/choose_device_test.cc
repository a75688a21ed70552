// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The values of reduce.device, on machines with and without devices.

#include "aggregator/engine/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerator/device/cuda_device.h"
#include "kernels/cpu/cpu_reducer.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::aggregator {
namespace {

using accelerator::Device;
using accelerator::DeviceThread;
using accelerator::FaultPlan;
using kernels::Failure;
using kernels::FailureCode;
using kernels::Result;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kLargeBudget = uint64_t{1} << 30;

class ChooseDevice : public testing::Test {
 protected:
  // A machine with so many emulated devices, on which the CPU takes 2 ms and a device 1 ms.
  DeviceSource Machine(int devices) {
    DeviceSource source;
    source.count = [devices]() -> Result<int> { return devices; };
    source.open = [this, devices](int index) -> Result<std::unique_ptr<Device>> {
      if (index >= devices) return Failure{FailureCode::kDevice, "no such device"};
      opened_.push_back(index);
      return MakeEmulatedDevice(faults_);
    };
    source.measure = [this](const kernels::Reducer&, DeviceThread&) { return measured_; };
    source.leave = [this] {
      EXPECT_TRUE(faults_->allocated.empty()) << "memory must not outlive its device";
      ++left_;
    };
    return source;
  }

  absl::StatusOr<ReduceChoice> Choose(const std::string& option, const DeviceSource& source,
                                      uint32_t threads = 2, uint64_t budget = kLargeBudget) {
    return ChooseReduceDevices(option, threads, budget, source, *cpu_);
  }

  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  std::unique_ptr<kernels::Reducer> cpu_ = kernels::MakeCpuReducer();
  std::vector<int> opened_;
  int left_ = 0;
  Result<MeasuredReduction> measured_ = MeasuredReduction{0.002, 0.001};
};

TEST_F(ChooseDevice, TheCpuOpensNoDevice) {
  const auto choice = Choose("cpu", Machine(2));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices, nullptr);
  EXPECT_TRUE(opened_.empty());
}

TEST_F(ChooseDevice, CudaIsAllDevicesAndAnIndexOne) {
  const auto all = Choose("cuda", Machine(3), /*threads=*/2);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(opened_, (std::vector<int>{0, 1, 2}));
  ASSERT_EQ(all->devices->threads(), 3u) << "each device needs a thread";
  EXPECT_EQ(all->devices->thread(0).device(), "cuda:0");
  EXPECT_EQ(all->devices->thread(2).device(), "cuda:2");
  EXPECT_THAT(all->why, HasSubstr("emulated device and emulated device"));
  EXPECT_THAT(all->why, HasSubstr("pinned memory. None of them reads gradients in the memory"));
  opened_.clear();
  const auto one = Choose("cuda:1", Machine(3), /*threads=*/2);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(opened_, std::vector<int>{1});
  EXPECT_EQ(one->devices->threads(), 2u);
  EXPECT_THAT(one->why, Not(HasSubstr("trainers")));
  EXPECT_EQ(one->devices->thread(0).device(), "cuda:1");
  EXPECT_EQ(one->devices->thread(1).device(), "cuda:1");
}

TEST_F(ChooseDevice, CudaWithoutADeviceNamesKeyValueAndFix) {
  DeviceSource none = Machine(0);
  const auto choice = Choose("cuda", none);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(std::string(choice.status().message()),
            "reduce.device is cuda: there is no CUDA device; make a GPU visible to this process; "
            "correct this, or set reduce.device to cpu or auto");
  none.count = []() -> Result<int> { return Failure{FailureCode::kDevice, "no driver"}; };
  EXPECT_THAT(std::string(Choose("cuda", none).status().message()), HasSubstr("no driver; "));
  EXPECT_THAT(std::string(Choose("cuda:7", Machine(2)).status().message()),
              HasSubstr("reduce.device is cuda:7: no such device; "));
}

TEST_F(ChooseDevice, AutoTakesTheFasterAndSaysWhy) {
  const auto device = Choose("auto", Machine(1));
  ASSERT_TRUE(device.ok());
  EXPECT_NE(device->devices, nullptr);
  EXPECT_EQ(left_, 0);
  EXPECT_EQ(device->why,
            "reduce.device is auto: emulated device reduces, with 80 MiB of memory.budget as "
            "pinned memory, because 4 contributions of 4 MiB take a thread 2.00 ms on the CPU and "
            "1.00 ms with emulated device, copies included.");
}

TEST_F(ChooseDevice, AutoGivesASlowerDeviceBack) {
  measured_ = MeasuredReduction{0.001, 0.003};
  const auto cpu = Choose("auto", Machine(1));
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->devices, nullptr);
  EXPECT_THAT(cpu->why, HasSubstr("the CPU reduces, because 4 contributions of 4 MiB take a thread "
                                  "1.00 ms on the CPU and 3.00 ms with"));
  EXPECT_EQ(opened_, std::vector<int>{0});
  EXPECT_TRUE(faults_->allocated.empty());
  EXPECT_EQ(left_, 1);
}

// The driver takes memory of each GPU for a process that has opened it.
TEST_F(ChooseDevice, AutoLeavesTheDevicesThatItHasOpenedBeforeOneThatFails) {
  DeviceSource source = Machine(1);
  source.count = []() -> Result<int> { return 2; };
  const auto cpu = Choose("auto", source);
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->devices, nullptr);
  EXPECT_EQ(opened_, std::vector<int>{0});
  EXPECT_EQ(left_, 1);
}

TEST_F(ChooseDevice, Fault_A13_AutoTakesTheCpuWhereADeviceIsMissingOrFails) {
  auto choice = Choose("auto", Machine(0));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices, nullptr);
  EXPECT_EQ(choice->why,
            "reduce.device is auto: the CPU reduces, because there is no CUDA device; "
            "make a GPU visible to this process.");
  measured_ = Failure{FailureCode::kDevice, "launch failed"};
  choice = Choose("auto", Machine(1));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices, nullptr);
  EXPECT_THAT(choice->why, HasSubstr("because launch failed."));
  EXPECT_EQ(left_, 1) << "a call to a device that has failed may wait for it";
  faults_->device_bytes = 1000;
  choice = Choose("auto", Machine(1));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices, nullptr);
  EXPECT_THAT(choice->why, HasSubstr("out of memory"));
}

TEST_F(ChooseDevice, PinnedMemoryIsAPartOfTheBudget) {
  const auto choice = Choose("cuda", Machine(1), /*threads=*/4, uint64_t{256} << 20);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->devices->pinned_bytes(), uint64_t{64} << 20);
  const auto little = Choose("cuda", Machine(1), /*threads=*/4, uint64_t{64} << 20);
  ASSERT_FALSE(little.ok());
  EXPECT_EQ(std::string(little.status().message()),
            "reduce.device is cuda: 4 reduce threads need 32MiB of pinned memory for a device, of "
            "which a quarter of memory.budget (16MiB) is allowed; raise memory.budget or lower "
            "reduce.threads");
}

TEST_F(ChooseDevice, Fault_A13_CudaWithoutMemoryOnTheDeviceSaysSo) {
  faults_->device_bytes = 1000;
  const auto choice = Choose("cuda", Machine(1));
  ASSERT_FALSE(choice.ok());
  EXPECT_THAT(std::string(choice.status().message()),
              testing::AllOf(HasSubstr("out of memory; "), Not(HasSubstr("correct this"))));
}

TEST_F(ChooseDevice, MeasuresBoth) {
  DeviceSource source = Machine(1);
  source.measure = MeasureReduction;
  const auto devices = Choose("cuda", source);
  ASSERT_TRUE(devices.ok());
  const auto measured = MeasureReduction(*cpu_, devices->devices->thread(0));
  ASSERT_TRUE(measured.ok()) << measured.failure().message;
  EXPECT_GT(measured.value().cpu, 0);
  EXPECT_GT(measured.value().device, 0);
  EXPECT_GT(faults_->launches, 0);
  faults_->failing_from = faults_->calls + 3;
  EXPECT_FALSE(MeasureReduction(*cpu_, devices->devices->thread(0)).ok());
}

// The real source: an answer on every machine.
TEST_F(ChooseDevice, AutoWorksOnThisMachine) {
  const DeviceSource source = {accelerator::CountCudaDevices, accelerator::OpenCudaDevice,
                               MeasureReduction, accelerator::LeaveCudaDevices};
  const auto choice = Choose("auto", source);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->why, HasSubstr("reduce.device is auto: the "));
  std::printf("%s\n", choice->why.c_str());
}

}  // namespace
}  // namespace basin::aggregator
