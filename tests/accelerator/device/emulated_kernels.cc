// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/copy_body.h"
#include "kernels/cuda/magnitude_body.h"
#include "kernels/cuda/measure_body.h"
#include "kernels/cuda/narrow_body.h"
#include "kernels/cuda/reduce_body.h"
#include "kernels/float_environment.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::kernels::cuda {
namespace {

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

void RunBlocks(const ReduceTask& task) {
  VisitSource(task, [&task](auto source) {
    using Source = decltype(source);
    const uint64_t blocks = BlocksOf<Source>(task);
    for (uint64_t block = 0; block < blocks; ++block) RunBlock<Source>(task, block);
  });
}

}  // namespace
}  // namespace basin::kernels::cuda

namespace basin::accelerator {

using kernels::ScopedFloatEnvironment;

void RunOnHost(const ReduceTask& task) {
  const ScopedFloatEnvironment environment;
  kernels::cuda::RunBlocks(task);
}

void RunOnHost(const CopyTask& task) {
  constexpr uint64_t kThreads = 3;  // Some do several words.
  for (uint32_t i = 0; i < task.count; ++i) {
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      CopyShare(task.items[i], thread, kThreads);
    }
  }
}

void RunOnHost(const MagnitudeTask& task) {
  constexpr uint64_t kThreads = 5;  // Some search several elements.
  for (uint32_t i = 0; i < task.count; ++i) {
    uint32_t& largest = *task.items[i].largest;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      largest = std::max(largest, LargestOfShare(task.items[i], thread, kThreads));
    }
  }
}

void RunOnHost(const NarrowTask& task) {
  const ScopedFloatEnvironment environment;
  for (uint32_t i = 0; i < task.count; ++i) {
    const uint64_t threads = NarrowThreadsOf(task.items[i]) + 1;
    for (uint64_t thread = 0; thread < threads; ++thread) NarrowShare(task.items[i], thread);
  }
}

void RunOnHost(const MeasureTask& task) {
  const ScopedFloatEnvironment environment;
  for (uint32_t i = 0; i < task.count; ++i) {
    const uint64_t threads = MeasureThreadsOf(task.items[i]) + 1;
    for (uint64_t thread = 0; thread < threads; ++thread) {
      MeasureShare(task.keys, task.items[i], thread);
    }
  }
}

}  // namespace basin::accelerator
