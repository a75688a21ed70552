// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/kernel_view.h"

// Not <netinet/tcp.h>, whose tcp_info lacks the byte counters.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace basin::aggregator {

KernelView KernelViewOf(int descriptor) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  constexpr uint8_t kEstablished = 1;
  return {info.tcpi_bytes_received, info.tcpi_bytes_acked, info.tcpi_state != kEstablished};
}

void CutOff(int descriptor) {
  const sockaddr nobody = {AF_UNSPEC, {}};
  if (connect(descriptor, &nobody, sizeof nobody) == 0) return;
  // This system knows no such reset. At least the kernel does not keep it once gRPC closes it.
  const linger reset = {1, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  shutdown(descriptor, SHUT_RDWR);
}

}  // namespace basin::aggregator
