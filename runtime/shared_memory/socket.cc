// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/shared_memory/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace basin {
namespace {

constexpr int kBacklog = 256;

struct Address {
  sockaddr_un address = {};
  socklen_t size = 0;
};

Address AddressOf(const std::string& name) {
  Address out;
  out.address.sun_family = AF_UNIX;
  std::memcpy(out.address.sun_path, name.data(), name.size());
  if (name[0] == '@') out.address.sun_path[0] = '\0';
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                    (name[0] == '@' ? 0 : 1));
  return out;
}

absl::Status Failed(const std::string& name, const char* what) {
  return absl::UnavailableError(
      absl::StrCat("The local socket ", name, ": ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<int> NewSocket(const std::string& name, int flags) {
  if (absl::Status status = CheckLocalName(name); !status.ok()) return status;
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
  if (socket < 0) return Failed(name, "socket");
  return socket;
}

}  // namespace

absl::Status CheckLocalName(const std::string& name) {
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (name.size() < 2 || name.size() > kMost || (name[0] != '@' && name[0] != '/') ||
      name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a local socket is an absolute path of at most ", kMost, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ListenLocal(const std::string& name) {
  absl::StatusOr<int> socket = NewSocket(name, SOCK_NONBLOCK);
  if (!socket.ok()) return socket;
  const Address address = AddressOf(name);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.address);
  int bound = bind(*socket, generic, address.size);
  if (bound != 0 && errno == EADDRINUSE && name[0] == '/' && SocketFileAt(name).has_value()) {
    // Only a socket without a listener refuses; one that is busy, or of another kind, is in use.
    errno = 0;
    const absl::StatusOr<int> used = ConnectLocal(name);
    const bool left_behind = !used.ok() && errno == ECONNREFUSED;
    if (used.ok()) close(*used);
    errno = EADDRINUSE;
    if (left_behind) {
      unlink(name.c_str());
      bound = bind(*socket, generic, address.size);
    }
  }
  if (bound == 0 && listen(*socket, kBacklog) == 0) return socket;
  const bool directory_missing = errno == ENOENT;
  const absl::Status failed = Failed(name, "cannot listen");
  close(*socket);
  if (directory_missing) return absl::NotFoundError(failed.message());
  return failed;
}

std::optional<SocketFile> SocketFileAt(const std::string& name) {
  struct stat status = {};
  if (name[0] != '/' || lstat(name.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) {
    return std::nullopt;
  }
  return SocketFile{status.st_dev, status.st_ino};
}

void RemoveSocket(const std::string& name, const std::optional<SocketFile>& file) {
  const std::optional<SocketFile> now = SocketFileAt(name);
  if (!file.has_value() || !now.has_value()) return;
  if (now->device == file->device && now->number == file->number) unlink(name.c_str());
}

absl::StatusOr<int> ConnectLocal(const std::string& name) {
  absl::StatusOr<int> socket = NewSocket(name, SOCK_NONBLOCK);
  if (!socket.ok()) return socket;
  const Address address = AddressOf(name);
  if (connect(*socket, reinterpret_cast<const sockaddr*>(&address.address), address.size) == 0 &&
      fcntl(*socket, F_SETFL, 0) == 0) {
    return socket;
  }
  const int why = errno;
  const absl::Status failed = Failed(name, "cannot connect");
  close(*socket);
  errno = why;
  return failed;
}

absl::Status SendMessage(int socket, std::string_view bytes, int descriptor) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size())) {
    return absl::OkStatus();
  }
  const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
  const std::string text = absl::StrCat("Shared memory: sending: ", std::strerror(errno));
  return full ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

}  // namespace basin
