// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The conversion of the CUDA runtime's errors. Runs with and without a GPU.

#include <gtest/gtest.h>

#include <string>

#include "accelerator/device/cuda_device.h"

namespace basin::accelerator {
namespace {

TEST(CudaFailureTest, Fault_A13_NoDriverOrDeviceIsAFailureThatSaysSo) {
  const Result<int> count = CountCudaDevices();
  const auto device = OpenCudaDevice(0);
  EXPECT_EQ(device.ok(), count.ok() && count.value() > 0);
  if (count.ok()) return;
  EXPECT_EQ(count.failure().code, FailureCode::kDevice);
  const bool says_so = count.failure().message.find("cudaGetDeviceCount failed: ") == 0 ||
                       count.failure().message.find("driver") != std::string::npos;
  EXPECT_TRUE(says_so) << count.failure().message;
  EXPECT_EQ(device.failure().message, count.failure().message);
}

TEST(CudaFailureTest, Fault_A13_AnIndexThatDoesNotExistIsAFailure) {
  for (int index : {-1, 1 << 20}) {
    const auto device = OpenCudaDevice(index);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.failure().code, FailureCode::kDevice);
    EXPECT_FALSE(device.failure().message.empty());
  }
}

}  // namespace
}  // namespace basin::accelerator
