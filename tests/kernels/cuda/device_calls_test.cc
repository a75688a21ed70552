// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The use of a device by a DeviceReducer: errors, memory, threads, limits.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/device_reducer.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace basin::kernels::cuda {
namespace {

// A sum of one contribution more than a task takes, in two pieces: of so many contributions of f64,
// the staging holds one leaf.
class SmallSum {
 public:
  SmallSum() {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF64;
    spec.contributions.resize(kContributors);
    for (Contribution& contribution : spec.contributions) contribution.wire_dtype = DType::kF64;
    plan_ = std::make_unique<ReductionPlan>(ReductionPlan::Make(spec).value());
  }

  // Fails, or gives the expected result.
  std::optional<Failure> Run(const DeviceReducer& reducer) const {
    const Slice slice = {ones_.data(), ones_.size() * sizeof(double)};
    const std::vector<Input> inputs(kContributors, Input{&slice, 1});
    std::vector<double> result(ones_.size());
    Facts facts;
    auto failure = reducer.Reduce(*plan_, inputs.data(), Span{0, ones_.size()},
                                  Output{result.data(), nullptr}, &facts);
    if (!failure) {
      EXPECT_EQ(result, std::vector<double>(ones_.size(), kContributors));
    }
    return failure;
  }

 private:
  static constexpr size_t kContributors = kMaxTermsPerTask + 1;

  std::unique_ptr<ReductionPlan> plan_;
  std::vector<double> ones_ = std::vector<double>(kNormLeafElements + 1, 1.0);
};

class DeviceCallsTest : public ::testing::Test {
 protected:
  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  DeviceReducer reducer_{MakeEmulatedDevice(faults_)};
};

// Every call that a reduction makes of its device fails once. Each time the caller gets a typed
// failure that names the device and the call, nothing is left running, and the next attempt works.
TEST_F(DeviceCallsTest, Fault_A13_AnyCallOfTheDeviceMayFail) {
  const SmallSum sum;
  ASSERT_FALSE(sum.Run(reducer_));
  const int64_t calls = faults_->calls;
  ASSERT_GT(calls, 20);
  for (int64_t failing = 0; failing < calls; ++failing) {
    const auto faults = std::make_shared<FaultPlan>();
    const DeviceReducer reducer(MakeEmulatedDevice(faults));
    faults->failing_call = failing;
    const auto failure = sum.Run(reducer);
    ASSERT_TRUE(failure) << "call " << failing;
    EXPECT_EQ(failure->code, FailureCode::kDevice);
    EXPECT_EQ(failure->message.rfind("emulated device: ", 0), 0u) << failure->message;
    EXPECT_EQ(faults->running, 0) << "call " << failing << " left work behind";
    EXPECT_FALSE(sum.Run(reducer)) << "after the failure of call " << failing;
  }
}

TEST_F(DeviceCallsTest, WorkspacesAreKept) {
  const SmallSum sum;
  ASSERT_FALSE(sum.Run(reducer_));
  const int64_t first = faults_->calls;
  ASSERT_FALSE(sum.Run(reducer_));
  const int64_t second = faults_->calls - first;
  EXPECT_LT(second, first) << "the second run allocated again";
}

TEST_F(DeviceCallsTest, CallsFromSeveralThreadsTakeTurns) {
  DeviceReducerOptions options;
  options.parallel_calls = 2;
  const DeviceReducer reducer(MakeEmulatedDevice(faults_), options);
  const SmallSum sum;
  std::vector<std::thread> threads;
  threads.reserve(6);
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) EXPECT_FALSE(sum.Run(reducer));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults_->running, 0);
}

TEST_F(DeviceCallsTest, RefusesMoreContributionsThanItCanName) {
  ReductionSpec spec;
  spec.op = ReduceOp::kSum;
  spec.tensor_dtype = spec.result_dtype = DType::kU8;
  spec.contributions.resize(kMaxContributions + 1);
  for (Contribution& contribution : spec.contributions) contribution.skipped = true;
  spec.contributions.back().skipped = false;
  spec.contributions.back().wire_dtype = DType::kU8;
  const ReductionPlan plan = ReductionPlan::Make(std::move(spec)).value();
  unsigned char result = 0;
  Facts facts;
  const auto failure = reducer_.Reduce(plan, nullptr, Span{0, 1}, Output{&result, nullptr}, &facts);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, FailureCode::kUnsupported);
}

}  // namespace
}  // namespace basin::kernels::cuda
