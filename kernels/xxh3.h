// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The calls to xxHash that have two implementations: xxh3_dispatch.cc picks the vector instructions
// of the processor at run time, xxh3_plain.cc takes what the library was compiled for. CMake
// chooses the file; both give the same values.
//
// Thread contract: that of xxHash: one state, one thread at a time.

#ifndef BASIN_KERNELS_XXH3_H_
#define BASIN_KERNELS_XXH3_H_

#include <xxhash.h>

#include <cstddef>

namespace basin::kernels {

XXH64_hash_t Xxh3Hash64(const void* data, size_t size);
XXH128_hash_t Xxh3Hash128(const void* data, size_t size);
void Xxh3Update64(XXH3_state_t* state, const void* data, size_t size);
void Xxh3Update128(XXH3_state_t* state, const void* data, size_t size);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_XXH3_H_
