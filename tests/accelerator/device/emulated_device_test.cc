// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The emulated device as a backend of the suite, and what only it does.

#include "tests/accelerator/device/emulated_device.h"

#include <cstring>

#include "gtest/gtest.h"
#include "tests/accelerator/device/device_suite.h"

namespace basin::accelerator {
namespace {

class EmulatedTrainer final : public Trainer {
 public:
  std::unique_ptr<Device> Open() override { return MakeEmulatedDevice(faults_); }
  Stream stream() override { return &stream_; }
  void Hold() override { stream_.Hold(); }
  void Release() override { stream_.Release(); }
  void Fill(void* device, unsigned char byte, size_t size) override {
    stream_.Add([=] { std::memset(device, byte, size); });
  }
  void CopyToHost(void* host, const void* device, size_t size) override {
    stream_.Add([=] { std::memcpy(host, device, size); });
  }
  void Synchronize() override { stream_.Synchronize(); }
  void BeginCapture() override { stream_.captured = true; }
  void EndCapture() override { stream_.captured = false; }

 private:
  const std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  EmulatedStream stream_;
};

class EmulatedDeviceTest : public testing::Test {
 protected:
  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  std::unique_ptr<Device> device_ = MakeEmulatedDevice(faults_);
  EmulatedStream stream_;
};

// It is as late as it may be.
TEST_F(EmulatedDeviceTest, WorkRunsWhenSomebodyWaitsForIt) {
  const auto queue = device_->MakeQueue().value();
  const int value = 7;
  int copies[2] = {};
  for (int& copy : copies) {
    ASSERT_FALSE(queue->CopyToHost(&copy, &value, sizeof(copy)));
    ASSERT_FALSE(queue->Mark());
  }
  EXPECT_EQ(copies[0], 0);
  ASSERT_FALSE(queue->AwaitMark());
  EXPECT_EQ(copies[0], 7);
  EXPECT_EQ(copies[1], 0);
  ASSERT_FALSE(queue->Wait());
  EXPECT_EQ(copies[1], 7);
  EXPECT_EQ(faults_->running, 0);
}

TEST_F(EmulatedDeviceTest, RefusesAStreamOfAnotherDevice) {
  EmulatedStream other(1);
  EXPECT_EQ(device_->MakeEvent().value()->Record(&other)->code, FailureCode::kInvalidArgument);
}

TEST_F(EmulatedDeviceTest, Fault_A13_WorkBehindAStreamThatNeverRunsIsGivenUp) {
  stream_.Hold();
  const auto event = device_->MakeEvent().value();
  ASSERT_FALSE(event->Record(&stream_));
  const auto queue = device_->MakeQueue().value();
  ASSERT_FALSE(queue->After(event.get()));
  device_->LosePatience();
  const auto failure = queue->Wait();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, FailureCode::kDevice);
  EXPECT_TRUE(device_->AllocatePinned(1).ok() == false) << "every call fails from then on";
}

}  // namespace

std::unique_ptr<Trainer> MakeTrainer(std::string*) { return std::make_unique<EmulatedTrainer>(); }

}  // namespace basin::accelerator
