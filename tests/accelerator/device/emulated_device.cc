// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/accelerator/device/emulated_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/reduce_body.h"
#include "runtime/shared_memory/segment.h"

namespace basin::accelerator {
namespace {

using kernels::cuda::kAlignment;

// The calls of a device, which a FaultPlan makes fail, and its memory, which it counts.
class Calls {
 public:
  explicit Calls(std::shared_ptr<FaultPlan> faults) : faults_(std::move(faults)) {}

  std::optional<Failure> Make(const char* call) const {
    if (faults_->hung) return Hangs();
    const int64_t number = faults_->calls++;
    const int64_t from = faults_->failing_from;
    const bool fails =
        number == faults_->failing_call || (from != FaultPlan::kNever && number >= from);
    if (!fails) return std::nullopt;
    return Failure{FailureCode::kDevice, std::string("emulated device: ") + call + " failed"};
  }

  static Failure Hangs() {
    return Failure{FailureCode::kDevice, "emulated device: work has not ended"};
  }

  // Takes the bytes from `left`, one of the amounts of the plan.
  Result<Memory> Allocate(const char* call, size_t size,
                          std::atomic<int64_t> FaultPlan::*left) const;

  // Segments of host memory: one of this process, and one of another.
  Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) const;
  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) const;

  FaultPlan& faults() const { return *faults_; }
  const std::shared_ptr<FaultPlan>& shared() const { return faults_; }

 private:
  std::shared_ptr<FaultPlan> faults_;
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

// What all parts of a device share.
struct EmulatedShared {
  EmulatedShared(std::shared_ptr<FaultPlan> faults, EmulatedOptions given)
      : calls(std::move(faults)), options(given), own(given.index) {}

  const Calls calls;
  const EmulatedOptions options;
  std::atomic<bool> impatient{false};
  EmulatedStream own;  // The default stream.

  EmulatedStream* StreamOf(Stream stream) {
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

  std::optional<Failure> Record(Stream stream) override {
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

class EmulatedQueue final : public Queue {
 public:
  explicit EmulatedQueue(EmulatedSharedPtr shared) : shared_(std::move(shared)) {}
  ~EmulatedQueue() override {
    if (!work_.empty() && !faults().hung) std::abort();  // Broke the REQUIRES of the destructor.
    *ended_ = true;                                      // Streams that wait for this go on.
  }

  std::optional<Failure> After(Event* event) override {
    const auto mark = static_cast<EmulatedEvent*>(event)->mark();
    return Add("wait for an event", [this, ended = ended_, mark] {
      if (mark->Await([&] { return *ended || (stream_ == nullptr && shared_->impatient); })) return;
      if (!*ended) faults().hung = true;
    });
  }
  std::optional<Failure> Before(Stream stream) override {
    const auto mark = std::make_shared<Point>(shared_->calls.shared());
    auto failure = Add(
        "order of a stream", [mark] { mark->Set(); }, true);
    if (failure) return failure;
    shared_->StreamOf(stream)->Add(
        [ended = ended_, mark] { mark->Await([&] { return ended->load(); }); });
    return std::nullopt;
  }

  std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) override {
    return Add("copy to the device", [=] { std::memcpy(device, host, size); });
  }
  std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) override {
    return Add("copy to the host", [=] { std::memcpy(host, device, size); });
  }
  std::optional<Failure> Run(const ReduceTask& task) override { return Launch("reduction", task); }
  std::optional<Failure> Run(const ReduceBatch& batch) override {
    ++faults().launches;
    for (uint32_t i = 0; i < batch.count; ++i) {
      const bool alike = SourceOf(batch.tasks[i]) == SourceOf(batch.tasks[0]) &&
                         ThreadsOf(batch.tasks[i]) == ThreadsOf(batch.tasks[0]);
      if (!alike) std::abort();  // Broke the REQUIRES of a batch.
    }
    return Add("batch of reductions", [tasks = batch.on_device, count = batch.count] {
      for (uint32_t i = 0; i < count; ++i) RunOnHost(tasks[i]);
    });
  }
  std::optional<Failure> Run(const CopyTask& task) override { return Launch("copies", task); }
  std::optional<Failure> Run(const MagnitudeTask& task) override {
    return Launch("searches for scales", task);
  }
  std::optional<Failure> Run(const NarrowTask& task) override { return Launch("casts", task); }
  std::optional<Failure> Run(const MeasureTask& task) override { return Launch("digests", task); }

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

  std::optional<Failure> UseOnThisThread() override {
    if (faults().on_use) faults().on_use();
    auto failure = shared_->calls.Make("use of the device");
    if (!failure) (void)stream();
    return failure;
  }
  Stream stream() override {
    std::call_once(stream_made_, [this] { stream_ = std::make_unique<EmulatedStream>(); });
    return stream_.get();
  }
  std::optional<Failure> Notify(std::function<void()> arrived) override {
    return Add("notification", std::move(arrived));
  }
  std::optional<Failure> Check() override { return shared_->calls.Make("check"); }

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

  template <typename Task>
  std::optional<Failure> Launch(const char* call, const Task& task) {
    ++faults().launches;
    return Add(call, [task] { RunOnHost(task); });
  }

  std::optional<Failure> Add(const char* call, std::function<void()> work, bool always = false,
                             bool is_mark = false) {
    if (auto failure = shared_->calls.Make(call)) return failure;
    if (stream_ != nullptr) {
      stream_->Add(std::move(work));
      return std::nullopt;
    }
    if (work_.empty()) {
      faults().most_busy = std::max<int64_t>(faults().most_busy, ++faults().busy_queues);
    }
    work_.push_back({std::move(work), always, is_mark});
    ++faults().running;
    return std::nullopt;
  }

  const EmulatedSharedPtr shared_;
  const std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<Work> work_;
  std::once_flag stream_made_;
  std::unique_ptr<EmulatedStream> stream_;  // Null: work runs in Wait().
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(EmulatedSharedPtr shared) : shared_(std::move(shared)) {}

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
  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) override {
    return shared_->calls.Open(descriptor, size);
  }
  Result<std::unique_ptr<Queue>> MakeQueue() override {
    if (auto failure = shared_->calls.Make("queue")) return *std::move(failure);
    return std::unique_ptr<Queue>(std::make_unique<EmulatedQueue>(shared_));
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

}  // namespace

void FaultPlan::AllowWaits(int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex);
  waits_left = count;
  changed.notify_all();
}

FaultPlan::~FaultPlan() {
  for (const auto& [data, allocation] : allocated) std::free(data);
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

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults,
                                           EmulatedOptions options) {
  return std::make_unique<EmulatedDevice>(
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
