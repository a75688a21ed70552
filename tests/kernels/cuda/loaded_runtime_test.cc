// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Basin's code for CUDA devices without libcudart: this program is linked with none, and loads a
// stand-in for it. It also links only if loaded_runtime.cc has every function that the code calls.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "accelerator/device/cuda_device.h"
#include "kernels/cuda/runtime_library.h"

namespace basin::kernels::cuda {
namespace {

using accelerator::CountCudaDevices;
using accelerator::DescribeCudaDevices;
using accelerator::LeaveCudaDevices;
using accelerator::OpenCudaDevice;

namespace fs = std::filesystem;

std::string stand_in;  // The path of the library.

// A function of the stand-in, which the first test has loaded.
template <typename Function>
Function Find(const char* name) {
  void* const library = dlopen(stand_in.c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, name));
}

// A library of the process comes before that of the system. It gets the kernels that were
// registered before it was loaded. This is the first test, because the library is loaded once.
TEST(LoadedRuntimeTest, CallsAndKernelsReachTheLibraryOfTheProcess) {
  void* const library = dlopen(stand_in.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(CountCudaDevices().value(), 2);
  auto device = OpenCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.failure().message;
  EXPECT_EQ(device.value()->name(), "CUDA device 0 (stand-in)");
  const auto queue = device.value()->MakeQueue();
  ASSERT_TRUE(queue.ok()) << queue.failure().message;
  char bytes[2] = {};
  CopyTask copies = {};
  copies.items[copies.count++] = {&bytes[0], &bytes[1], 1};
  EXPECT_FALSE(queue.value()->Run(copies));
  NarrowTask casts = {};
  casts.items[casts.count++] = {bytes, bytes, nullptr, 1, 1.0F, DType::kF16};
  EXPECT_FALSE(queue.value()->Run(casts));
  const std::string text = Find<const char* (*)()>("stand_in_launched")();
  EXPECT_NE(text.find("CopyKernel"), std::string::npos) << text;
  EXPECT_NE(text.find("NarrowKernel"), std::string::npos) << text;
  EXPECT_GT(text.find("NarrowKernel"), text.find("CopyKernel"));

  // The error of somebody else's call on this thread, which has not been fetched.
  void* none = nullptr;
  ASSERT_EQ(cudaMalloc(&none, 1), cudaErrorMemoryAllocation);
  const auto launched = queue.value()->Run(copies);
  EXPECT_FALSE(launched) << launched->message;

  const auto memory = device.value()->AllocateOnDevice(1);
  ASSERT_FALSE(memory.ok());
  EXPECT_NE(memory.failure().message.find("out of memory"), std::string::npos)
      << memory.failure().message;
  // A library without the function.
  EXPECT_FALSE(device.value()->AllocatePinned(1).ok());
}

// Device 0 is current on a thread that has chosen none. A process that uses another device takes no
// memory of it.
TEST(CurrentDeviceTest, OnlyTheDeviceInUseHasAContext) {
  auto& contexts = *Find<std::set<int>* (*)()>("stand_in_contexts")();
  contexts.clear();
  std::thread([] {
    const auto device = OpenCudaDevice(1);
    ASSERT_TRUE(device.ok()) << device.failure().message;
    const auto queue = device.value()->MakeQueue();
    ASSERT_TRUE(queue.ok()) << queue.failure().message;
    EXPECT_FALSE(queue.value()->Wait());
    EXPECT_TRUE(device.value()->MakeEvent().ok());
    EXPECT_FALSE(queue.value()->UseOnThisThread());
    std::thread([&] { EXPECT_FALSE(queue.value()->UseOnThisThread()); }).join();
  }).join();
  EXPECT_EQ(contexts, std::set<int>{1});
}

// The driver's functions need a context, which the runtime makes only for calls of its own.
TEST(CurrentDeviceTest, AThreadThatHasMadeNoCallHasAContextForTheDriver) {
  const auto device = OpenCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.failure().message;
  std::thread([&] {
    const auto opened = device.value()->Open(0, 4096);
    EXPECT_TRUE(opened.ok()) << opened.failure().message;
  }).join();
  std::thread([&] {
    const auto made = device.value()->AllocateShared(1);
    EXPECT_TRUE(made.ok()) << made.failure().message;
  }).join();
}

// The last user may be an event loop, and to unmap may wait for the device.
TEST(SegmentTest, TheLastUserDoesNotUnmapIt) {
  auto& unmapped_by = *Find<std::thread::id* (*)()>("stand_in_unmapped_by")();
  {
    auto device = OpenCudaDevice(0);
    ASSERT_TRUE(device.ok()) << device.failure().message;
    unmapped_by = {};
    ASSERT_TRUE(device.value()->Open(0, 4096).ok());
  }
  EXPECT_NE(unmapped_by, std::thread::id());
  EXPECT_NE(unmapped_by, std::this_thread::get_id());
  {
    auto device = OpenCudaDevice(0);
    ASSERT_TRUE(device.ok()) << device.failure().message;
    unmapped_by = {};
    ASSERT_TRUE(device.value()->AllocateShared(1).ok());
  }
  EXPECT_NE(unmapped_by, std::thread::id());
  EXPECT_NE(unmapped_by, std::this_thread::get_id());
}

TEST(CurrentDeviceTest, AThreadGetsBackTheDeviceOnWhichItsProcessHasAContext) {
  auto& contexts = *Find<std::set<int>* (*)()>("stand_in_contexts")();
  contexts = {0};
  std::thread([] {
    EXPECT_TRUE(OpenCudaDevice(1).ok());
    int current = -1;
    cudaGetDevice(&current);
    EXPECT_EQ(current, 0);
  }).join();
  EXPECT_EQ(contexts, (std::set<int>{0, 1}));
}

TEST(CurrentDeviceTest, AProcessThatLeavesTheDevicesHasNoContext) {
  auto& contexts = *Find<std::set<int>* (*)()>("stand_in_contexts")();
  contexts.clear();
  std::thread([] {
    for (const int index : {0, 1}) EXPECT_TRUE(OpenCudaDevice(index).ok());
  }).join();
  EXPECT_EQ(contexts, (std::set<int>{0, 1}));
  std::thread(LeaveCudaDevices).join();
  EXPECT_EQ(contexts, std::set<int>{});
}

// The memory of the work belongs to others after a wait. So a wait lasts also if the runtime takes
// no callback.
TEST(WaitTest, Fault_A13_AWaitWithoutACallbackLastsUntilTheWorkHasEnded) {
  int& busy_looks = *Find<int* (*)()>("stand_in_busy_looks")();
  const auto device = OpenCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.failure().message;
  const auto queue = device.value()->MakeQueue();
  ASSERT_TRUE(queue.ok()) << queue.failure().message;
  busy_looks = 2;
  EXPECT_FALSE(queue.value()->Wait());
  EXPECT_EQ(busy_looks, 0);
  busy_looks = 2;
  EXPECT_TRUE(queue.value()->Mark());
  EXPECT_FALSE(queue.value()->AwaitMark());
  EXPECT_EQ(busy_looks, 0);
  EXPECT_FALSE(queue.value()->Wait());
  EXPECT_FALSE(queue.value()->Mark());
  EXPECT_FALSE(queue.value()->AwaitMark());
}

// What the callback owns is released in both cases, and by nobody twice.
TEST(NotifyTest, Fault_A13_ACallbackComesOnceOrIsRefusedAndNeverComes) {
  int& busy_looks = *Find<int* (*)()>("stand_in_busy_looks")();
  const auto device = OpenCudaDevice(1);
  ASSERT_TRUE(device.ok()) << device.failure().message;
  const auto queue = device.value()->MakeQueue();
  ASSERT_TRUE(queue.ok()) << queue.failure().message;
  const auto calls = std::make_shared<int>(0);
  const auto call = [calls] { ++*calls; };
  const auto owners = calls.use_count();
  EXPECT_FALSE(queue.value()->Notify(call));
  EXPECT_EQ(*calls, 1);
  EXPECT_EQ(calls.use_count(), owners);

  busy_looks = 1;
  const auto refused = queue.value()->Notify(call);
  busy_looks = 0;
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, FailureCode::kDevice);
  EXPECT_EQ(refused->message,
            "CUDA device 1 (stand-in): cudaLaunchHostFunc failed: out of memory "
            "(cudaErrorMemoryAllocation)");
  EXPECT_EQ(*calls, 1);
  EXPECT_EQ(calls.use_count(), owners);
  // The error does not stay for the next call.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_FALSE(queue.value()->Notify(call));
  EXPECT_EQ(*calls, 2);
}

TEST(DriverTest, TheDevicesAreDescribedWithoutAContext) {
  auto& contexts = *Find<std::set<int>* (*)()>("stand_in_contexts")();
  contexts.clear();
  EXPECT_EQ(DescribeCudaDevices().value(),
            "0 (stand-in, sm_90) and 1 (stand-in, sm_90), with a driver for CUDA 13.0");
  EXPECT_EQ(contexts, std::set<int>{});
}

TEST(DriverTest, Fault_A13_OneThatIsMissingOrTooOldIsAFailureThatSaysSo) {
  int& driver = *Find<int* (*)()>("stand_in_driver")();
  const int was = std::exchange(driver, 12020);
  EXPECT_EQ(OpenCudaDevice(0).failure().message,
            "CUDA: the driver is too old: it has CUDA 12.2, and this build needs CUDA 13.0 or "
            "later (cudaErrorInsufficientDriver); update the driver");
  driver = 0;
  EXPECT_EQ(OpenCudaDevice(0).failure().message,
            "CUDA: there is no driver (cudaErrorInsufficientDriver); install a driver and make the "
            "GPU visible to this process");
  driver = was;
  EXPECT_TRUE(OpenCudaDevice(0).ok());
}

TEST(RuntimeLibraryTest, OneThatIsMissingIsNamedWithWhatToInstall) {
  const RuntimeLibrary library = OpenRuntimeLibrary("libcudart.so.0");
  EXPECT_EQ(library.handle, nullptr);
  EXPECT_NE(library.error.find("libcudart.so.0 was not found ("), std::string::npos)
      << library.error;
  EXPECT_NE(library.error.find("nvidia-cuda-runtime"), std::string::npos) << library.error;
}

// As in an environment of Python with NVIDIA's package: beside the folder of this one.
TEST(RuntimeLibraryTest, ThatOfThePythonPackageIsFound) {
  const fs::path folder = fs::canonical("/proc/self/exe").parent_path() / "nvidia/cu13/lib";
  fs::create_directories(folder);
  fs::remove(folder / "libcudart.so.1");
  fs::copy_file(stand_in, folder / "libcudart.so.1");
  const RuntimeLibrary library = OpenRuntimeLibrary("libcudart.so.1");
  fs::remove_all(folder.parent_path().parent_path());
  EXPECT_NE(library.handle, nullptr) << library.error;
}

}  // namespace
}  // namespace basin::kernels::cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  basin::kernels::cuda::stand_in = argv[1];
  return RUN_ALL_TESTS();
}
