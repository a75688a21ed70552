// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A library that was built without CUDA, whether this build has it or not: tensors on a device get
// an error that says what to do, and the rest works.

#include <optional>
#include <string>

#include "accelerator/device/cuda_device.h"
#include "client/device/transfers.h"
#include "gtest/gtest.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

TEST(NoCudaTest, TensorsOfADeviceAreRefusedAndThoseOfTheHostAreNot) {
  Rig rig;
  DeviceTransfers transfers(*rig.worker, accelerator::OpenCudaDevice, 1 << 20);
  rig.Join();
  BeginRound begin;
  begin.lane = rig.lane.lane;
  begin.spec.op = ReduceOp::kAverage;
  ASSERT_TRUE(transfers.Begin(begin).ok());
  const std::string& gradient = rig.gradients[0];
  const Source pushed(0, gradient.data(), gradient.size());
  const absl::Status refused = transfers.Push(rig.lane.lane, {pushed}, {0, nullptr});
  EXPECT_EQ(CodeOf(refused), ErrorCode::kFailedPrecondition);
  for (const char* part : {"the tensors of CUDA device 0", "this build has no CUDA kernels",
                           "use a build with CUDA", "train on the CPU"}) {
    EXPECT_NE(refused.message().find(part), absl::string_view::npos) << refused << "\n" << part;
  }
  ASSERT_TRUE(rig.worker->Push(rig.lane.lane, pushed).ok());
  ASSERT_TRUE(transfers.WaitUntilPassed(rig.lane.lane).ok());
  EXPECT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
}

}  // namespace
}  // namespace basin::client
