// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The use of a device by a DevicePipeline: overlap, batches, memory, errors. device_contract_test
// checks its bits.

#include "accelerator/transfer/device_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/accelerator/device/emulated_device.h"

namespace basin::accelerator {
namespace {

using kernels::Contribution;
using kernels::kNormLeafElements;
using kernels::ReductionSpec;
using kernels::Slice;
using kernels::cuda::kMaxContributions;
using kernels::cuda::kMaxTermsPerTask;

constexpr size_t kSmall = 64;  // Elements.

// The sum of an array of ones and one of twos.
class Sum {
 public:
  explicit Sum(size_t elements) : ones_(elements, 1.0F), twos_(elements, 2.0F), result_(elements) {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.contributions.resize(2);
    for (Contribution& contribution : spec.contributions) contribution.wire_dtype = DType::kF32;
    plan_.emplace(ReductionPlan::Make(spec).value());
  }

  HostPass Pass() {
    return {&*plan_, inputs_, {0, ones_.size()}, {result_.data(), nullptr}, &facts_};
  }
  // The twos are in memory of the device, at an address that is aligned to one element only.
  HostPass PassWithTwosOnDevice(const Memory& memory) {
    auto* const there = static_cast<float*>(memory.get()) + 1;
    std::copy(twos_.begin(), twos_.end(), there);
    twos_.assign(twos_.size(), 100.0F);  // Nobody reads these.
    on_device_[1] = there;
    HostPass pass = Pass();
    pass.on_device = on_device_;
    return pass;
  }
  bool IsRight() const { return result_ == std::vector<float>(ones_.size(), 3.0F); }
  // After Start has returned the inputs are not read.
  void SpoilInputs() { ones_.assign(ones_.size(), 100.0F); }

 private:
  std::vector<float> ones_;
  std::vector<float> twos_;
  std::vector<float> result_;
  const Slice slices_[2] = {{ones_.data(), ones_.size() * 4}, {twos_.data(), twos_.size() * 4}};
  const Input inputs_[2] = {{&slices_[0], 1}, {&slices_[1], 1}};
  const void* on_device_[2] = {};
  std::optional<ReductionPlan> plan_;
  Facts facts_;
};

// A sum that was started, and what was reported.
struct Started {
  explicit Started(DevicePipeline& pipeline, size_t elements = kSmall) : sum(elements) {
    ticket = pipeline.Start({sum.Pass()}, [this](const std::optional<Failure>& why) {
      ++reports;
      failure = why;
    });
  }

  bool Succeeded() const { return reports == 1 && !failure && sum.IsRight(); }
  bool Failed() const { return reports == 1 && failure; }

