// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <xxh_x86dispatch.h>  // Redirects the names below.

#include "kernels/xxh3.h"

namespace basin::kernels {

XXH64_hash_t Xxh3Hash64(const void* data, size_t size) { return XXH3_64bits(data, size); }

XXH128_hash_t Xxh3Hash128(const void* data, size_t size) { return XXH3_128bits(data, size); }

void Xxh3Update64(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_64bits_update(state, data, size);
}

void Xxh3Update128(XXH3_state_t* state, const void* data, size_t size) {
  XXH3_128bits_update(state, data, size);
}

}  // namespace basin::kernels
