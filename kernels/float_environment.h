// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The floating-point mode that the arithmetic contract assumes. A thread's mode is its own and may
// have been changed by anybody (a library built with -ffast-math does it when it is loaded), so
// whoever computes by the contract holds one of these while it does.
//
// Thread contract: affects the calling thread alone; destroy it on the thread that made it.

#ifndef BASIN_KERNELS_FLOAT_ENVIRONMENT_H_
#define BASIN_KERNELS_FLOAT_ENVIRONMENT_H_

#include <cstdint>

namespace basin::kernels {

// Sets round to nearest, ties to even, with subnormals kept on input and output and exceptions
// masked; puts back what was there on destruction. Costs some ten cycles.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  uint64_t saved_;  // The control register as it was.
};

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FLOAT_ENVIRONMENT_H_
