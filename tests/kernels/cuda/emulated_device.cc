// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cast_body.h"
#include "kernels/cuda/reduce_body.h"
#include "kernels/float_environment.h"

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

void RunNow(const CastTask& task) {
  const ScopedFloatEnvironment environment;
  const uint64_t threads = (task.count + kCastVector - 1) / kCastVector;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    if (task.wire_dtype == DType::kF16) {
      CastVector<BranchlessF16>(task, thread);
    } else {
      CastVector<BranchlessBF16>(task, thread);
    }
  }
}

// ---- The device ---------------------------------------------------------------------------------

class Calls {
 public:
  explicit Calls(std::shared_ptr<FaultPlan> faults) : faults_(std::move(faults)) {}

  std::optional<Failure> Make(const char* call) const {
    if (faults_->calls++ != faults_->failing_call) return std::nullopt;
    return Failure{FailureCode::kDevice, std::string("emulated device: ") + call + " failed"};
  }

  FaultPlan& faults() const { return *faults_; }

 private:
  std::shared_ptr<FaultPlan> faults_;
};

class EmulatedQueue final : public Queue {
 public:
  explicit EmulatedQueue(Calls calls) : calls_(std::move(calls)) {}

  ~EmulatedQueue() override {
    if (!work_.empty()) std::abort();  // Broke the REQUIRES of the destructor.
  }

  std::optional<Failure> CopyToDevice(void* device, const void* pinned, size_t size) override {
    return Add("copy to the device", [=] { std::memcpy(device, pinned, size); });
  }

  std::optional<Failure> CopyToHost(void* pinned, const void* device, size_t size) override {
    return Add("copy to the host", [=] { std::memcpy(pinned, device, size); });
  }

  std::optional<Failure> Run(const ReduceTask& task) override {
    return Add("reduction", [task] { RunNow(task); });
  }

  std::optional<Failure> Run(const CastTask& task) override {
    return Add("cast", [task] { RunNow(task); });
  }

  std::optional<Failure> Wait() override {
    auto failure = calls_.Make("wait");
    for (const auto& work : work_) {
      if (!failure) work();
    }
    calls_.faults().running -= static_cast<int64_t>(work_.size());
    work_.clear();
    return failure;
  }

 private:
  std::optional<Failure> Add(const char* call, std::function<void()> work) {
    if (auto failure = calls_.Make(call)) return failure;
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

  Result<Memory> AllocateOnDevice(size_t size) override { return Allocate("allocation", size); }
  Result<Memory> AllocatePinned(size_t size) override { return Allocate("pinned memory", size); }

  Result<std::unique_ptr<Queue>> MakeQueue() override {
    if (auto failure = calls_.Make("queue")) return *std::move(failure);
    return std::unique_ptr<Queue>(std::make_unique<EmulatedQueue>(calls_));
  }

 private:
  Result<Memory> Allocate(const char* call, size_t size) const {
    if (auto failure = calls_.Make(call)) return *std::move(failure);
    const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
    void* const data = std::aligned_alloc(kAlignment, rounded);
    return Memory(data, [](void* allocated) { std::free(allocated); });
  }

  const Calls calls_;
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults) {
  return std::make_unique<EmulatedDevice>(Calls(std::move(faults)));
}

}  // namespace basin::kernels::cuda
