// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace basin::kernels {

#if defined(__x86_64__)

void CopyPastCache(void* to, const void* from, size_t size) {
  constexpr size_t kLine = 64;
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  // Whole lines of the destination only: parts of one are read first after all.
  const size_t before = std::min(size, (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, before);
  size_t at = before;
  for (; at + kLine <= size; at += kLine) {
    __m128i parts[kLine / sizeof(__m128i)];
    std::memcpy(parts, in + at, sizeof(parts));
    auto* line = reinterpret_cast<__m128i*>(out + at);
    _mm_stream_si128(line, parts[0]);
    _mm_stream_si128(line + 1, parts[1]);
    _mm_stream_si128(line + 2, parts[2]);
    _mm_stream_si128(line + 3, parts[3]);
  }
  std::memcpy(out + at, in + at, size - at);
  _mm_sfence();  // Such stores are ordered with no other ones by themselves.
}

#else

void CopyPastCache(void* to, const void* from, size_t size) { std::memcpy(to, from, size); }

#endif

}  // namespace basin::kernels
