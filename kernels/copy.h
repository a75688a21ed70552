// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A copy to memory that nobody reads before the caches have lost it: a model's results, on their
// way to the trainer.
//
// Thread contract: any thread. What was written is seen as after std::memcpy().

#ifndef BASIN_KERNELS_COPY_H_
#define BASIN_KERNELS_COPY_H_

#include <cstddef>

namespace basin::kernels {

// As std::memcpy(), but the destination is written without being read first, where the processor
// can: a third less traffic. Slower than std::memcpy() for what stays in the nearest caches.
void CopyPastCache(void* to, const void* from, size_t size);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_COPY_H_
