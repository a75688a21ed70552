// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/accelerator/device/emulated_trainer_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/copy_body.h"
#include "kernels/cuda/magnitude_body.h"
#include "kernels/cuda/measure_body.h"
#include "kernels/cuda/narrow_body.h"
#include "kernels/float_environment.h"
#include "tests/accelerator/device/emulated_calls.h"

namespace basin::accelerator {
namespace {

using kernels::ScopedFloatEnvironment;
using kernels::cuda::CopyShare;
using kernels::cuda::kAlignment;
using kernels::cuda::LargestOfShare;
using kernels::cuda::MeasureShare;
using kernels::cuda::MeasureThreadsOf;
using kernels::cuda::NarrowShare;
using kernels::cuda::NarrowThreadsOf;

// What all parts of a device share.
struct EmulatedShared {
  EmulatedShared(std::shared_ptr<FaultPlan> faults, EmulatedTrainerOptions given)
      : calls(std::move(faults)), options(given), own(given.index) {}

  const Calls calls;
  const EmulatedTrainerOptions options;
  std::atomic<bool> impatient{false};
  EmulatedStream own;  // The default stream.

  EmulatedStream* StreamOf(TrainerStream stream) {
    return stream == nullptr ? &own : static_cast<EmulatedStream*>(stream);
  }
};

using EmulatedSharedPtr = std::shared_ptr<EmulatedShared>;

// A point in a stream or a queue.
class Point {
 public:
  explicit Point(std::shared_ptr<FaultPlan> faults) : faults_(std::move(faults)) {}

  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  // Whether it was reached before the device hung, or `gives_up` returned true.
  template <typename GivesUp>
  bool Await(GivesUp gives_up) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return set_; })) {
      if (faults_->hung || gives_up()) return false;
    }
    return true;
  }

 private:
  const std::shared_ptr<FaultPlan> faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

class EmulatedEvent final : public Event {
 public:
  explicit EmulatedEvent(EmulatedSharedPtr shared) : shared_(std::move(shared)) {}

  std::optional<Failure> Record(TrainerStream stream) override {
    if (auto failure = shared_->calls.Make("record of an event")) return failure;
    EmulatedStream* const of = shared_->StreamOf(stream);
    if (of->device() != shared_->options.index) {
      return Failure{FailureCode::kInvalidArgument, "emulated device: the stream is another's"};
    }
    if (of->captured) {
      return Failure{FailureCode::kUnsupported,
                     "emulated device: the stream is being captured into a graph"};
    }
    mark_ = std::make_shared<Point>(shared_->calls.shared());
    of->Add([mark = mark_] { mark->Set(); });
    return std::nullopt;
  }

  const std::shared_ptr<Point>& mark() const { return mark_; }

 private:
  const EmulatedSharedPtr shared_;
  std::shared_ptr<Point> mark_;
};

class EmulatedTransferQueue final : public TransferQueue {
 public:
  explicit EmulatedTransferQueue(EmulatedSharedPtr shared) : shared_(std::move(shared)) {}
  ~EmulatedTransferQueue() override {
    if (!work_.empty() && !faults().hung) std::abort();  // Broke the REQUIRES of the destructor.
  }

