// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/float_environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace basin::kernels {
namespace {

#if defined(__x86_64__)

// MXCSR: all exceptions masked, everything else off.
constexpr uint64_t kContractMode = 0x1f80;
uint64_t Mode() { return _mm_getcsr(); }
void SetMode(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }

#elif defined(__aarch64__)

// FPCR: no traps, no flush, no default-NaN, round to nearest.
constexpr uint64_t kContractMode = 0;
uint64_t Mode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void SetMode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }

#else
#error "Say how this processor rounds to nearest and keeps subnormals."
#endif

}  // namespace

ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(Mode()) { SetMode(kContractMode); }

ScopedFloatEnvironment::~ScopedFloatEnvironment() { SetMode(saved_); }

}  // namespace basin::kernels
