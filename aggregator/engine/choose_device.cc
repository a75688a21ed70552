// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/choose_device.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aggregator/text/reduce_device.h"
#include "kernels/plan.h"
#include "protocol/limits/limits.h"

namespace basin::aggregator {
namespace {

using accelerator::DevicePipeline;
using accelerator::DeviceThread;
using accelerator::HostPass;
using accelerator::ReduceDevice;
using accelerator::ReduceDevices;
using kernels::Failure;
using kernels::Result;

// A step of few workers: the sum of what the copies cost a device is the same for each worker.
constexpr size_t kContributions = 4;
constexpr size_t kElements = size_t{1} << 20;  // 4 MiB of f32 each.
constexpr size_t kChunkElements = kChunkBytes / sizeof(float);
constexpr size_t kChunksPerFrame = 4;
constexpr int kRuns = 4;  // The first one warms up.

// The measured reduction: an average, cut into chunks as the engine cuts it.
class Sample {
 public:
  Sample() : values_(kContributions, std::vector<float>(kElements, 1.5F)), result_(kElements) {
    kernels::ReductionSpec spec;
    spec.op = ReduceOp::kAverage;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.divisor = kContributions;
    spec.contributions.resize(kContributions);
    for (auto& contribution : spec.contributions) contribution.wire_dtype = DType::kF32;
    plan_.emplace(kernels::ReductionPlan::Make(std::move(spec)).value());
    constexpr size_t kChunks = kElements / kChunkElements;
    slices_.resize(kChunks * kContributions);
    inputs_.resize(kChunks * kContributions);
    leaves_.resize(kernels::NormLeaves(kElements));
    for (size_t chunk = 0; chunk < kChunks; ++chunk) {
      const size_t first = chunk * kChunkElements;
      for (size_t i = 0; i < kContributions; ++i) {
        const size_t at = chunk * kContributions + i;
        slices_[at] = {values_[i].data() + first, kChunkElements * sizeof(float)};
        inputs_[at] = {&slices_[at], 1};
      }
      passes_.push_back(
          {&*plan_,
           &inputs_[chunk * kContributions],
           {first, kChunkElements},
           {result_.data() + first, leaves_.data() + first / kernels::kNormLeafElements},
           &facts_});
    }
  }

  std::optional<Failure> RunOn(const kernels::Reducer& cpu) {
    for (const HostPass& pass : passes_) {
      auto failure = cpu.Reduce(*pass.plan, pass.inputs, pass.span, pass.output, pass.facts);
      if (failure.has_value()) return failure;
    }
    return std::nullopt;
  }

  std::optional<Failure> RunOn(DevicePipeline& pipeline) {
    std::optional<Failure> failed;
    DevicePipeline::Ticket last = 0;
    for (size_t begin = 0; begin < passes_.size(); begin += kChunksPerFrame) {
      const auto from = passes_.begin() + static_cast<ptrdiff_t>(begin);
      last = pipeline.Start({from, from + kChunksPerFrame},
                            [&failed](const std::optional<Failure>& failure) {
                              if (failure.has_value()) failed = failure;
                            });
    }
    pipeline.Finish(last);
    return failed;
  }

  bool IsRight() const {
    return std::all_of(result_.begin(), result_.end(), [](float x) { return x == 1.5F; });
  }

 private:
  const std::vector<std::vector<float>> values_;
  std::vector<float> result_;
  std::vector<double> leaves_;
  std::optional<kernels::ReductionPlan> plan_;
  std::vector<kernels::Slice> slices_;
  std::vector<kernels::Input> inputs_;
  std::vector<HostPass> passes_;
  kernels::Facts facts_;
};

template <typename Function>
Result<double> BestTime(Function run) {
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto began = std::chrono::steady_clock::now();
    if (std::optional<Failure> failure = run()) return *std::move(failure);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i == 1 || (i > 1 && seconds < best)) best = seconds;
  }
  return best;
}