  std::optional<Failure> After(Event* event) override {
    return Add("wait for an event", [this, mark = static_cast<EmulatedEvent*>(event)->mark()] {
      if (!mark->Await([this] { return shared_->impatient.load(); })) faults().hung = true;
    });
  }
  std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) override {
    return Add("copy to the device", [=] { std::memcpy(device, host, size); });
  }
  std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) override {
    return Add("copy to the host", [=] { std::memcpy(host, device, size); });
  }
  std::optional<Failure> Run(const CopyTask& task) override {
    ++faults().launches;
    return Add("copies", [task] {
      constexpr uint64_t kThreads = 3;  // Some do several words.
      for (uint32_t i = 0; i < task.count; ++i) {
        for (uint64_t thread = 0; thread < kThreads; ++thread) {
          CopyShare(task.items[i], thread, kThreads);
        }
      }
    });
  }
  std::optional<Failure> Run(const MagnitudeTask& task) override {
    ++faults().launches;
    return Add("searches for scales", [task] {
      constexpr uint64_t kThreads = 5;  // Some search several elements.
      for (uint32_t i = 0; i < task.count; ++i) {
        uint32_t& largest = *task.items[i].largest;
        for (uint64_t thread = 0; thread < kThreads; ++thread) {
          largest = std::max(largest, LargestOfShare(task.items[i], thread, kThreads));
        }
      }
    });
  }
  std::optional<Failure> Run(const NarrowTask& task) override {
    ++faults().launches;
    return Add("casts", [task] {
      const ScopedFloatEnvironment environment;
      for (uint32_t i = 0; i < task.count; ++i) {
        const uint64_t threads = NarrowThreadsOf(task.items[i]) + 1;
        for (uint64_t thread = 0; thread < threads; ++thread) NarrowShare(task.items[i], thread);
      }
    });
  }
  std::optional<Failure> Run(const MeasureTask& task) override {
    ++faults().launches;
    return Add("digests", [task] {
      const ScopedFloatEnvironment environment;
      for (uint32_t i = 0; i < task.count; ++i) {
        const uint64_t threads = MeasureThreadsOf(task.items[i]) + 1;
        for (uint64_t thread = 0; thread < threads; ++thread) {
          MeasureShare(task.keys, task.items[i], thread);
        }
      }
    });
  }
  std::optional<Failure> Before(TrainerStream stream) override {
    const auto mark = std::make_shared<Point>(shared_->calls.shared());
    if (auto failure = Add(
            "order of a stream", [mark] { mark->Set(); }, true))
      return failure;
    shared_->StreamOf(stream)->Add([mark] { mark->Await([] { return false; }); });
    return std::nullopt;
  }

  std::optional<Failure> Mark() override {
    return Add(
        "mark", [] {}, false, true);
  }

  std::optional<Failure> AwaitMark() override {
    TakeWait();
    if (faults().hangs) faults().hung = true;
    std::optional<Failure> failure = shared_->calls.Make("wait for a mark");
    if (failure) return failure;
    size_t done = 0;
    while (done < work_.size() && !faults().hung && !work_[done].is_mark) work_[done++].run();
    if (faults().hung) return Calls::Hangs();
    if (done == work_.size()) std::abort();  // Broke the REQUIRES of AwaitMark.
    Drop(done + 1);
    return std::nullopt;
  }

  std::optional<Failure> Wait() override {
    TakeWait();
    if (faults().hangs && !work_.empty()) faults().hung = true;
    std::optional<Failure> failure = shared_->calls.Make("wait");
    for (const Work& work : work_) {
      if (faults().hung) return Calls::Hangs();
      if (!failure || work.always) work.run();
    }
    if (faults().hung) return Calls::Hangs();
    Drop(work_.size());
    return failure;
  }

 private:
  struct Work {
    std::function<void()> run;
    bool always = false;  // Also when the queue has failed, so that no stream waits forever.
    bool is_mark = false;
  };

  void TakeWait() const {
    std::unique_lock<std::mutex> lock(faults().mutex);
    faults().changed.wait(lock, [this] { return faults().waits_left > 0; });
    --faults().waits_left;
  }

  // The first ones, which have run.
  void Drop(size_t count) {
    if (count == 0) return;
    work_.erase(work_.begin(), work_.begin() + static_cast<ptrdiff_t>(count));
    faults().running -= static_cast<int64_t>(count);
    if (work_.empty()) --faults().busy_queues;
  }

  FaultPlan& faults() const { return shared_->calls.faults(); }

  std::optional<Failure> Add(const char* call, std::function<void()> work, bool always = false,
                             bool is_mark = false) {
    if (auto failure = shared_->calls.Make(call)) return failure;
    if (work_.empty()) {
      faults().most_busy = std::max<int64_t>(faults().most_busy, ++faults().busy_queues);
    }
    work_.push_back({std::move(work), always, is_mark});
    ++faults().running;
    return std::nullopt;
  }

  const EmulatedSharedPtr shared_;
  std::vector<Work> work_;
};

class EmulatedTrainerDevice final : public TrainerDevice {
 public:
  explicit EmulatedTrainerDevice(EmulatedSharedPtr shared) : shared_(std::move(shared)) {}

  std::string_view name() const override { return "emulated device"; }

