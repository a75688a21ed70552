// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shared library that is not NCCL, although it has one of its names.

#include "accelerator/node/nccl/abi.h"

extern "C" basin::accelerator::nccl::Code ncclGetVersion(int* version) {
  *version = 23203;
  return basin::accelerator::nccl::kSuccess;
}
