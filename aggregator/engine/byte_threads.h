// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The threads of a process that holds bytes: those that reduce, on the CPU or on devices, and one
// that asks the system for memory which workers map. A ByteRunner hands work to them; what comes of
// it is reported to the loop that owns the runner.
//
// Thread contract: Start and Stop one after the other, by one thread; what Connect gives is for the
// loop. Reports come from any thread, also from the loop's own, but not after Stop has returned.
// Failure: a device that fails is reported; the CPU takes over.

#ifndef BASIN_AGGREGATOR_ENGINE_BYTE_THREADS_H_
#define BASIN_AGGREGATOR_ENGINE_BYTE_THREADS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "accelerator/transfer/reduce_devices.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/byte_runner.h"
#include "aggregator/engine/reduction.h"
#include "aggregator/engine/result_arena.h"
#include "aggregator/engine/thread_pool.h"
#include "kernels/reducer.h"

namespace basin::aggregator {

struct ByteThreadsOptions {
  uint32_t reduce_threads = 1;  // With devices, they decide: ReduceDevices::threads().
  uint64_t idle_buffer_bytes = uint64_t{256} << 20;  // Kept for the next results.
  // For results that workers on this machine map; 0: none is shared.
  uint64_t shared_result_bytes = 0;
  // Lanes that may have such memory at a time, with kArenaDescriptors each.
  uint64_t most_arenas = std::numeric_limits<uint64_t>::max();
};

class ByteThreads {
 public:
  struct Reports {
    std::function<void(const std::shared_ptr<const Reduction>& reduction)> reduced;
    // As ByteRunner::ArenaMade takes it.
    std::function<void(JobId job, LaneIndex lane, uint64_t bytes,
                       const std::shared_ptr<ResultArena>& arena)>
        arena_made;
    // Why a device is not used any more, as sentences.
    std::function<void(const std::string& why)> device_failed;
  };

  // `devices`: what reduces in place of `reducer`, which takes over what a device cannot do or
  // fails at; null for none. REQUIRES: both outlive it.
  ByteThreads(const ByteThreadsOptions& options, const kernels::Reducer& reducer,
              accelerator::ReduceDevices* devices)
      : options_(options), reducer_(reducer), devices_(devices), pool_(options.idle_buffer_bytes) {}
  ~ByteThreads() { Stop(); }
  ByteThreads(const ByteThreads&) = delete;
  ByteThreads& operator=(const ByteThreads&) = delete;

  void Start(Reports reports);
  // Runs what was submitted, then ends the threads. Idempotent.
  void Stop();

  // Fills in what a runner hands to these threads, and the bounds of that. REQUIRES: they run; the
  // runner is not called after Stop.
  void Connect(ByteDependencies& dependencies);

  const BufferPool& pool() const { return pool_; }

 private:
  void Reduce(std::unique_ptr<Reduction> reduction);
  // On the reduce thread of `home`.
  void ReduceOnDevice(ThreadPool& workers, uint64_t home,
                      const std::shared_ptr<Reduction>& reduction);
  void ReduceAtOnce(const std::shared_ptr<Reduction>& reduction);
  // On a thread, in turn with the reductions of other jobs. `left`: bytes that it is to read.
  void ReduceByParts(ThreadPool& workers, const std::shared_ptr<Reduction>& reduction,
                     uint64_t left);

  // Constant after construction.
  const ByteThreadsOptions options_;
  const kernels::Reducer& reducer_;
  accelerator::ReduceDevices* const devices_;

  BufferPool pool_;  // Synchronises itself.
  Reports reports_;  // Constant from Start to Stop, as are the threads.
  std::unique_ptr<ThreadPool> reduce_threads_;
  std::unique_ptr<ThreadPool> memory_thread_;  // Null: no memory is shared.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_BYTE_THREADS_H_
