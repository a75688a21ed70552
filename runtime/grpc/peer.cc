// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace basin {
namespace {

// gRPC escapes these in the address of a name: "%5Bfe80::1%252%5D".
constexpr char kOpen[] = "%5B";
constexpr char kClose[] = "%5D";
constexpr char kScope[] = "%25";

std::string TextOf(const in6_addr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &address, text, sizeof text);
  }
  return text;
}

}  // namespace

std::string PeerOf(int descriptor) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer);
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    return absl::StrCat("ipv4:", text, ":", ntohs(address.sin_port));
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(peer);
  const std::string text = TextOf(address.sin6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    return absl::StrCat("ipv4:", text, ":", ntohs(address.sin6_port));
  }
  const std::string scope =
      address.sin6_scope_id == 0 ? "" : absl::StrCat(kScope, address.sin6_scope_id);
  return absl::StrCat("ipv6:", kOpen, text, scope, kClose, ":", ntohs(address.sin6_port));
}

std::string AddressIn(const std::string& peer) {
  const size_t begin = peer.find(':') + 1;
  const size_t end = peer.rfind(':');
  if (end == std::string::npos || end < begin) return peer;
  std::string address = peer.substr(begin, end - begin);
  const size_t size = address.size();
  const bool in_brackets =
      size > 6 && address.compare(0, 3, kOpen) == 0 && address.compare(size - 3, 3, kClose) == 0;
  if (in_brackets) address = address.substr(3, size - 6);
  const size_t scope = address.find(kScope);
  return scope == std::string::npos ? address : address.replace(scope, 3, "%");
}

std::string AddressOf(int descriptor) {
  const std::string peer = PeerOf(descriptor);
  return peer.empty() ? "unknown" : AddressIn(peer);
}

std::string SourceOf(const std::string& address) {
  in6_addr bytes = {};
  if (inet_pton(AF_INET6, address.c_str(), &bytes) != 1) return address;  // Also with a scope.
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) return TextOf(bytes);
  if (IN6_IS_ADDR_LINKLOCAL(&bytes) || IN6_IS_ADDR_LOOPBACK(&bytes)) return address;
  std::fill(bytes.s6_addr + 8, bytes.s6_addr + 16, uint8_t{0});
  return TextOf(bytes) + "/64";
}

}  // namespace basin
