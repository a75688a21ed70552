// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Lets connections of a test come from addresses of IPv6 that this machine does not have. A test
// that is linked with this file connects from one of these:
//   127.1.X.Y  seems to be 2001:db8:1:X::Y
//   127.2.X.Y  seems to be fe80::Y, in the scope X
//   127.3.X.Y  seems to be ::ffff:10.3.X.Y

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

extern "C" int getpeername(int descriptor, sockaddr* __restrict address,
                           socklen_t* __restrict length) noexcept {
  const socklen_t room = *length;
  if (syscall(SYS_getpeername, descriptor, address, length) != 0) return -1;
  sockaddr_in real = {};
  if (address->sa_family != AF_INET || room < sizeof(sockaddr_in6)) return 0;
  memcpy(&real, address, sizeof real);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&real.sin_addr);
  if (bytes[0] != 127 || bytes[1] < 1 || bytes[1] > 3) return 0;
  sockaddr_in6 peer = {};
  peer.sin6_family = AF_INET6;
  peer.sin6_port = real.sin_port;
  if (bytes[1] == 2) peer.sin6_scope_id = bytes[2];
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes[1] == 1) {
    snprintf(text, sizeof text, "2001:db8:1:%x::%x", bytes[2], bytes[3]);
  } else if (bytes[1] == 2) {
    snprintf(text, sizeof text, "fe80::%x", bytes[3]);
  } else {
    snprintf(text, sizeof text, "::ffff:10.3.%d.%d", bytes[2], bytes[3]);
  }
  inet_pton(AF_INET6, text, &peer.sin6_addr);
  memcpy(address, &peer, sizeof peer);
  *length = sizeof peer;
  return 0;
}
