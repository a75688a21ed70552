// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices of the CUDA runtime as a backend of the suite, and the conversion of the runtime's
// errors. Without a GPU only the failure is tested; the other cases are skipped.

#include "accelerator/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/accelerator/device/device_suite.h"
#include "tests/accelerator/device/driver_is_loaded.h"

namespace basin::accelerator {
namespace {

class CudaTrainer final : public Trainer {
 public:
  CudaTrainer() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~CudaTrainer() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  std::unique_ptr<Device> Open() override { return OpenCudaDevice(0).value(); }
  Stream stream() override { return stream_; }
  void Hold() override {
    const auto wait = [](void* released) {
      while (!*static_cast<std::atomic<bool>*>(released)) std::this_thread::yield();
    };
    EXPECT_EQ(cudaLaunchHostFunc(stream_, wait, &released_), cudaSuccess);
  }
  void Release() override { released_ = true; }
  void Fill(void* device, unsigned char byte, size_t size) override {
    EXPECT_EQ(cudaMemsetAsync(device, byte, size, stream_), cudaSuccess);
  }
  void CopyToHost(void* host, const void* device, size_t size) override {
    EXPECT_EQ(cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  }
  void Synchronize() override { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }
  void BeginCapture() override {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  }
  void EndCapture() override {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> released_{false};
};

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

// The runtime keeps the error of a call until somebody fetches it.
TEST(CudaDeviceTest, ALaunchDoesNotReportTheErrorOfSomebodyElsesCall) {
  std::string why_not;
  const auto trainer = MakeTrainer(&why_not);
  if (trainer == nullptr) GTEST_SKIP() << why_not;
  const auto device = trainer->Open();
  const Memory memory = device->AllocateOnDevice(1024).value();
  const auto queue = device->MakeQueue().value();
  CopyTask task = {};
  task.items[task.count++] = {memory.get(), static_cast<char*>(memory.get()) + 512, 512};
  void* none = nullptr;
  ASSERT_EQ(cudaMalloc(&none, size_t{1} << 60), cudaErrorMemoryAllocation);
  const auto failure = queue->Run(task);
  EXPECT_FALSE(failure.has_value()) << failure->message;
  EXPECT_FALSE(queue->Wait());
}

}  // namespace

std::unique_ptr<Trainer> MakeTrainer(std::string* why_not) {
  const auto opened = OpenCudaDevice(0);
  if (opened.ok()) return std::make_unique<CudaTrainer>();
  *why_not = opened.failure().message;
  EXPECT_FALSE(DriverIsLoaded()) << *why_not;
  return nullptr;
}

}  // namespace basin::accelerator
