// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The speed of the reduction on a GPU, as a share of the copy rate of the same GPU in the same run:
// bytes read and written per second of ReduceTasks over arrays on the device, over those of a copy
// from device to device. Each figure is the median of several runs, timed with events, after a
// warm-up. Those of f32 with the norm, which an aggregator always computes, are judged.
//
// Then that of a pipeline, from host memory to host memory, in frames of 1 MiB as an aggregator has
// them: bytes of contributions per second, as a share of a copy from pinned memory to the device
// and of a copy within the host by one thread, which is what the thread of a pipeline does. It is
// not judged.
//
// With --emulated a few bytes are reduced on the emulated device, to see that the program runs.
//
// usage: cuda_bench [--device=INDEX] [--emulated] [--least=SHARE]
//   --least  the share of the copy rate that is enough (default: 0.9; with 0 nothing is judged)
// Exit status: 0, 1 on an error or a smaller share, 77 skipped: there is no device.

#include <cuda_runtime_api.h>

#include <algorithm>
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

#include "accelerator/device/cuda_device.h"
#include "accelerator/transfer/device_pipeline.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"
#include "tests/accelerator/device/driver_is_loaded.h"
#include "tests/kernels/cuda/bench_verdicts.h"
#ifdef BASIN_EMULATED_DEVICE
#include "tests/accelerator/device/emulated_device.h"
#endif

namespace basin::kernels::cuda {
namespace {

using accelerator::Device;
using accelerator::DevicePipeline;
using accelerator::DriverIsLoaded;
using accelerator::Memory;
using accelerator::OpenCudaDevice;
using accelerator::PipelineOptions;

constexpr int kMostContributions = 16;
constexpr double kEnough = 0.9;

struct Sizes {
  size_t contribution_bytes;
  int runs;  // For each reduction.
  size_t frame_bytes;
  size_t frames;
  int pipeline_runs;

