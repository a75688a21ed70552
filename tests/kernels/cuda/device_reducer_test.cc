// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The device backend on an emulated device: the arithmetic, the indexing of the kernels, the
// staging and the errors. What this cannot show is the launch itself; cuda_contract.cc does, on a
// GPU.
//
// usage: device_reducer_test --golden=<folder of the golden vectors>

#include "kernels/cuda/device_reducer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/element.h"
#include "kernels/reference.h"
#include "tests/kernels/contract.h"
#include "tests/kernels/cuda/device_checks.h"
#include "tests/kernels/cuda/emulated_device.h"
#include "tests/kernels/golden.h"

namespace basin::kernels::cuda {

std::string golden_folder;  // Set once by main, before any test runs.

namespace {

class DeviceReducerTest : public ::testing::Test {
 protected:
  std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  DeviceReducer reducer_{MakeEmulatedDevice(faults_)};
};

class DeviceContractTest : public DeviceReducerTest, public ::testing::WithParamInterface<DType> {};

TEST_P(DeviceContractTest, BitEqualToTheReference) {
  const contract::Report report = contract::CheckAgainstReference(reducer_, GetParam());
  EXPECT_TRUE(report.ok()) << report.Summary();
  EXPECT_EQ(faults_->running, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, DeviceContractTest,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                           DType::kI64, DType::kI32, DType::kU8),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_F(DeviceReducerTest, Criterion_5_7_GoldenVectors) {
  for (const std::string& file : contract::GoldenFiles()) {
    const contract::Report report = contract::CheckGolden(reducer_, golden_folder + "/" + file);
    EXPECT_TRUE(report.ok()) << file << ": " << report.Summary();
  }
}

TEST_F(DeviceReducerTest, MoreTermsThanATaskTakes) {
  const contract::Report report = CheckManyTerms(reducer_);
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceReducerTest, SpansOfSeveralPieces) {
  const contract::Report report = CheckManyPieces(reducer_);
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceReducerTest, InputsOnTheDevice) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice(faults_);
  const contract::Report report = CheckOnDevice(reducer_, device.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

TEST_F(DeviceReducerTest, Casts) {
  const std::unique_ptr<Device> device = MakeEmulatedDevice(faults_);
  const contract::Report report = CheckCasts(device.get());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

// ---- A small reduction, for what is about calls and not about values ----------------------------

class SmallSum {
 public:
  SmallSum() {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.contributions.resize(2);
    for (Contribution& contribution : spec.contributions) contribution.wire_dtype = DType::kF32;
    plan_ = std::make_unique<ReductionPlan>(ReductionPlan::Make(spec).value());
  }

  // Fails, or gives what the test expects.
  std::optional<Failure> Run(const DeviceReducer& reducer) const {
    const Slice slices[] = {{ones_.data(), ones_.size() * 4}, {twos_.data(), twos_.size() * 4}};
    const Input inputs[] = {{&slices[0], 1}, {&slices[1], 1}};
    std::vector<float> accumulator(ones_.size());
    std::vector<float> result(ones_.size());
    const Span span{0, ones_.size()};
    Facts facts;
    auto failure = reducer.Fold(*plan_, inputs, 0, 1, span, accumulator.data(), &facts);
    if (failure) return failure;
    failure = reducer.Reduce(*plan_, inputs, 1, accumulator.data(), span,
                             Output{result.data(), nullptr}, &facts);
    if (!failure) {
      EXPECT_EQ(result, std::vector<float>(ones_.size(), 3.0f));
    }
    return failure;
  }

 private:
  std::unique_ptr<ReductionPlan> plan_;
  std::vector<float> ones_ = std::vector<float>(33 * kNormLeafElements, 1.0f);  // Two pieces.
  std::vector<float> twos_ = std::vector<float>(33 * kNormLeafElements, 2.0f);
};

// Every call that a fold and a reduction make of their device fails once. Each time the caller gets
// a typed failure that names the device and the call, nothing is left running, and the next attempt
// works.
TEST_F(DeviceReducerTest, Fault_A13_AnyCallOfTheDeviceMayFail) {
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

TEST_F(DeviceReducerTest, WorkspacesAreKept) {
  const SmallSum sum;
  ASSERT_FALSE(sum.Run(reducer_));
  const int64_t first = faults_->calls;
  ASSERT_FALSE(sum.Run(reducer_));
  const int64_t second = faults_->calls - first;
  EXPECT_LT(second, first) << "the second run allocated again";
}

TEST_F(DeviceReducerTest, CallsFromSeveralThreadsTakeTurns) {
  DeviceReducerOptions options;
  options.parallel_calls = 2;
  const DeviceReducer reducer(MakeEmulatedDevice(faults_), options);
  const SmallSum sum;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round) EXPECT_FALSE(sum.Run(reducer));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(faults_->running, 0);
}

TEST_F(DeviceReducerTest, RefusesMoreContributionsThanItCanName) {
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
  const auto failure =
      reducer_.Reduce(plan, nullptr, 0, nullptr, Span{0, 1}, Output{&result, nullptr}, &facts);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, FailureCode::kUnsupported);
}

// ---- The arithmetic of one element --------------------------------------------------------------

TEST(ElementTest, WrapsAreSeen) {
  const int64_t values[] = {INT64_MIN,  INT64_MIN + 1, -4294967297,   -3,       -1, 0, 1, 2, 3,
                            4294967296, 1LL << 62,     INT64_MAX - 1, INT64_MAX};
  for (int64_t a : values) {
    for (int64_t b : values) {
      int64_t exact = 0;
      EXPECT_EQ(SumWraps(a, b), __builtin_add_overflow(a, b, &exact)) << a << " + " << b;
      EXPECT_EQ(WrappingSum(a, b), exact);
      EXPECT_EQ(ProductWraps(a, b), __builtin_mul_overflow(a, b, &exact)) << a << " * " << b;
      EXPECT_EQ(WrappingProduct(a, b), exact);
    }
  }
}

template <typename T>
void ExpectIdentities(std::initializer_list<T> values) {
  for (Combine combine : {Combine::kAdd, Combine::kMultiply, Combine::kMin, Combine::kMax}) {
    for (T value : values) {
      const T next = Next(combine, Identity<T>(combine), value);
      EXPECT_EQ(std::memcmp(&next, &value, sizeof(T)), 0)
          << "combine " << static_cast<int>(combine) << " of " << value << " is " << next;
    }
  }
}

TEST(ElementTest, IdentitiesChangeNothing) {
  const float inf = __builtin_huge_valf();
  ExpectIdentities<float>({0.0f, -0.0f, 1.5f, -3e38f, 1e-45f, -1e-45f, inf, -inf});
  ExpectIdentities<double>({0.0, -0.0, 1.5, -1e308, 5e-324, -5e-324, inf, -inf});
  ExpectIdentities<int64_t>({0, -1, 7, INT64_MIN, INT64_MAX});
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
