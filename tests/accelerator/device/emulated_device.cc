// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/accelerator/device/emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/reduce_body.h"
#include "kernels/float_environment.h"
#include "runtime/shared_memory/segment.h"
#include "tests/accelerator/device/emulated_calls.h"

namespace basin::kernels::cuda {
namespace {

// ---- The launch ---------------------------------------------------------------------------------

void Publish(const ThreadFacts& seen, DeviceFacts* facts) {
  facts->first_non_finite = std::min(facts->first_non_finite, seen.first_non_finite);
  facts->overflows += seen.overflows;
  facts->integer_wraps += seen.integer_wraps;
}

double SumOfLanes(double (&lanes)[kNormLanes]) {
  for (unsigned half = kNormLanes / 2; half > 0; half /= 2) {
    for (unsigned lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  }
  return Canonical(lanes[0]);
}

// One block of reduce.cu, all threads of a tile before the next tile.
template <typename Source>
void RunBlock(const ReduceTask& task, uint64_t block) {
  alignas(16) Rounded<Source> shared[kTile<Source>];
  const BlockShare share = ShareOf<Source>(task, block);
  std::vector<ThreadFacts> facts(kProducers);
  double lanes[kNormLanes] = {};
  for (uint64_t tile = 0; share.begin + tile * kTile<Source> < share.end; ++tile) {
    std::memset(shared, 0xff,
                sizeof(shared));  // NaN, which shows a read of memory that was not written.
    for (unsigned thread = 0; thread < kProducers; ++thread) {
      Produce<Source>(task, share, tile, thread, shared, &facts[thread]);
    }
    if (task.norm_leaves == nullptr) continue;
    for (unsigned lane = 0; lane < kNormLanes; ++lane) {
      lanes[lane] = AddSquares<Source>(share, tile, lane, shared, lanes[lane]);
    }
  }
  for (const ThreadFacts& seen : facts) Publish(seen, task.facts);
  if (task.norm_leaves != nullptr) task.norm_leaves[block] = SumOfLanes(lanes);
}

void RunNow(const ReduceTask& task) {
  const ScopedFloatEnvironment environment;
  VisitSource(task, [&task](auto source) {
    using Source = decltype(source);
    const uint64_t blocks = BlocksOf<Source>(task);
    for (uint64_t block = 0; block < blocks; ++block) RunBlock<Source>(task, block);
  });
}

}  // namespace
}  // namespace basin::kernels::cuda

namespace basin::accelerator {
namespace {

using kernels::cuda::kAlignment;
using kernels::cuda::RunNow;
using kernels::cuda::SourceOf;
using kernels::cuda::ThreadsOf;

// ---- The device ---------------------------------------------------------------------------------

class EmulatedQueue final : public Queue {
 public:
  explicit EmulatedQueue(Calls calls) : calls_(std::move(calls)) {}

  ~EmulatedQueue() override {
    const bool hung = calls_.faults().hung;
    if (!work_.empty() && !hung) std::abort();  // Broke the REQUIRES of the destructor.
  }

  std::optional<Failure> CopyToDevice(void* device, const void* pinned, size_t size) override {
    return Add("copy to the device", [=] { std::memcpy(device, pinned, size); });
  }

  std::optional<Failure> CopyToHost(void* pinned, const void* device, size_t size) override {
    return Add("copy to the host", [=] { std::memcpy(pinned, device, size); });
  }

  std::optional<Failure> Run(const ReduceBatch& batch) override {
    ++calls_.faults().launches;
    for (uint32_t i = 0; i < batch.count; ++i) {
      const bool alike = SourceOf(batch.tasks[i]) == SourceOf(batch.tasks[0]) &&
                         ThreadsOf(batch.tasks[i]) == ThreadsOf(batch.tasks[0]);
      if (!alike) std::abort();  // Broke the REQUIRES of a batch.
    }
    return Add("batch of reductions", [tasks = batch.on_device, count = batch.count] {
      for (uint32_t i = 0; i < count; ++i) RunNow(tasks[i]);
    });
  }

  std::optional<Failure> Wait() override {
    if (calls_.faults().hangs && !work_.empty()) calls_.faults().hung = true;
    auto failure = calls_.Make("wait");
    for (const auto& work : work_) {
      if (!failure) work();
    }
    if (calls_.faults().hung) return failure;
    calls_.faults().running -= static_cast<int64_t>(work_.size());
    if (!work_.empty()) --calls_.faults().busy_queues;
    work_.clear();
    return failure;
  }

 private:
  std::optional<Failure> Add(const char* call, std::function<void()> work) {
    if (auto failure = calls_.Make(call)) return failure;
    if (work_.empty()) {
      FaultPlan& faults = calls_.faults();
      faults.most_busy = std::max<int64_t>(faults.most_busy, ++faults.busy_queues);
    }
    work_.push_back(std::move(work));
    ++calls_.faults().running;
    return std::nullopt;
  }

