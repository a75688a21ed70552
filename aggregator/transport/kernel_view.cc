// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/kernel_view.h"

// Not <netinet/tcp.h>, whose tcp_info lacks the byte counters.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace basin::aggregator {

KernelView KernelViewOf(int descriptor) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  constexpr uint8_t kEstablished = 1;
  KernelView view;
  view.received = info.tcpi_bytes_received;
  view.sent = info.tcpi_bytes_acked;
  view.ended = info.tcpi_state != kEstablished;
  view.unheard =
      std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
  view.round_trip = std::chrono::milliseconds(info.tcpi_rtt / 1000);
  view.packets = info.tcpi_segs_out;
  view.probes = info.tcpi_probes;
  return view;
}

void ProbeWhenIdle(int descriptor) {
  const int on = 1;
  const int second = 1;
  // The kernel's largest number: gRPC's keepalive ends the connection, as the operator has set it.
  const int most = 127;
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
  // A few packets that are lost are sent again at a steady pace for six times, not ever more
  // seldom.
  setsockopt(descriptor, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
}

void ProbeNow(int descriptor) {
  // The kernel looks at once whether the time that is set has passed.
  const int second = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
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
