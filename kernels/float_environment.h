// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The floating-point mode that the arithmetic contract assumes. Each thread has its own mode, which
// any code may have changed (a library built with -ffast-math does so when it is loaded), so code
// that computes by the contract holds one of these meanwhile.
//
// Thread contract: affects the calling thread alone; destroy it on the thread that made it.

#ifndef BASIN_KERNELS_FLOAT_ENVIRONMENT_H_
#define BASIN_KERNELS_FLOAT_ENVIRONMENT_H_

#include <cstdint>

namespace basin::kernels {

// Sets round to nearest, ties to even, with subnormals kept on input and output and exceptions
// masked; restores the old mode on destruction. Costs about ten cycles.
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