  Sum sum;
  DevicePipeline::Ticket ticket = 0;
  int reports = 0;
  std::optional<Failure> failure;
};

class DevicePipelineTest : public ::testing::Test {
 protected:
  static PipelineOptions Slots(size_t slots, size_t bytes = size_t{1} << 20) {
    PipelineOptions options;
    options.slots = slots;
    options.slot_bytes = bytes;
    return options;
  }
  std::unique_ptr<DevicePipeline> Make(const PipelineOptions& options) {
    return DevicePipeline::Make(device_.get(), options).value();
  }

  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  std::unique_ptr<Device> device_ = MakeEmulatedDevice(faults_);
};

// While one load is on the device, the next is gathered and added: both queues have work.
TEST_F(DevicePipelineTest, LoadsOverlap) {
  const auto pipeline = Make(Slots(2));
  Started first(*pipeline);
  Started second(*pipeline);
  EXPECT_EQ(faults_->busy_queues, 2);
  EXPECT_EQ(first.reports, 0);
  EXPECT_EQ(second.reports, 0);
  // The third needs the slot of the first, which is finished for that.
  Started third(*pipeline);
  EXPECT_TRUE(first.Succeeded());
  EXPECT_EQ(second.reports, 0);
  EXPECT_EQ(faults_->busy_queues, 2);
  pipeline->Finish(third.ticket);
  EXPECT_TRUE(second.Succeeded());
  EXPECT_TRUE(third.Succeeded());
  EXPECT_EQ(faults_->most_busy, 2);
  EXPECT_EQ(faults_->running, 0);
}

TEST_F(DevicePipelineTest, InputsAreNotReadAfterStart) {
  const auto pipeline = Make(Slots(2));
  Started started(*pipeline);
  started.sum.SpoilInputs();
  pipeline->Finish(started.ticket);
  EXPECT_TRUE(started.Succeeded());
}

TEST_F(DevicePipelineTest, AFinishedTicketIsFinished) {
  const auto pipeline = Make(Slots(2));
  Started first(*pipeline);
  Started second(*pipeline);
  pipeline->Finish(second.ticket);
  const int64_t calls = faults_->calls;
  pipeline->Finish(first.ticket);
  pipeline->Finish(second.ticket);
  EXPECT_EQ(faults_->calls, calls);
  EXPECT_TRUE(first.Succeeded());
  EXPECT_TRUE(second.Succeeded());
}

// Hundreds of small passes are one copy each way and one launch.
TEST_F(DevicePipelineTest, SmallPassesShareALaunch) {
  const auto pipeline = Make(Slots(1, size_t{4} << 20));
  std::vector<std::unique_ptr<Sum>> sums;
  std::vector<HostPass> passes;
  for (int i = 0; i < 300; ++i) {
    sums.push_back(std::make_unique<Sum>(kSmall));
    passes.push_back(sums.back()->Pass());
  }
  const int64_t before = faults_->calls;
  int reports = 0;
  pipeline->Finish(pipeline->Start(std::move(passes), [&](const auto& failure) {
    EXPECT_FALSE(failure);
    ++reports;
  }));
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(faults_->launches, 1);
  EXPECT_EQ(faults_->calls - before, 4) << "copy, launch, copy, wait";
  for (const auto& sum : sums) EXPECT_TRUE(sum->IsRight());
}

TEST_F(DevicePipelineTest, APassLargerThanItsLanesIsCut) {
  const auto pipeline = Make(Slots(2, 5 * kNormLeafElements * sizeof(float)));
  Started started(*pipeline, 10 * kNormLeafElements + 3);
  EXPECT_EQ(faults_->busy_queues, 2);
  pipeline->Finish(started.ticket);
  EXPECT_TRUE(started.Succeeded());
  EXPECT_GE(faults_->launches, 10);
}

// Such an input takes no room in a slot, also where the pass is cut.
TEST_F(DevicePipelineTest, AnInputOnTheDeviceIsReadWhereItIs) {
  constexpr size_t kElements = 10 * kNormLeafElements + 3;
  const auto memory = device_->AllocateOnDevice((kElements + 1) * sizeof(float));
  ASSERT_TRUE(memory.ok());
  const auto pipeline = Make(Slots(2, 5 * kNormLeafElements * sizeof(float)));
  Sum sum(kElements);
  bool failed = false;
  const auto ticket = pipeline->Start({sum.PassWithTwosOnDevice(memory.value())},
                                      [&](const std::optional<Failure>& why) { failed = !!why; });
  pipeline->Finish(ticket);
  EXPECT_FALSE(failed);
  EXPECT_TRUE(sum.IsRight());
  EXPECT_EQ(faults_->launches, 5) << "a lane holds one input and the result of two leaves";
}

TEST_F(DevicePipelineTest, TellsWhatFits) {
  const auto plan_of = [](size_t contributions) {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.contributions.resize(contributions);
    for (Contribution& contribution : spec.contributions) contribution.wire_dtype = DType::kF32;
    return ReductionPlan::Make(spec).value();
  };
  const auto small = Make(Slots(1));
  EXPECT_TRUE(small->Fits(plan_of(6)));
  EXPECT_FALSE(small->Fits(plan_of(8)));
  const auto large = Make(Slots(1, size_t{64} << 20));
  EXPECT_TRUE(large->Fits(plan_of(kMaxTermsPerTask)));
  EXPECT_FALSE(large->Fits(plan_of(kMaxTermsPerTask + 1)));
}

// The device could not name the contribution that is not finite.
TEST_F(DevicePipelineTest, MoreContributionsThanItCanNameDoNotFit) {
  ReductionSpec spec;
  spec.op = ReduceOp::kSum;
  spec.tensor_dtype = spec.result_dtype = DType::kU8;
  spec.contributions.resize(kMaxContributions + 1);
  for (Contribution& contribution : spec.contributions) contribution.skipped = true;
  spec.contributions.back().skipped = false;
  spec.contributions.back().wire_dtype = DType::kU8;
  const ReductionPlan plan = ReductionPlan::Make(std::move(spec)).value();
  EXPECT_FALSE(Make(Slots(1))->Fits(plan));
}

// ---- memory

TEST_F(DevicePipelineTest, MemoryIsAllocatedOnce) {
  const auto pipeline = Make(Slots(2));
  const int64_t pinned = faults_->pinned_bytes;
  for (int i = 0; i < 5; ++i) {
    Started started(*pipeline);
    pipeline->Finish(started.ticket);
    EXPECT_TRUE(started.Succeeded());
  }
  EXPECT_EQ(faults_->pinned_bytes, pinned);
}

TEST_F(DevicePipelineTest, WithLittlePinnedMemoryItHasFewerLanesAndWorks) {
  faults_->pinned_bytes = int64_t{3} << 19;  // One slot and a half.
  const auto pipeline = Make(Slots(2));
  EXPECT_EQ(pipeline->slots(), 1u);
  Started first(*pipeline);
  Started second(*pipeline);
  pipeline->Finish(second.ticket);
  EXPECT_TRUE(first.Succeeded());
  EXPECT_TRUE(second.Succeeded());
}

TEST_F(DevicePipelineTest, Fault_A13_WithoutMemoryForALaneThereIsAReason) {
  for (auto left : {&FaultPlan::pinned_bytes, &FaultPlan::device_bytes}) {
    const auto faults = std::make_shared<FaultPlan>();
    *faults.*left = 1000;
    const auto device = MakeEmulatedDevice(faults);
    const auto made = DevicePipeline::Make(device.get(), Slots(2));
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.failure().message.find("out of memory"), std::string::npos)
        << made.failure().message;
  }
}

// ---- errors

// Each call of three sums fails once: in a copy, at a launch, in the wait that reports an
// asynchronous error. Whatever was reported as a success is right, each sum is reported once, and
// nothing is left running. What is started afterwards fails, and makes no call of the device.
TEST_F(DevicePipelineTest, Fault_A13_AnyCallMayFail) {
  int64_t calls = 0;
  {
    const auto pipeline = Make(Slots(2));
    const int64_t before = faults_->calls;
    Started first(*pipeline);
    Started second(*pipeline);
    Started third(*pipeline);
    pipeline->Finish(third.ticket);
    calls = faults_->calls - before;
  }
  ASSERT_EQ(calls, 12);
  int failures = 0;
  for (const bool for_good : {false, true}) {
    for (int64_t failing = 0; failing < calls; ++failing) {
      const auto faults = std::make_shared<FaultPlan>();
      const auto device = MakeEmulatedDevice(faults);
      const auto pipeline = DevicePipeline::Make(device.get(), Slots(2)).value();
      (for_good ? faults->failing_from : faults->failing_call) = faults->calls + failing;
      Started first(*pipeline);
      Started second(*pipeline);
      Started third(*pipeline);
      pipeline->Finish(third.ticket);
      for (const Started* started : {&first, &second, &third}) {
        EXPECT_TRUE(started->Succeeded() || started->Failed()) << "call " << failing;
        failures += started->Failed() ? 1 : 0;
        if (!started->failure) continue;
        EXPECT_EQ(started->failure->code, FailureCode::kDevice);
        EXPECT_EQ(started->failure->message.rfind("emulated device: ", 0), 0u);
      }
      EXPECT_EQ(faults->running, 0) << "call " << failing << " left work behind";
      const int64_t made = faults->calls;
      Started later(*pipeline);
      EXPECT_TRUE(later.Failed()) << "after the failure of call " << failing;
      EXPECT_EQ(faults->calls, made);
    }
  }
  EXPECT_GE(failures, 2 * calls);
}

// A device that hangs fails its work, and neither the pipeline nor its end waits for it again. Its
// memory is not freed: it may still be written to.
TEST_F(DevicePipelineTest, Fault_A13_AHungDeviceWedgesNothing) {
  auto pipeline = Make(Slots(2));
  faults_->hangs = true;
  Started first(*pipeline);
  Started second(*pipeline);
  pipeline->Finish(first.ticket);
  EXPECT_TRUE(first.Failed());
  EXPECT_TRUE(second.Failed());
  EXPECT_NE(first.failure->message.find("has not ended"), std::string::npos);
  pipeline.reset();
  EXPECT_EQ(faults_->allocated.size(), 4u);
}

TEST_F(DevicePipelineTest, ItsEndWaitsForWhatIsInFlight) {
  auto pipeline = Make(Slots(2));
  Started started(*pipeline);
  pipeline.reset();
  EXPECT_TRUE(started.Succeeded());
  EXPECT_TRUE(faults_->allocated.empty());
}

}  // namespace
}  // namespace basin::accelerator
