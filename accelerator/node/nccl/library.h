// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// NCCL, found and loaded at run time. Nothing is linked, and nothing is loaded before Load is
// called, so that a machine without NCCL, or without a GPU, starts as before.
//
// Failure: NOT_FOUND if there is no library, FAILED_PRECONDITION if it is too old or lacks a
// function. The message names every place that was searched and says what to install.
// Thread contract: safe from any thread.

#ifndef BASIN_ACCELERATOR_NODE_NCCL_LIBRARY_H_
#define BASIN_ACCELERATOR_NODE_NCCL_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "accelerator/node/nccl/abi.h"

namespace basin::accelerator::nccl {

struct LibrarySearch {
  // The only file that is tried, if not empty. BASIN_NCCL_LIBRARY.
  std::string path;
  // What the dynamic linker is asked for. A library of this name that the process has already
  // loaded, as PyTorch does, is used before any other, so that a process has one NCCL.
  std::string name = "libnccl.so.2";
  // Folders of Python packages, in which nvidia-nccl-cu13 and nvidia-nccl-cu12 install the library.
  // Tried when the linker finds none.
  std::vector<std::string> package_folders;
};

// The package folder that this code itself was installed in with a wheel: the parent of the folder
// that its shared library is in. Empty where that cannot be found out.
std::string OwnPackageFolder();

// "2.18.3" for 21803.
std::string VersionText(int version);

class Library {
 public:
  // The library stays loaded until the process ends, because NCCL has threads of its own.
  static absl::StatusOr<std::shared_ptr<const Library>> Load(const LibrarySearch& search);

  const Functions& functions() const { return functions_; }
  const std::string& path() const { return path_; }
  int version() const { return version_; }

  // A sentence about a call that did not succeed: the call, NCCL's text, and the last error of the
  // process.
  std::string Describe(const char* call, Code code) const;

 private:
  Library() = default;

  Functions functions_ = {};
  std::string path_;  // The file that the linker has loaded.
  int version_ = 0;
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_ACCELERATOR_NODE_NCCL_LIBRARY_H_
