// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Basin's code for CUDA devices without libcudart: this program is linked with none, and loads a
// stand-in for it. It also links only if loaded_runtime.cc has every function that the code calls.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_group_queue.h"
#include "kernels/cuda/cuda_trainer_device.h"
#include "kernels/cuda/runtime_library.h"

namespace basin::kernels::cuda {
namespace {

namespace fs = std::filesystem;

std::string stand_in;  // The path of the library.

// A library of the process comes before that of the system. It gets the kernels that were
// registered before it was loaded. This is the first test, because the library is loaded once.
TEST(LoadedRuntimeTest, CallsAndKernelsReachTheLibraryOfTheProcess) {
  void* const library = dlopen(stand_in.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(CountCudaDevices().value(), 1);
  auto device = OpenTrainerDevice(0);
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
  const auto launched = reinterpret_cast<const char* (*)()>(dlsym(library, "stand_in_launched"))();
  const std::string text = launched;
  EXPECT_NE(text.find("CopyKernel"), std::string::npos) << text;
  EXPECT_NE(text.find("NarrowKernel"), std::string::npos) << text;
  EXPECT_GT(text.find("NarrowKernel"), text.find("CopyKernel"));

  const auto memory = device.value()->AllocateOnDevice(1);
  ASSERT_FALSE(memory.ok());
  EXPECT_NE(memory.failure().message.find("out of memory"), std::string::npos)
      << memory.failure().message;
  // A library without the function.
  EXPECT_FALSE(device.value()->AllocatePinned(1).ok());
  EXPECT_TRUE(OpenGroupQueue(0).ok());
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