  const Calls calls_;
  std::vector<std::function<void()>> work_;
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(Calls calls) : calls_(std::move(calls)) {}

  std::string_view name() const override { return "emulated device"; }

  Result<Memory> AllocateOnDevice(size_t size) override {
    return calls_.Allocate("allocation", size, &FaultPlan::device_bytes);
  }
  Result<Memory> AllocatePinned(size_t size) override {
    return calls_.Allocate("pinned memory", size, &FaultPlan::pinned_bytes);
  }

  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) override {
    return calls_.Open(descriptor, size);
  }

  Result<std::unique_ptr<Queue>> MakeQueue() override {
    if (auto failure = calls_.Make("queue")) return *std::move(failure);
    return std::unique_ptr<Queue>(std::make_unique<EmulatedQueue>(calls_));
  }

 private:
  const Calls calls_;
};

// Memory of the host in place of the device's, which two processes really share.
class EmulatedSegment final : public DeviceSegment {
 public:
  EmulatedSegment(Calls calls, std::shared_ptr<Segment> memory)
      : DeviceSegment(memory->writable(), memory->size(), memory->descriptor()),
        calls_(std::move(calls)),
        memory_(std::move(memory)) {
    FaultPlan& faults = calls_.faults();
    const int64_t shared = faults.shared_bytes += static_cast<int64_t>(this->size());
    faults.most_shared_bytes = std::max<int64_t>(faults.most_shared_bytes, shared);
  }
  ~EmulatedSegment() override { calls_.faults().shared_bytes -= static_cast<int64_t>(size()); }

  std::optional<Failure> Read(void* host, uint64_t offset, uint64_t size) const override {
    if (auto failure = calls_.Make("copy of shared memory")) return failure;
    ++calls_.faults().reads;
    std::memcpy(host, data() + offset, size);
    return std::nullopt;
  }

 private:
  const Calls calls_;
  const std::shared_ptr<Segment> memory_;
};

}  // namespace

Result<std::shared_ptr<DeviceSegment>> Calls::AllocateShared(size_t size) const {
  if (auto failure = Make("allocation of shared memory")) return *std::move(failure);
  if (static_cast<int64_t>(size) > faults_->device_bytes) {
    return Failure{FailureCode::kDevice, "emulated device: out of memory"};
  }
  const auto memory = Segment::Create(size);
  if (!memory.ok()) return Failure{FailureCode::kDevice, std::string(memory.status().message())};
  return std::shared_ptr<DeviceSegment>(std::make_shared<EmulatedSegment>(*this, *memory));
}

Result<std::shared_ptr<DeviceSegment>> Calls::Open(int descriptor, size_t size) const {
  if (auto failure = Make("opening of shared memory")) return *std::move(failure);
  if (faults_->refuses) {
    return Failure{FailureCode::kUnsupported,
                   "emulated device cannot read the memory of another device"};
  }
  const auto memory = Segment::Open(descriptor, size);
  if (!memory.ok()) {
    return Failure{FailureCode::kInvalidArgument, std::string(memory.status().message())};
  }
  return std::shared_ptr<DeviceSegment>(std::make_shared<EmulatedSegment>(*this, *memory));
}

Result<Memory> Calls::Allocate(const char* call, size_t size,
                               std::atomic<int64_t> FaultPlan::*left) const {
  if (auto failure = Make(call)) return *std::move(failure);
  const auto bytes = static_cast<int64_t>((size + kAlignment - 1) / kAlignment * kAlignment);
  if (((*faults_).*left -= bytes) < 0) {
    (*faults_).*left += bytes;
    return Failure{FailureCode::kDevice,
                   std::string("emulated device: ") + call + " failed: out of memory"};
  }
  void* const data = std::aligned_alloc(kAlignment, static_cast<size_t>(bytes));
  const std::lock_guard<std::mutex> lock(faults_->mutex);
  faults_->allocated.emplace(data, FaultPlan::Allocation{size, left == &FaultPlan::device_bytes});
  return Memory(data, [plan = faults_, left, bytes](void* allocated) {
    if (plan->hung) return;
    (*plan).*left += bytes;
    const std::lock_guard<std::mutex> guard(plan->mutex);
    plan->allocated.erase(allocated);
    std::free(allocated);
  });
}

void FaultPlan::AllowWaits(int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex);
  waits_left = count;
  changed.notify_all();
}

FaultPlan::~FaultPlan() {
  for (const auto& [data, allocation] : allocated) std::free(data);
}

void RunOnHost(const ReduceTask& task) { RunNow(task); }

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults) {
  return std::make_unique<EmulatedDevice>(Calls(std::move(faults)));
}

}  // namespace basin::accelerator
