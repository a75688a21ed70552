// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/runtime_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace basin::kernels::cuda {
namespace {

// Where the package nvidia-cuda-runtime has it, in the folder of all packages.
constexpr char kFolderInPackages[] = "/nvidia/cu13/lib/";

// The file that this code was loaded from; empty if that is unknown.
std::string OwnPath() {
  Dl_info info = {};
  const bool known = dladdr(reinterpret_cast<const void*>(&OwnPath), &info) != 0;
  if (known && info.dli_fname != nullptr && info.dli_fname[0] == '/') return info.dli_fname;
  // The linker knows a program only by the name that it was started with.
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace

RuntimeLibrary OpenRuntimeLibrary(const std::string& name) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  RuntimeLibrary library;
  library.handle = dlopen(name.c_str(), kFlags | RTLD_NOLOAD);
  if (library.handle != nullptr) return library;
  library.handle = dlopen(name.c_str(), kFlags);
  if (library.handle != nullptr) return library;
  const char* const error = dlerror();
  library.error = name + " was not found (" + (error == nullptr ? "no reason is known" : error);
  std::string folder = OwnPath();
  for (size_t end = folder.rfind('/'); end != std::string::npos; end = folder.rfind('/')) {
    folder.resize(end);
    std::string file = folder;
    file.append(kFolderInPackages).append(name);
    library.handle = dlopen(file.c_str(), kFlags);
    if (library.handle != nullptr) return library;
  }
  library.error +=
      "). It comes with PyTorch for CUDA 13, with the Python package nvidia-cuda-runtime and with "
      "the CUDA toolkit";
  return library;
}

}  // namespace basin::kernels::cuda