Result<std::vector<ReduceDevice>> OpenDevices(const std::optional<int>& index,
                                              const DeviceSource& source) {
  int begin = 0;
  int end = 0;
  if (index.has_value()) {
    begin = *index;
    end = begin + 1;
  } else {
    const Result<int> count = source.count();
    if (!count.ok()) return count.failure();
    if (count.value() == 0) {
      return Failure{kernels::FailureCode::kDevice,
                     "there is no CUDA device; make a GPU visible to this process"};
    }
    end = count.value();
  }
  std::vector<ReduceDevice> devices;
  for (int i = begin; i < end; ++i) {
    auto device = source.open(i);
    if (!device.ok()) return device.failure();
    devices.push_back({absl::StrCat("cuda:", i), std::move(device).value()});
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<ReduceDevices>> MakeDevices(const std::optional<int>& index,
                                                           uint32_t threads, uint64_t budget,
                                                           const DeviceSource& source) {
  auto devices = OpenDevices(index, source);
  if (!devices.ok()) return absl::NotFoundError(devices.failure().message);
  return ReduceDevices::Make(std::move(devices).value(), threads, budget);
}

std::string DescribeUse(const ReduceDevices& devices) {
  return absl::StrCat(devices.Describe(), " reduces, with ", devices.pinned_bytes() >> 20,
                      " MiB of memory.budget as pinned memory");
}

std::string LimitOf(const ReduceDevices& devices) {
  if (devices.CanOpen()) return "";
  return " None of them reads gradients in the memory of trainers' GPUs, which one GPU (cuda:N) "
         "does.";
}

ReduceChoice TakeCpu(const std::string& why) {
  return {nullptr, absl::StrCat("reduce.device is auto: the CPU reduces, because ", why, ".")};
}

}  // namespace

Result<MeasuredReduction> MeasureReduction(const kernels::Reducer& cpu, DeviceThread& thread) {
  Sample sample;
  MeasuredReduction measured;
  const auto on_cpu = BestTime([&] { return sample.RunOn(cpu); });
  if (!on_cpu.ok()) return on_cpu.failure();
  measured.cpu = on_cpu.value();
  Sample on_device_sample;
  Result<double> on_device = 0.0;
  thread.Time([&](DevicePipeline& pipeline) {
    on_device = BestTime([&] { return on_device_sample.RunOn(pipeline); });
  });
  (void)thread.TakeSeconds();
  if (!on_device.ok()) return on_device.failure();
  if (!on_device_sample.IsRight()) {
    return Failure{kernels::FailureCode::kDevice, thread.device() + " gave a wrong result"};
  }
  measured.device = on_device.value();
  return measured;
}

absl::StatusOr<ReduceChoice> ChooseReduceDevices(const std::string& option, uint32_t threads,
                                                 uint64_t budget, const DeviceSource& source,
                                                 const kernels::Reducer& cpu) {
  const absl::StatusOr<ReduceDeviceOption> wish = ParseReduceDevice(option);
  if (!wish.ok()) return wish.status();
  if (wish->kind == ReduceDeviceOption::Kind::kCpu) return ReduceChoice{};
  auto devices = MakeDevices(wish->index, threads, budget, source);
  if (wish->kind == ReduceDeviceOption::Kind::kCuda) {
    if (!devices.ok()) {
      const char* const advice = absl::IsNotFound(devices.status())
                                     ? "; correct this, or set reduce.device to cpu or auto"
                                     : "";
      return absl::FailedPreconditionError(
          absl::StrCat("reduce.device is ", option, ": ", devices.status().message(), advice));
    }
    std::string why = absl::StrCat("reduce.device is ", option, ": ", DescribeUse(**devices), ".",
                                   LimitOf(**devices));
    return ReduceChoice{*std::move(devices), std::move(why)};
  }
  if (!devices.ok()) {
    source.leave();
    return TakeCpu(std::string(devices.status().message()));
  }
  const auto measured = source.measure(cpu, (*devices)->thread(0));
  // Nothing is asked of a device that has failed: it may hang, and so would the call.
  if (!measured.ok()) return TakeCpu(measured.failure().message);
  const double speedup = measured.value().cpu / measured.value().device;
  const std::string numbers = absl::StrFormat(
      "%d contributions of %d MiB take a thread %.2f ms on the CPU and %.2f ms with %s, copies "
      "included",
      kContributions, kElements * sizeof(float) >> 20, 1e3 * measured.value().cpu,
      1e3 * measured.value().device, (*devices)->Describe());
  if (speedup <= 1) {
    devices->reset();
    source.leave();
    return TakeCpu(numbers);
  }
  std::string why = absl::StrCat("reduce.device is auto: ", DescribeUse(**devices), ", because ",
                                 numbers, ".", LimitOf(**devices));
  return ReduceChoice{*std::move(devices), std::move(why)};
}

}  // namespace basin::aggregator
