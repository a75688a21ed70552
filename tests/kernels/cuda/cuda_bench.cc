// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The speed of the reduction on a GPU, as a share of the copy rate of the same GPU in the same run:
// bytes read and written per second of ReduceTasks over arrays on the device, over those of a copy
// from device to device. Each figure is the median of kRuns runs, timed with events, after a
// warm-up.
//
// usage: cuda_bench [--device=<index>]
// Exit status: 0, 1 on an error, 77 skipped: no device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"

namespace basin::kernels::cuda {
namespace {

constexpr int kRuns = 21;
constexpr int kMostContributions = 16;
constexpr size_t kMostBytes = size_t{256}
                              << 20;  // The size of one contribution; far beyond any cache.

// A benchmark has no use for going on after an error.
void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("failed: %s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}

// Milliseconds of a run on the default stream: the median.
double MedianTime(const std::function<void()>& run) {
  cudaEvent_t begin;
  cudaEvent_t end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  run();
  std::vector<float> times;
  for (int i = 0; i < kRuns; ++i) {
    Check(cudaEventRecord(begin), "cudaEventRecord");
    run();
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float time = 0;
    Check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
    times.push_back(time);
  }
  Check(cudaEventDestroy(begin), "cudaEventDestroy");
  Check(cudaEventDestroy(end), "cudaEventDestroy");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Arrays {
  size_t bytes = 0;  // The size of each contribution and of the result.
  void* contributions[kMostContributions] = {};
  void* result = nullptr;
  double* leaves = nullptr;
  DeviceFacts* facts = nullptr;
};

// As large as fits twice over, filled with bits that are a moderate number in every float dtype.
Arrays Allocate() {
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  Arrays arrays;
  const size_t unit = kNormLeafElements * 8;
  arrays.bytes = std::min(kMostBytes, free_bytes / (2 * (kMostContributions + 1))) / unit * unit;
  std::vector<uint16_t> values(arrays.bytes / 2);
  std::mt19937 random(1);
  for (void*& contribution : arrays.contributions) {
    for (uint16_t& value : values) value = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);
    Check(cudaMalloc(&contribution, arrays.bytes), "cudaMalloc");
    Check(cudaMemcpy(contribution, values.data(), arrays.bytes, cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  Check(cudaMalloc(&arrays.result, arrays.bytes), "cudaMalloc");
  void* memory = nullptr;
  Check(cudaMalloc(&memory, NormLeaves(arrays.bytes / 2) * sizeof(double)), "cudaMalloc");
  arrays.leaves = static_cast<double*>(memory);
  Check(cudaMalloc(&memory, sizeof(DeviceFacts)), "cudaMalloc");
  arrays.facts = static_cast<DeviceFacts*>(memory);
  const DeviceFacts nothing = {kNoPlace, 0, 0};
  Check(cudaMemcpy(memory, &nothing, sizeof(nothing), cudaMemcpyHostToDevice), "cudaMemcpy");
  return arrays;
}

ReduceTask AverageTask(const Arrays& arrays, DType dtype, int contributors, bool with_norm) {
  ReduceTask task = {};
  task.term_count = static_cast<uint32_t>(contributors);
  for (int i = 0; i < contributors; ++i) {
    task.terms[i] = TaskTerm{arrays.contributions[i], 1.0, 1.0, static_cast<uint32_t>(i), dtype};
  }
  task.accumulator_dtype = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  task.combine = Combine::kAdd;
  task.finish = Finish::kDivide;
  task.finish_constant = contributors;
  task.result_dtype = dtype;
  task.aligned = true;
  task.output = arrays.result;
  task.norm_leaves = with_norm ? arrays.leaves : nullptr;
  task.facts = arrays.facts;
  task.count = arrays.bytes / ElementSize(dtype);
  return task;
}

int Run(int device) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    std::printf("skipped: %s\n", cudaGetErrorString(counted));
    return 77;
  }
  Check(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const Arrays arrays = Allocate();
  std::printf("%s, %zu MiB per contribution, median of %d\n", properties.name, arrays.bytes >> 20,
              kRuns);
  const double copy_time = MedianTime([&arrays] {
    Check(cudaMemcpyAsync(arrays.result, arrays.contributions[0], arrays.bytes,
                          cudaMemcpyDeviceToDevice),
          "cudaMemcpyAsync");
  });
  const double copied = 2e-6 * static_cast<double>(arrays.bytes) / copy_time;
  std::printf("copy from device to device: %.0f GB/s read and written\n", copied);
  std::printf("%-6s %3s %6s %10s %9s %8s\n", "dtype", "N", "norm", "time/ms", "GB/s", "of copy");
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (int contributors : {2, 4, 8, 16}) {
      for (bool with_norm : {false, true}) {
        const ReduceTask task = AverageTask(arrays, dtype, contributors, with_norm);
        const double time = MedianTime(
            [&task] { Check(static_cast<cudaError_t>(Launch(task, nullptr)), "launch"); });
        const double moved = 1e-6 * static_cast<double>(arrays.bytes) * (contributors + 1) / time;
        std::printf("%-6s %3d %6s %10.3f %9.0f %7.1f%%\n", DTypeName(dtype), contributors,
                    with_norm ? "yes" : "no", time, moved, 100 * moved / copied);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace basin::kernels::cuda

int main(int argc, char** argv) {
  int device = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--device=", 0) != 0) {
      std::fprintf(stderr, "usage: cuda_bench [--device=<index>]\n");
      return 2;
    }
    device = std::atoi(argument.c_str() + 9);
  }
  return basin::kernels::cuda::Run(device);
}
