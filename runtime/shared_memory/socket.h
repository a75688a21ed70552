// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The Unix socket over which processes on one machine pass segments. Its name is a path, or `@` and
// a name that only this machine (strictly: this network namespace) knows and that needs no file.
//
// Thread contract: pure but for the system. Failure: a status with a sentence.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_SOCKET_H_
#define BASIN_RUNTIME_SHARED_MEMORY_SOCKET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace basin {

// A descriptor that does not block; a socket that an earlier process has left at the path is
// replaced. NOT_FOUND: the directory of the path does not exist.
absl::StatusOr<int> ListenLocal(const std::string& name);
// Which file is the socket at the path; absent: there is none, or the name is not a path.
struct SocketFile {
  uint64_t device = 0;
  uint64_t number = 0;
};
std::optional<SocketFile> SocketFileAt(const std::string& name);
// Removes the socket at the path, unless another one was put there.
void RemoveSocket(const std::string& name, const std::optional<SocketFile>& file);
// Returns a descriptor that blocks. Does not wait: UNAVAILABLE when no process listens there.
absl::StatusOr<int> ConnectLocal(const std::string& name);
// Sends the bytes as one message, with a descriptor unless it is negative. Does not wait:
// RESOURCE_EXHAUSTED while the peer has too many messages to read, UNAVAILABLE when it has gone.
absl::Status SendMessage(int socket, std::string_view bytes, int descriptor);
// INVALID_ARGUMENT for a name that no socket can have.
absl::Status CheckLocalName(const std::string& name);

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_SOCKET_H_
