// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/reach.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

absl::Status SystemError(int number) { return absl::UnavailableError(std::strerror(number)); }

// Waits for a connection in progress, and returns its outcome.
absl::Status Await(int socket, absl::Duration timeout) {
  pollfd waiting = {socket, POLLOUT, 0};
  const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (ready < 0) return SystemError(errno);
  if (ready == 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return SystemError(errno);
  return error == 0 ? absl::OkStatus() : SystemError(error);
}

PacketSize SizeOn(int socket, sa_family_t family) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  constexpr uint32_t kTcp = 20;
  constexpr uint32_t kTimestamps = 12;
  const uint32_t headers = (family == AF_INET6 ? 40 : 20) + kTcp +
                           ((info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0 ? kTimestamps : 0);
  return {info.tcpi_pmtu, info.tcpi_snd_mss + headers};
}

}  // namespace

std::string HostOf(const SocketAddress& address) {
  char host[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address.bytes), address.size, host, sizeof(host),
              nullptr, 0, NI_NUMERICHOST);
  return host;
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &list);
  if (failed != 0) return absl::UnavailableError(gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, &freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* next = list; next != nullptr; next = next->ai_next) {
    SocketAddress& one = found.emplace_back();
    std::memcpy(&one.bytes, next->ai_addr, next->ai_addrlen);
    one.size = next->ai_addrlen;
  }
  return found;
}

absl::StatusOr<PacketSize> Connect(const SocketAddress& address, absl::Duration timeout) {
  const int opened = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (opened < 0) return SystemError(errno);
  absl::Status connected;
  if (connect(opened, reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
    connected = errno == EINPROGRESS ? Await(opened, timeout) : SystemError(errno);
  }
  const PacketSize size = connected.ok() ? SizeOn(opened, address.bytes.ss_family) : PacketSize{};
  close(opened);
  if (!connected.ok()) return connected;
  return size;
}

}  // namespace basin::aggregator
