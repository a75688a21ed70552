// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds the CUDA runtime, libcudart.so.13, when it is first needed. A build that loads it contains
// no code of NVIDIA's, and runs where there is none.
//
// Thread contract: pure functions of the files of the machine and of the libraries of the process.

#ifndef BASIN_KERNELS_CUDA_RUNTIME_LIBRARY_H_
#define BASIN_KERNELS_CUDA_RUNTIME_LIBRARY_H_

#include <string>

namespace basin::kernels::cuda {

struct RuntimeLibrary {
  void* handle = nullptr;  // From dlopen, never closed; null if it was not found.
  std::string error;       // Then: where it was searched, and what to install.
};

// Takes the first of: the library of this name that the process has loaded (PyTorch loads one), the
// one that the dynamic linker finds, and the one of NVIDIA's Python package in a folder above the
// file that contains this code.
RuntimeLibrary OpenRuntimeLibrary(const std::string& name);

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_RUNTIME_LIBRARY_H_
