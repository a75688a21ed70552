// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The order of copies with a trainer's streams, on the emulated device.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/accelerator/device/emulated_trainer_device.h"

namespace basin::accelerator {
namespace {

class TrainerDeviceTest : public ::testing::Test {
 protected:
  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  std::unique_ptr<TrainerDevice> device_ = MakeEmulatedTrainerDevice(faults_);
  EmulatedStream stream_;
  Memory tensor_ = AllocateForTrainer(faults_, sizeof(int));
  int* value_ = static_cast<int*>(tensor_.get());
};

TEST_F(TrainerDeviceTest, ACopyToTheHostSeesWhatTheStreamWroteBefore) {
  *value_ = 1;
  stream_.Hold();
  stream_.Add([this] { *value_ = 2; });
  const auto event = device_->MakeEvent().value();
  ASSERT_FALSE(event->Record(&stream_));
  const auto queue = device_->MakeQueue().value();
  int copy = 0;
  ASSERT_FALSE(queue->After(event.get()));
  ASSERT_FALSE(queue->CopyToHost(&copy, value_, sizeof(copy)));
  std::atomic<bool> waited{false};
  std::thread waiter([&] {
    EXPECT_FALSE(queue->Wait());
    waited = true;
  });
  EXPECT_FALSE(waited) << "the stream has not run yet";
  stream_.Release();
  waiter.join();
  EXPECT_EQ(copy, 2);
}

TEST_F(TrainerDeviceTest, AStreamSeesWhatWasCopiedToTheDeviceBefore) {
  *value_ = 0;
  const auto queue = device_->MakeQueue().value();
  const int three = 3;
  ASSERT_FALSE(queue->CopyToDevice(value_, &three, sizeof(three)));
  ASSERT_FALSE(queue->Before(&stream_));
  int seen = 0;
  stream_.Add([&] { seen = *value_; });
  ASSERT_FALSE(queue->Wait());
  stream_.Synchronize();
  EXPECT_EQ(seen, 3);
}

// What was added before a mark is done when it was waited for, and what was added later need not
// be.
TEST_F(TrainerDeviceTest, MarksAreReachedInTheirOrder) {
  const auto queue = device_->MakeQueue().value();
  *value_ = 7;
  int copies[3] = {};
  for (int& copy : copies) {
    ASSERT_FALSE(queue->CopyToHost(&copy, value_, sizeof(copy)));
    ASSERT_FALSE(queue->Mark());
  }
  ASSERT_FALSE(queue->AwaitMark());
  EXPECT_EQ(copies[0], 7);
  EXPECT_EQ(copies[2], 0) << "the emulated device is late";
  ASSERT_FALSE(queue->AwaitMark());
  EXPECT_EQ(copies[1], 7);
  ASSERT_FALSE(queue->Wait());
  EXPECT_EQ(copies[2], 7);
  // The mark that was left is forgotten.
  *value_ = 8;
  ASSERT_FALSE(queue->CopyToHost(&copies[0], value_, sizeof(copies[0])));
  ASSERT_FALSE(queue->Mark());
  ASSERT_FALSE(queue->AwaitMark());
  EXPECT_EQ(copies[0], 8);
  ASSERT_FALSE(queue->Wait());
  EXPECT_EQ(faults_->running, 0);
}

TEST_F(TrainerDeviceTest, RefusesCapturesAndWhatIsNotItsOwn) {
  const auto event = device_->MakeEvent().value();
  stream_.captured = true;
  EXPECT_EQ(event->Record(&stream_)->code, FailureCode::kUnsupported);
  EmulatedStream other(1);
  EXPECT_EQ(event->Record(&other)->code, FailureCode::kInvalidArgument);
  int host = 0;
  EXPECT_EQ(device_->CheckMemory(&host, sizeof(host))->code, FailureCode::kInvalidArgument);
  EXPECT_EQ(device_->CheckMemory(value_, sizeof(int) + 1)->code, FailureCode::kInvalidArgument);
  EXPECT_FALSE(device_->CheckMemory(value_, sizeof(int)));
}

TEST_F(TrainerDeviceTest, Fault_A13_WorkBehindAStreamThatNeverRunsIsGivenUp) {
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
}  // namespace basin::accelerator