  Result<Memory> AllocateOnDevice(size_t size) override {
    return shared_->calls.Allocate("allocation", size, &FaultPlan::device_bytes);
  }
  Result<Memory> AllocatePinned(size_t size) override {
    return shared_->calls.Allocate("pinned memory", size, &FaultPlan::pinned_bytes);
  }
  Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) override {
    return shared_->calls.AllocateShared(size);
  }
  Result<std::unique_ptr<TransferQueue>> MakeQueue() override {
    if (auto failure = shared_->calls.Make("queue")) return *std::move(failure);
    return std::unique_ptr<TransferQueue>(std::make_unique<EmulatedTransferQueue>(shared_));
  }
  Result<std::unique_ptr<Event>> MakeEvent() override {
    if (auto failure = shared_->calls.Make("event")) return *std::move(failure);
    return std::unique_ptr<Event>(std::make_unique<EmulatedEvent>(shared_));
  }

  std::optional<Failure> CheckMemory(const void* data, size_t size) override {
    if (auto failure = shared_->calls.Make("look at memory")) return failure;
    if (shared_->options.any_memory || size == 0) return std::nullopt;
    FaultPlan& faults = shared_->calls.faults();
    const std::lock_guard<std::mutex> lock(faults.mutex);
    for (const auto& [begin, allocation] : faults.allocated) {
      const auto* const first = static_cast<const char*>(begin);
      const auto* const given = static_cast<const char*>(data);
      if (allocation.on_device && given >= first && given + size <= first + allocation.bytes) {
        return std::nullopt;
      }
    }
    return Failure{FailureCode::kInvalidArgument, "emulated device: the memory is not of it"};
  }

  void LosePatience() override { shared_->impatient = true; }

 private:
  const EmulatedSharedPtr shared_;
};

class EmulatedGroupQueue final : public GroupQueue {
 public:
  explicit EmulatedGroupQueue(std::shared_ptr<FaultPlan> faults) : calls_(std::move(faults)) {}
  ~EmulatedGroupQueue() override { *ended_ = true; }  // Streams that wait for this go on.

  std::optional<Failure> UseOnThisThread() override { return calls_.Make("use of the device"); }
  TrainerStream stream() override { return &stream_; }

  std::optional<Failure> After(Event* event) override {
    if (auto failure = calls_.Make("wait for an event")) return failure;
    Add([ended = ended_, mark = static_cast<EmulatedEvent*>(event)->mark()] {
      mark->Await([&] { return ended->load(); });
    });
    return std::nullopt;
  }
  std::optional<Failure> Before(TrainerStream stream) override {
    if (auto failure = calls_.Make("order of a stream")) return failure;
    const auto mark = std::make_shared<Point>(calls_.shared());
    Add([mark] { mark->Set(); });
    static_cast<EmulatedStream*>(stream)->Add(
        [ended = ended_, mark] { mark->Await([&] { return ended->load(); }); });
    return std::nullopt;
  }
  std::optional<Failure> Run(const ReduceTask& task) override {
    if (auto failure = calls_.Make("reduction")) return failure;
    ++calls_.faults().launches;
    Add([task] { RunOnHost(task); });
    return std::nullopt;
  }
  std::optional<Failure> Notify(std::function<void()> arrived) override {
    if (auto failure = calls_.Make("notification")) return failure;
    Add(std::move(arrived));
    return std::nullopt;
  }
  std::optional<Failure> Check() override { return calls_.Make("check"); }

 private:
  void Add(std::function<void()> work) { stream_.Add(std::move(work)); }

  const Calls calls_;
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
  EmulatedStream stream_;
};

}  // namespace

std::unique_ptr<GroupQueue> MakeEmulatedGroupQueue(std::shared_ptr<FaultPlan> faults) {
  return std::make_unique<EmulatedGroupQueue>(std::move(faults));
}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    held_ = false;
    changed_.notify_all();
  }
  thread_.join();
}

void EmulatedStream::Add(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void EmulatedStream::Hold() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void EmulatedStream::Release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void EmulatedStream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty(); });
}

void EmulatedStream::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return (!held_ && !work_.empty()) || (ended_ && work_.empty()); });
    if (work_.empty()) return;
    const std::function<void()> work = work_.front();
    lock.unlock();
    work();
    lock.lock();
    work_.pop_front();
    changed_.notify_all();
  }
}

std::unique_ptr<TrainerDevice> MakeEmulatedTrainerDevice(std::shared_ptr<FaultPlan> faults,
                                                         EmulatedTrainerOptions options) {
  return std::make_unique<EmulatedTrainerDevice>(
      std::make_shared<EmulatedShared>(std::move(faults), options));
}

Memory AllocateForTrainer(const std::shared_ptr<FaultPlan>& faults, size_t size) {
  void* const data = std::aligned_alloc(kAlignment, (size + kAlignment) / kAlignment * kAlignment);
  {
    const std::lock_guard<std::mutex> lock(faults->mutex);
    faults->allocated.emplace(data, FaultPlan::Allocation{size, true});
  }
  return Memory(data, [faults](void* allocated) {
    const std::lock_guard<std::mutex> lock(faults->mutex);
    faults->allocated.erase(allocated);
    std::free(allocated);
  });
}

}  // namespace basin::accelerator
