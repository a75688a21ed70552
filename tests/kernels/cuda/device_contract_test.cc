// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The device backend on an emulated device: the arithmetic, the indexing of the kernels, the
// staging and the errors. It cannot test the launch itself, which cuda_contract.cc tests on a GPU.
//
// usage: device_contract_test --golden=<folder of the golden vectors>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/accelerator/device/emulated_device.h"
#include "tests/kernels/contract.h"
#include "tests/kernels/cuda/device_checks.h"
#include "tests/kernels/golden.h"

namespace basin::kernels::cuda {

using accelerator::Device;
using accelerator::FaultPlan;
using accelerator::MakeEmulatedDevice;

std::string golden_folder;  // Set once by main, before any test runs.

namespace {

class DeviceTest : public ::testing::Test {
 protected:
  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  std::unique_ptr<Device> device_ = MakeEmulatedDevice(faults_);
};

class DeviceContractTest : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(DeviceContractTest, BitEqualToTheReference) {
  const PipelineReducer reducer(device_.get());
  const contract::Report report = contract::CheckAgainstReference(reducer, GetParam());
  EXPECT_TRUE(report.ok()) << report.Summary();
  EXPECT_EQ(faults_->running, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, DeviceContractTest,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                           DType::kI64, DType::kI32, DType::kU8),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_F(DeviceTest, Criterion_5_7_GoldenVectors) {
  const PipelineReducer reducer(device_.get());
  for (const std::string& file : contract::GoldenFiles()) {
    const contract::Report report = contract::CheckGolden(reducer, golden_folder + "/" + file);
    EXPECT_TRUE(report.ok()) << file << ": " << report.Summary();
  }
}

TEST_F(DeviceTest, AsManyTermsAsATaskTakes) {
  const contract::Report report = CheckManyTerms(device_.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceTest, SpansOfSeveralPieces) {
  const contract::Report report = CheckManyPieces(device_.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceTest, InputsOnTheDevice) {
  const contract::Report report = CheckOnDevice(device_.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceTest, PassesThroughAPipeline) {
  const contract::Report report = CheckPipeline(device_.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
  EXPECT_GT(report.comparisons(), 400u);
}

}  // namespace
}  // namespace basin::kernels::cuda

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kGolden = "--golden=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, kGolden.size()) == kGolden) {
      basin::kernels::cuda::golden_folder = argument.substr(kGolden.size());
    }
  }
  return RUN_ALL_TESTS();
}
