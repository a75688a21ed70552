// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace basin::kernels {

#if defined(__x86_64__)

namespace {

constexpr size_t kLine = 64;

// `to` is the begin of a line.
using CopyLines = void(unsigned char* to, const unsigned char* from, size_t lines);

void CopyLinesSse2(unsigned char* to, const unsigned char* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    __m128i parts[kLine / sizeof(__m128i)];
    std::memcpy(parts, from, sizeof(parts));
    auto* line = reinterpret_cast<__m128i*>(to);
    _mm_stream_si128(line, parts[0]);
    _mm_stream_si128(line + 1, parts[1]);
    _mm_stream_si128(line + 2, parts[2]);
    _mm_stream_si128(line + 3, parts[3]);
  }
}

// Writes a line at once, which the processor need not combine from parts.
__attribute__((target("avx512f"))) void CopyLinesAvx512(unsigned char* to,
                                                        const unsigned char* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
}

CopyLines* LoopOfThisProcessor() {
  return __builtin_cpu_supports("avx512f") ? CopyLinesAvx512 : CopyLinesSse2;
}

}  // namespace

void CopyPastCache(void* to, const void* from, size_t size) {
  static const auto copy_lines = LoopOfThisProcessor();
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  // Only whole lines of the destination: a line that is written in part is read first after all.
  const size_t before = std::min(size, (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine);
  const size_t whole = (size - before) / kLine * kLine;
  std::memcpy(out, in, before);
  copy_lines(out + before, in + before, whole / kLine);
  std::memcpy(out + before + whole, in + before + whole, size - before - whole);
  _mm_sfence();  // These stores are not ordered with others.
}

#else

void CopyPastCache(void* to, const void* from, size_t size) { std::memcpy(to, from, size); }

#endif

}  // namespace basin::kernels
