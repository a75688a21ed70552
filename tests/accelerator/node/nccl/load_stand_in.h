// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Thread contract: a function that any thread may call.

#ifndef BASIN_TESTS_ACCELERATOR_NODE_NCCL_LOAD_STAND_IN_H_
#define BASIN_TESTS_ACCELERATOR_NODE_NCCL_LOAD_STAND_IN_H_

#include <dlfcn.h>

#include "gtest/gtest.h"
#include "tests/accelerator/node/nccl/stand_in_nccl.h"

namespace basin::accelerator::nccl {

// The control of the library that stands in for NCCL, which this loads from `path`.
inline const StandInControl* LoadStandIn(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  using Get = const StandInControl* (*)();
  return reinterpret_cast<Get>(dlsym(handle, "standInNcclControl"))();
}

}  // namespace basin::accelerator::nccl

#endif  // BASIN_TESTS_ACCELERATOR_NODE_NCCL_LOAD_STAND_IN_H_
