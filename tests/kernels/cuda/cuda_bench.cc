// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The speed of the reduction on a GPU, as a share of the copy rate of the same GPU in the same run:
// bytes read and written per second of ReduceTasks over arrays on the device, over those of a copy
// from device to device. Each figure is the median of kRuns runs, timed with events, after a
// warm-up.
//
// Then that of a pipeline, from host memory to host memory, in frames of 1 MiB as an aggregator has
// them: bytes of contributions per second, as a share of a copy from pinned memory to the device
// and of a copy within the host by one thread, which is what the thread of a pipeline does.
//
// usage: cuda_bench [--device=<index>]
// Exit status: 0, 1 on an error, 77 skipped: no device.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/device_pipeline.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"

namespace basin::kernels::cuda {
namespace {

constexpr int kRuns = 21;
constexpr int kMostContributions = 16;
constexpr size_t kMostBytes = size_t{256}
                              << 20;  // The size of one contribution; far beyond any cache.

// A benchmark ends after an error.
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

// The largest size that fits twice, filled with bits that are a moderate number in every float
// dtype.
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

// ---- From host memory to host memory

constexpr size_t kFrameBytes = size_t{1} << 20;
constexpr size_t kFrames = 256;
constexpr size_t kHostBytes = kFrames * kFrameBytes;  // One contribution's.

template <typename Function>
double MedianSeconds(Function run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const auto began = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// GB/s from pinned memory to the device.
double CopyRate() {
  void* pinned = nullptr;
  void* on_device = nullptr;
  Check(cudaMallocHost(&pinned, kHostBytes), "cudaMallocHost");
  Check(cudaMalloc(&on_device, kHostBytes), "cudaMalloc");
  const double seconds = MedianSeconds([&] {
    Check(cudaMemcpy(on_device, pinned, kHostBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  });
  Check(cudaFree(on_device), "cudaFree");
  Check(cudaFreeHost(pinned), "cudaFreeHost");
  return 1e-9 * kHostBytes / seconds;
}

ReductionPlan AverageOf(size_t contributors) {
  ReductionSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.tensor_dtype = spec.result_dtype = DType::kF32;
  spec.divisor = contributors;
  spec.contributions.resize(contributors);
  for (Contribution& contribution : spec.contributions) contribution.wire_dtype = DType::kF32;
  return ReductionPlan::Make(std::move(spec)).value();
}

// Seconds for all frames of `contributors` arrays, with `lanes` lanes.
double PipelineSeconds(Device* device, const std::vector<std::vector<float>>& arrays,
                       size_t contributors, size_t lanes, std::vector<float>* result) {
  PipelineOptions options;
  options.lanes = lanes;
  options.lane_bytes = size_t{20} << 20;
  const auto made = DevicePipeline::Make(device, options);
  if (!made.ok()) {
    std::printf("failed: %s\n", made.failure().message.c_str());
    std::exit(1);
  }
  DevicePipeline& pipeline = *made.value();
  const ReductionPlan plan = AverageOf(contributors);
  constexpr size_t kElements = kFrameBytes / sizeof(float);
  Facts facts;
  std::vector<double> leaves(NormLeaves(kFrames * kElements));
  return MedianSeconds([&] {
    DevicePipeline::Ticket last = 0;
    for (size_t first = 0; first < kFrames * kElements; first += kElements) {
      std::vector<Slice> slices;
      std::vector<Input> inputs;
      for (size_t i = 0; i < contributors; ++i) {
        slices.push_back({arrays[i].data() + first, kFrameBytes});
      }
      for (const Slice& slice : slices) inputs.push_back({&slice, 1});
      const Output output = {result->data() + first, leaves.data() + first / kNormLeafElements};
      last = pipeline.Start({{&plan, inputs.data(), {first, kElements}, output, &facts}},
                            [](const std::optional<Failure>& failure) {
                              if (!failure) return;
                              std::printf("failed: %s\n", failure->message.c_str());
                              std::exit(1);
                            });
    }
    pipeline.Finish(last);
  });
}

int BenchPipeline(Device* device) {
  const std::vector<std::vector<float>> arrays(
      kMostContributions, std::vector<float>(kHostBytes / sizeof(float), 1.25F));
  std::vector<float> result(kHostBytes / sizeof(float));
  const double to_device = CopyRate();
  const double host = 1e-9 * kHostBytes / MedianSeconds([&] {
                        std::memcpy(result.data(), arrays[0].data(), kHostBytes);
                      });
  std::printf("copy from pinned memory to the device: %.1f GB/s\n", to_device);
  std::printf("copy within the host, one thread: %.1f GB/s\n", host);
  std::printf("%3s %6s %9s %14s %13s\n", "N", "lanes", "GB/s in", "of pinned copy", "of host copy");
  for (size_t contributors : {2, 4, 8, 16}) {
    for (size_t lanes : {1, 2}) {
      const double seconds = PipelineSeconds(device, arrays, contributors, lanes, &result);
      const double rate = 1e-9 * kHostBytes * static_cast<double>(contributors) / seconds;
      std::printf("%3zu %6zu %9.1f %13.1f%% %12.1f%%\n", contributors, lanes, rate,
                  100 * rate / to_device, 100 * rate / host);
    }
  }
  return result[1] == 1.25F ? 0 : 1;
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
  const Result<std::unique_ptr<Device>> opened = OpenCudaDevice(device);
  if (!opened.ok()) {
    std::printf("failed: %s\n", opened.failure().message.c_str());
    return 1;
  }
  return BenchPipeline(opened.value().get());
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
