// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The values of reduce.device.

#include "aggregator/text/reduce_device.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace basin::aggregator {
namespace {

TEST(ReduceDevice, ReadsItsValues) {
  EXPECT_EQ(ParseReduceDevice("cpu")->kind, ReduceDeviceOption::Kind::kCpu);
  EXPECT_EQ(ParseReduceDevice("auto")->kind, ReduceDeviceOption::Kind::kAuto);
  EXPECT_EQ(ParseReduceDevice("cuda")->kind, ReduceDeviceOption::Kind::kCuda);
  EXPECT_EQ(ParseReduceDevice("cuda")->index, std::nullopt);
  EXPECT_EQ(ParseReduceDevice("cuda:12")->index, 12);
  for (const char* wrong : {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "cuda0",
                            "cpu ", "cuda: 1", "cuda:1,2"}) {
    const auto option = ParseReduceDevice(wrong);
    ASSERT_FALSE(option.ok()) << wrong;
    EXPECT_EQ(option.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(option.status().message()), testing::HasSubstr("cuda:N"));
  }
}

}  // namespace
}  // namespace basin::aggregator
