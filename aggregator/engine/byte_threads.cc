// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/byte_threads.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/engine/device_reduction.h"

namespace basin::aggregator {
namespace {

uint64_t HomeOf(const Reduce& reduce) {
  const ChunkRange& first = reduce.ranges.front();
  return uint64_t{reduce.lane} << 48 ^ uint64_t { first.tensor } << 24 ^ first.first;
}

// The bytes that take less time to reduce than to hand to another thread and back: 64 KiB are 3 us.
constexpr uint64_t kReducedByLoop = uint64_t{64} << 10;
// What a thread reads for one job before it takes a task of another.
constexpr uint64_t kReducedAtOnce = uint64_t{4} << 20;

uint64_t InputBytes(const Reduction& reduction) {
  uint64_t bytes = 0;
  for (const std::vector<ChunkInput>& chunk : reduction.inputs) {
    for (const ChunkInput& input : chunk) bytes += input.part.size;
  }
  return bytes;
}

}  // namespace

void ByteThreads::Start(Reports reports) {
  reports_ = std::move(reports);
  reduce_threads_ = std::make_unique<ThreadPool>(
      "basin-reduce", devices_ == nullptr ? options_.reduce_threads : devices_->threads());
  if (options_.shared_result_bytes > 0) {
    memory_thread_ = std::make_unique<ThreadPool>("basin-memory", 1);
  }
}

void ByteThreads::Stop() {
  reduce_threads_.reset();
  memory_thread_.reset();
}

void ByteThreads::Connect(ByteDependencies& dependencies) {
  dependencies.reduce = [this](std::unique_ptr<Reduction> reduction) {
    Reduce(std::move(reduction));
  };
  dependencies.arena_bytes = options_.shared_result_bytes;
  dependencies.most_arenas = options_.most_arenas;
  if (memory_thread_ == nullptr) return;
  const Gauge gauge = NewGauge();
  dependencies.arena_gauge = gauge;
  dependencies.make_arena = [this, gauge](JobId job, LaneIndex lane, ResultPlaces places) {
    const uint64_t bytes = 2 * places.end;
    auto charges = ResultArena::ChargesFor(places, gauge);
    memory_thread_->Submit(0, [this, job, lane, bytes, charges = std::move(charges),
                               places = std::move(places)]() mutable {
      auto made = ResultArena::Create(std::move(places), std::exchange(charges, {}));
      reports_.arena_made(job, lane, bytes, made.ok() ? *std::move(made) : nullptr);
    });
  };
}

void ByteThreads::Reduce(std::unique_ptr<Reduction> reduction) {
  // A std::function must be copyable.
  const std::shared_ptr<Reduction> shared = std::move(reduction);
  const uint64_t bytes = InputBytes(*shared);
  // The loop does not wait for a device.
  if (bytes <= kReducedByLoop && !HasDeviceInput(*shared)) return ReduceAtOnce(shared);
  // While the threads end, they still submit, and are no longer in reduce_threads_.
  ThreadPool& workers = *reduce_threads_;
  if (devices_ == nullptr) return ReduceByParts(workers, shared, bytes);
  const uint64_t home = HomeOf(shared->action);
  workers.Submit(home, shared->action.job, bytes,
                 [this, &workers, home, shared] { ReduceOnDevice(workers, home, shared); });
}

void ByteThreads::ReduceAtOnce(const std::shared_ptr<Reduction>& reduction) {
  RunPart(*reduction, reducer_, pool_, std::numeric_limits<uint64_t>::max());
  reports_.reduced(reduction);
}

void ByteThreads::ReduceByParts(ThreadPool& workers, const std::shared_ptr<Reduction>& reduction,
                                uint64_t left) {
  const uint64_t part = std::min(left, kReducedAtOnce);
  workers.Submit(HomeOf(reduction->action), reduction->action.job, part,
                 [this, &workers, reduction, rest = left - part] {
                   if (!RunPart(*reduction, reducer_, pool_, kReducedAtOnce)) {
                     return ReduceByParts(workers, reduction, rest);
                   }
                   reports_.reduced(reduction);
                 });
}

void ByteThreads::ReduceOnDevice(ThreadPool& workers, uint64_t home,
                                 const std::shared_ptr<Reduction>& reduction) {
  accelerator::DeviceThread& thread = devices_->thread(workers.ThreadOf(home));
  if (thread.failed()) return ReduceAtOnce(reduction);
  const auto done = [this, &thread, reduction](const std::optional<kernels::Failure>& failure) {
    if (failure.has_value() && thread.Fail()) {
      reports_.device_failed(
          absl::StrCat(failure->message,
                       ". The CPU reduces instead, with the same results. Restart basind to use "
                       "the device again."));
    }
    reduction->seconds = thread.TakeSeconds();
    reports_.reduced(reduction);
  };
  thread.Time([&](accelerator::DevicePipeline& pipeline) {
    const auto ticket = StartOnDevice(reduction, pipeline, thread.device(), reducer_, pool_, done);
    // Posted behind the tasks of the job that this thread has to start meanwhile. By then the work
    // may be done, because its lane was needed.
    workers.Submit(home, reduction->action.job, 0, [&thread, ticket] {
      thread.Time([ticket](accelerator::DevicePipeline& p) { p.Finish(ticket); });
    });
  });
}

}  // namespace basin::aggregator