  size_t host_bytes() const { return frames * frame_bytes; }  // For each contribution.
};
// Far beyond any cache.
constexpr Sizes kLarge = {size_t{256} << 20, 21, size_t{1} << 20, 64, 5};
constexpr Sizes kTiny = {kNormLeafElements * 8, 1, kNormLeafElements * 4, 2, 1};

// What the benchmark runs on. Memory is never freed.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string name() = 0;
  virtual size_t free_bytes() = 0;
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Write(void* there, const void* host, size_t bytes) = 0;
  // Work within the device.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Reduce(const ReduceTask& task) = 0;
  // Milliseconds of the work of a run, the median.
  virtual double MedianTime(int runs, const std::function<void()>& run) = 0;
  virtual Result<std::unique_ptr<Device>> Open() = 0;
};

// A benchmark ends after an error.
void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("failed: %s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}

void Check(const std::optional<Failure>& failure) {
  if (!failure) return;
  std::printf("failed: %s\n", failure->message.c_str());
  std::exit(1);
}

template <typename T>
T Checked(Result<T> result) {
  if (!result.ok()) Check(result.failure());
  return std::move(result).value();
}

class CudaMachine final : public Machine {
 public:
  explicit CudaMachine(int device) : device_(device) {
    Check(cudaSetDevice(device), "cudaSetDevice");
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
  }

  std::string name() override {
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
    return properties.name;
  }
  size_t free_bytes() override {
    size_t left = 0;
    size_t all = 0;
    Check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    return left;
  }
  void* Allocate(size_t bytes) override {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  void Write(void* there, const void* host, size_t bytes) override {
    Check(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
  }
  void Reduce(const ReduceTask& task) override {
    Check(static_cast<cudaError_t>(Launch(task, nullptr)), "launch");
  }
  double MedianTime(int runs, const std::function<void()>& run) override {
    run();
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
      Check(cudaEventRecord(begin_), "cudaEventRecord");
      run();
      Check(cudaEventRecord(end_), "cudaEventRecord");
      Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float time = 0;
      Check(cudaEventElapsedTime(&time, begin_, end_), "cudaEventElapsedTime");
      times.push_back(time);
    }
    return Median(std::move(times));
  }
  Result<std::unique_ptr<Device>> Open() override { return OpenCudaDevice(device_); }

 private:
  const int device_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

#ifdef BASIN_EMULATED_DEVICE
class EmulatedMachine final : public Machine {
 public:
  std::string name() override { return "emulated device, whose figures mean nothing"; }
  size_t free_bytes() override { return size_t{1} << 30; }
  void* Allocate(size_t bytes) override {
    memory_.push_back(Checked(device_->AllocateOnDevice(bytes)));
    return memory_.back().get();
  }
  void Write(void* there, const void* host, size_t bytes) override {
    std::memcpy(there, host, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void Reduce(const ReduceTask& task) override { accelerator::RunOnHost(task); }
  double MedianTime(int runs, const std::function<void()>& run) override {
    return 1e3 * MedianSeconds(runs, run);
  }
  Result<std::unique_ptr<Device>> Open() override {
    return accelerator::MakeEmulatedDevice(faults_);
  }

 private:
  const std::shared_ptr<accelerator::FaultPlan> faults_ =
      std::make_shared<accelerator::FaultPlan>();
  const std::unique_ptr<Device> device_ = accelerator::MakeEmulatedDevice(faults_);
  std::vector<Memory> memory_;
};
#endif

// ---- On the device

struct Arrays {
  size_t bytes = 0;  // The size of each contribution and of the result.
  void* contributions[kMostContributions] = {};
  void* result = nullptr;
  double* leaves = nullptr;
  DeviceFacts* facts = nullptr;
};

// The largest size that fits twice, filled with bits that are a moderate number in every float
// dtype.
Arrays Allocate(Machine& machine, const Sizes& sizes) {
  Arrays arrays;
  const size_t unit = kNormLeafElements * 8;
  const size_t room = machine.free_bytes() / (2 * (kMostContributions + 1));
  arrays.bytes = std::min(sizes.contribution_bytes, room) / unit * unit;
  std::vector<uint16_t> values(arrays.bytes / 2);
  std::mt19937 random(1);
  for (uint16_t& value : values) value = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);
  for (void*& contribution : arrays.contributions) {
    contribution = machine.Allocate(arrays.bytes);
    machine.Write(contribution, values.data(), arrays.bytes);
  }
  arrays.result = machine.Allocate(arrays.bytes);
  arrays.leaves =
      static_cast<double*>(machine.Allocate(NormLeaves(arrays.bytes / 2) * sizeof(double)));
  arrays.facts = static_cast<DeviceFacts*>(machine.Allocate(sizeof(DeviceFacts)));
  const DeviceFacts nothing = {kNoElement, 0, 0};
  machine.Write(arrays.facts, &nothing, sizeof(nothing));
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

void BenchReduction(Machine& machine, const Sizes& sizes, Verdicts& verdicts) {
  const Arrays arrays = Allocate(machine, sizes);
  std::printf("%s, %zu KiB per contribution, median of %d\n", machine.name().c_str(),
              arrays.bytes >> 10, sizes.runs);
  const double copy_time = machine.MedianTime(
      sizes.runs, [&] { machine.Copy(arrays.result, arrays.contributions[0], arrays.bytes); });
  const double copied = 2e-6 * static_cast<double>(arrays.bytes) / copy_time;
  std::printf("copy from device to device: %.0f GB/s read and written\n", copied);
  std::printf("%-6s %3s %6s %10s %9s %8s\n", "dtype", "N", "norm", "time/ms", "GB/s", "of copy");
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (int contributors : {2, 4, 8, 16}) {
      for (bool with_norm : {false, true}) {
        const ReduceTask task = AverageTask(arrays, dtype, contributors, with_norm);
        const double time = machine.MedianTime(sizes.runs, [&] { machine.Reduce(task); });
        const double moved = 1e-6 * static_cast<double>(arrays.bytes) * (contributors + 1) / time;
        std::printf("%-6s %3d %6s %10.3f %9.0f %7.1f%%\n", DTypeName(dtype), contributors,
                    with_norm ? "yes" : "no", time, moved, 100 * moved / copied);
        if (dtype == DType::kF32 && with_norm) {
          verdicts.Judge("reduction of f32 with N=" + std::to_string(contributors) +
                             ", as a share of a copy within the device",
                         moved / copied);
        }
      }
    }
  }
}

// ---- From host memory to host memory

// GB/s from pinned memory to the device.
double CopyRate(Device& device, const Sizes& sizes) {
  const size_t bytes = sizes.host_bytes();
  const Memory pinned = Checked(device.AllocatePinned(bytes));
  const Memory on_device = Checked(device.AllocateOnDevice(bytes));
  const auto queue = Checked(device.MakeQueue());
  std::memset(pinned.get(), 1, bytes);
  const double seconds = MedianSeconds(sizes.pipeline_runs, [&] {
    Check(queue->CopyToDevice(on_device.get(), pinned.get(), bytes));
    Check(queue->Wait());
  });
  return 1e-9 * static_cast<double>(bytes) / seconds;
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

// Seconds for all frames of `contributors` arrays, with `slots` slots.
double PipelineSeconds(Device& device, const Sizes& sizes,
                       const std::vector<std::vector<float>>& arrays, size_t contributors,
                       size_t slots, std::vector<float>* result) {
  PipelineOptions options;
  options.slots = slots;
  options.slot_bytes = size_t{20} << 20;
  const auto made = Checked(DevicePipeline::Make(&device, options));
  DevicePipeline& pipeline = *made;
  const ReductionPlan plan = AverageOf(contributors);
  const size_t elements = sizes.frame_bytes / sizeof(float);
  Facts facts;
  std::vector<double> leaves(NormLeaves(sizes.frames * elements));
  return MedianSeconds(sizes.pipeline_runs, [&] {
    DevicePipeline::Ticket last = 0;
    for (size_t first = 0; first < sizes.frames * elements; first += elements) {
      std::vector<Slice> slices;
      std::vector<Input> inputs;
      for (size_t i = 0; i < contributors; ++i) {
        slices.push_back({arrays[i].data() + first, sizes.frame_bytes});
      }
      for (const Slice& slice : slices) inputs.push_back({&slice, 1});
      const Output output = {result->data() + first, leaves.data() + first / kNormLeafElements};
      last = pipeline.Start({{&plan, inputs.data(), {first, elements}, output, &facts}},
                            [](const std::optional<Failure>& failure) { Check(failure); });
    }
    pipeline.Finish(last);
  });
}

int BenchPipeline(Device& device, const Sizes& sizes) {
  const size_t bytes = sizes.host_bytes();
  const std::vector<std::vector<float>> arrays(kMostContributions,
                                               std::vector<float>(bytes / sizeof(float), 1.25F));
  std::vector<float> result(bytes / sizeof(float));
  const double to_device = CopyRate(device, sizes);
  const double host = 1e-9 * static_cast<double>(bytes) / MedianSeconds(sizes.pipeline_runs, [&] {
                        std::memcpy(result.data(), arrays[0].data(), bytes);
                      });
  std::printf("copy from pinned memory to the device: %.1f GB/s\n", to_device);
  std::printf("copy within the host, one thread: %.1f GB/s\n", host);
  std::printf("%3s %6s %9s %14s %13s\n", "N", "lanes", "GB/s in", "of pinned copy", "of host copy");
  for (size_t contributors : {2, 4, 8, 16}) {
    for (size_t slots : {1, 2}) {
      std::fill(result.begin(), result.end(), 0.0F);
      const double seconds = PipelineSeconds(device, sizes, arrays, contributors, slots, &result);
      if (std::count(result.begin(), result.end(), 1.25F) !=
          static_cast<ptrdiff_t>(result.size())) {
        std::printf("failed: the average of %zu contributions is wrong\n", contributors);
        return 1;
      }
      const double rate = 1e-9 * static_cast<double>(bytes * contributors) / seconds;
      std::printf("%3zu %6zu %9.1f %13.1f%% %12.1f%%\n", contributors, slots, rate,
                  100 * rate / to_device, 100 * rate / host);
    }
  }
  return 0;
}

int Bench(Machine& machine, const Sizes& sizes, double least) {
  Verdicts verdicts(least);
  BenchReduction(machine, sizes, verdicts);
  const std::unique_ptr<Device> device = Checked(machine.Open());
  const int status = BenchPipeline(*device, sizes);
  return std::max(status, verdicts.Report());
}

int Run(const BenchOptions& options) {
  if (options.emulated) {
#ifdef BASIN_EMULATED_DEVICE
    EmulatedMachine machine;
    return Bench(machine, kTiny, options.least);
#else
    std::printf("failed: this program was built without the emulated device\n");
    return 1;
#endif
  }
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    const bool fails = DriverIsLoaded();
    std::printf("%s: %s\n", fails ? "failed" : "skipped", cudaGetErrorString(counted));
    return fails ? 1 : 77;
  }
  CudaMachine machine(options.device);
  return Bench(machine, kLarge, options.least);
}

}  // namespace
}  // namespace basin::kernels::cuda

int main(int argc, char** argv) {
  using basin::kernels::cuda::BenchOptions;
  setvbuf(stdout, nullptr, _IOLBF, 0);  // What is known when it is ended shall be seen.
  return basin::kernels::cuda::Run(BenchOptions::Parse(argc, argv, basin::kernels::cuda::kEnough));
}
