// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The communicator with NCCL itself on real devices: as many ranks as there are GPUs, at most
// four. Skipped without a GPU, and without NCCL, which BASIN_NCCL_LIBRARY may name.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/device/cuda_device.h"
#include "accelerator/node/nccl/communicator.h"
#include "gtest/gtest.h"
#include "kernels/reference.h"
#include "tests/accelerator/device/driver_is_loaded.h"

namespace basin::accelerator::nccl {
namespace {

using kernels::ReductionPlan;
using kernels::ReductionSpec;
using std::chrono::milliseconds;

class CudaGroupTest : public testing::Test {
 protected:
  struct Rank {
    int gpu = 0;
    std::shared_ptr<Device> device;
    Memory input;
    Memory result;
    std::unique_ptr<Communicator> communicator;
  };
  static constexpr size_t kCount = 1000003;

  void SetUp() override {
    const kernels::Result<int> count = CountCudaDevices();
    gpus_ = count.ok() ? count.value() : 0;
    const std::string why = count.ok() ? "no device is visible" : count.failure().message;
    if (gpus_ == 0 && !DriverIsLoaded()) GTEST_SKIP() << why;
    ASSERT_GT(gpus_, 0) << why;
    LibrarySearch search;
    if (const char* const path = std::getenv("BASIN_NCCL_LIBRARY")) search.path = path;
    auto loaded = Library::Load(search);
    if (!loaded.ok()) GTEST_SKIP() << loaded.status();
    library_ = *loaded;
  }

  // Starts ranks on these GPUs; `size` ranks are expected.
  void Start(const std::vector<int>& gpus, int size, GroupMode mode) {
    const auto id = MakeUniqueId(library_, milliseconds(30000));
    ASSERT_TRUE(id.ok()) << id.status();
    for (size_t i = 0; i < gpus.size(); ++i) {
      Rank rank;
      rank.gpu = gpus[i];
      auto device = OpenCudaDevice(gpus[i]);
      ASSERT_TRUE(device.ok()) << device.failure().message;
      rank.device = std::move(device).value();
      rank.input = rank.device->AllocateOnDevice(kCount * 4).value();
      rank.result = rank.device->AllocateOnDevice(kCount * 4).value();
      CommunicatorOptions options;
      options.id = *id;
      options.position = {static_cast<int>(i), size, size - 1};
      options.mode = mode;
      options.form_within = milliseconds(5000);
      options.work_within = milliseconds(20000);
      auto started = Communicator::Start(library_, rank.device, options);
      ASSERT_TRUE(started.ok()) << started.status();
      rank.communicator = std::move(*started);
      ranks_.push_back(std::move(rank));
    }
  }

  // A weighted average over the ranks, which the last one leads, and a broadcast of it.
  void ExpectRound(bool exact) {
    const size_t n = ranks_.size();
    ReductionSpec spec;
    spec.op = ReduceOp::kWeightedAverage;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.predivide = 3;
    std::vector<std::vector<float>> inputs(n, std::vector<float>(kCount));
    std::vector<kernels::Slice> slices(n);
    std::vector<kernels::Input> all(n);
    for (size_t i = 0; i < n; ++i) {
      kernels::Contribution contribution;
      contribution.wire_dtype = DType::kF32;
      contribution.weight = i + 1;
      spec.divisor += i + 1;
      spec.contributions.push_back(contribution);
      for (size_t k = 0; k < kCount; ++k) {
        inputs[i][k] =
            static_cast<float>(static_cast<int>((k * 7919 + i * 31) % 20011) - 10005) / 7;
      }
      slices[i] = {inputs[i].data(), kCount * 4};
      all[i] = {&slices[i], 1};
      ASSERT_EQ(cudaSetDevice(ranks_[i].gpu), cudaSuccess);
      ASSERT_EQ(
          cudaMemcpy(ranks_[i].input.get(), inputs[i].data(), kCount * 4, cudaMemcpyHostToDevice),
          cudaSuccess);
    }
    auto made = ReductionPlan::Make(spec);
    ASSERT_TRUE(made.ok());
    const auto plan = std::make_shared<const ReductionPlan>(std::move(made).value());
    std::vector<float> expected(kCount);
    kernels::Output output;
    output.data = expected.data();
    kernels::Facts facts;
    ASSERT_FALSE(
        kernels::MakeReferenceReducer()->Reduce(*plan, all.data(), {0, kCount}, output, &facts));
    std::vector<Communicator::Work> works;
    for (Rank& rank : ranks_) {
      const GroupTensor tensor{plan, true, kCount, rank.input.get(), rank.result.get()};
      works.push_back(rank.communicator->Reduce({tensor}, {}));
      works.push_back(rank.communicator->Broadcast({{rank.result.get(), kCount * 4}}, {}));
    }
    for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    for (const Rank& rank : ranks_) {
      std::vector<float> result(kCount);
      ASSERT_EQ(cudaSetDevice(rank.gpu), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(result.data(), rank.result.get(), kCount * 4, cudaMemcpyDeviceToHost),
                cudaSuccess);
      for (size_t k = 0; k < kCount; ++k) {
        if (exact) {
          ASSERT_EQ(result[k], expected[k]) << k;
        } else {
          ASSERT_NEAR(result[k], expected[k], 0.01) << k;
        }
      }
    }
  }

  int gpus_ = 0;
  std::shared_ptr<const Library> library_;
  std::vector<Rank> ranks_;
};

TEST_F(CudaGroupTest, Item3_BothModesOnAsManyRanksAsThereAreGpus) {
  std::vector<int> gpus;
  for (int gpu = 0; gpu < std::min(gpus_, 4); ++gpu) gpus.push_back(gpu);
  for (const GroupMode mode : {GroupMode::kDeterministic, GroupMode::kFast}) {
    Start(gpus, static_cast<int>(gpus.size()), mode);
    for (Rank& rank : ranks_) ASSERT_EQ(rank.communicator->WaitUntilFormed(), absl::OkStatus());
    ExpectRound(mode == GroupMode::kDeterministic);
    for (Rank& rank : ranks_) EXPECT_EQ(rank.communicator->status(), absl::OkStatus());
    ranks_.clear();
  }
}

TEST_F(CudaGroupTest, Fault_A13_APeerThatNeverComesEndsTheForming) {
  Start({0}, 2, GroupMode::kDeterministic);
  const absl::Status status = ranks_[0].communicator->WaitUntilFormed();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

// NCCL refuses two ranks on one GPU in most versions, which must be an error and no hang.
TEST_F(CudaGroupTest, Item3_TwoRanksOnOneGpuWorkOrAreRefused) {
  Start({0, 0}, 2, GroupMode::kDeterministic);
  absl::Status status;
  for (Rank& rank : ranks_) {
    const absl::Status formed = rank.communicator->WaitUntilFormed();
    if (!formed.ok()) status = formed;
  }
  if (!status.ok()) GTEST_SKIP() << "refused: " << status;
  ExpectRound(true);
}

}  // namespace
}  // namespace basin::accelerator::nccl
