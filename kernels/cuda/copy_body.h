// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of a thread of the copy kernel, for the device and, in the tests, on the host.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_COPY_BODY_H_
#define BASIN_KERNELS_CUDA_COPY_BODY_H_

#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/cuda/task.h"

namespace basin::kernels::cuda {

constexpr unsigned kCopyThreads = 256;
constexpr unsigned kCopyBlocks = 16;  // The most for one item: 64 KiB take one load of a thread.

// What a thread loads at once. The arrays have elements of any type.
struct alignas(16) CopyVector {
  uint64_t parts[2];
} __attribute__((may_alias));
struct CopyWord {
  uint32_t part;
} __attribute__((may_alias));

template <typename Word>
BASIN_HOST_DEVICE void CopyWords(const CopyItem& item, uint64_t thread, uint64_t threads) {
  const uint64_t words = item.bytes / sizeof(Word);
  for (uint64_t i = thread; i < words; i += threads) {
    static_cast<Word*>(item.destination)[i] = static_cast<const Word*>(item.source)[i];
  }
  // What is left is less than a word.
  auto* const to = static_cast<unsigned char*>(item.destination);
  const auto* const from = static_cast<const unsigned char*>(item.source);
  for (uint64_t i = words * sizeof(Word) + thread; i < item.bytes; i += threads) to[i] = from[i];
}

// The share of thread `thread` of `threads` in an item.
BASIN_HOST_DEVICE void CopyShare(const CopyItem& item, uint64_t thread, uint64_t threads) {
  const uint64_t both =
      reinterpret_cast<uint64_t>(item.source) | reinterpret_cast<uint64_t>(item.destination);
  if (both % alignof(CopyVector) == 0) {
    CopyWords<CopyVector>(item, thread, threads);
  } else if (both % alignof(CopyWord) == 0) {
    CopyWords<CopyWord>(item, thread, threads);
  } else {
    CopyWords<unsigned char>(item, thread, threads);
  }
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_COPY_BODY_H_
