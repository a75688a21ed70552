// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin {
namespace {

// The wait for the next try when there are no descriptors. Some may have been closed by then.
constexpr int kRetryMilliseconds = 100;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  return Addresses(list);
}

// Chooses a port if the address has none; stores it in `port`.
void SetPort(sockaddr* address, int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
  }
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// A socket that listens there, or -1 with errno. Its options also apply to its connections.
int Listen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (address.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool IsWildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address,
                                                         std::atomic<uint64_t>& failures,
                                                         uint32_t kept) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return absl::UnavailableError("the port is missing; write host:port");
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const bool everywhere = IsWildcard(host);
  absl::StatusOr<Addresses> found = Resolve(everywhere ? "::" : host, address.substr(colon + 1));
  if (!found.ok()) return found.status();

  std::unique_ptr<Listener> listener(new Listener(failures, kept));
  int error = 0;
  const auto listen_on = [&](const addrinfo& candidate) {
    if (listener->port_ != 0) SetPort(candidate.ai_addr, listener->port_);
    const int fd = Listen(candidate);
    if (fd < 0) {
      // One of a name's addresses may be of a kind that the machine does not have.
      if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) error = errno;
      return;
    }
    listener->sockets_.push_back(fd);
    listener->port_ = PortOf(fd);
  };
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) listen_on(*one);
  if (everywhere && error == 0 && listener->sockets_.empty()) {  // There is no IPv6.
    found = Resolve("0.0.0.0", address.substr(colon + 1));
    if (found.ok()) listen_on(**found);
  }
  if (error != 0) return absl::UnavailableError(std::strerror(error));
  if (listener->sockets_.empty())
    return absl::UnavailableError("it is not an address of this host");
  listener->stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (listener->stop_ < 0) return absl::UnavailableError(std::strerror(errno));
  return listener;
}

Listener::~Listener() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  for (const int socket : sockets_) close(socket);
  if (stop_ >= 0) close(stop_);
}

void Listener::Start(std::function<void(int fd)> take, std::function<void(bool waits)> wait,
                     std::function<size_t()> promised) {
  take_ = std::move(take);
  wait_ = std::move(wait);
  promised_ = std::move(promised);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-listener");
    Run();
  });
}

void Listener::Run() {
  std::vector<pollfd> waits = {{stop_, POLLIN, 0}};
  for (const int socket : sockets_) waits.push_back({socket, POLLIN, 0});
  bool full = false;
  while (true) {
    // While there is no descriptor, wait only for the end, with a timeout.
    poll(waits.data(), full ? 1 : waits.size(), full ? kRetryMilliseconds : -1);
    if (waits[0].revents != 0) return;
    const bool was_full = std::exchange(full, false);
    for (size_t i = 1; i < waits.size(); ++i) {
      if (was_full || waits[i].revents != 0) full |= !AcceptFrom(waits[i].fd);
    }
    if (full != was_full && wait_ != nullptr) wait_(full);
  }
}

bool Listener::HasDescriptor() const {
  if (kept_ == 0) return true;
  // The kernel gives out the lowest that is free.
  const int lowest = fcntl(stop_, F_DUPFD_CLOEXEC, 0);
  if (lowest < 0) return false;
  close(lowest);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t kept = std::min<rlim_t>(kept_, limit.rlim_cur / 4);
  const rlim_t promised = promised_ == nullptr ? 0 : promised_();
  return static_cast<rlim_t>(lowest) + promised + kept < limit.rlim_cur;
}

bool Listener::AcceptFrom(int socket) {
  if (!HasDescriptor()) {
    // Whether a connection waits for it.
    pollfd wait = {socket, POLLIN, 0};
    if (poll(&wait, 1, 0) == 0) return true;
    ++failures_;
    return false;
  }
  const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    take_(fd);
    return true;
  }
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (full) ++failures_;
  return !full;
}

}  // namespace basin
