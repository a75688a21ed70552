// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A directory for one socket that only this user can enter, in TMPDIR or /tmp. Its process holds a
// lock on it (flock) from before the socket exists; the kernel releases the lock with the process,
// however that ends. So a directory with a socket and without a lock has no owner any more.
//
// Thread contract: one thread at a time. Failure: a status with a sentence.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_PRIVATE_DIRECTORY_H_
#define BASIN_RUNTIME_SHARED_MEMORY_PRIVATE_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace basin {

class PrivateDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<PrivateDirectory>> Make();
  // Removes it. REQUIRES: the socket has been removed.
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

  // Where the socket is to be.
  std::string SocketName() const;

  // Removes the directories that processes of this user left behind, as one does that is killed:
  // those with the expected name, owner, mode and one socket in them at which no process listens.
  // Returns how many it has removed. What it cannot examine stays.
  static int RemoveAbandoned();

 private:
  PrivateDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // A descriptor of the directory. Negative: it cannot be opened.
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_PRIVATE_DIRECTORY_H_
