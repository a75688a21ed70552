// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A connection of TCP as the kernel sees it, beside gRPC, which owns it.
//
// Thread contract: functions. Failure: none; a descriptor that is no connection of TCP has ended.

#ifndef BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_
#define BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_

#include <chrono>
#include <cstdint>

namespace basin::aggregator {

struct KernelView {
  uint64_t received = 0;  // Bytes; gRPC may not have read all of them yet.
  uint64_t sent = 0;      // Bytes that the peer has acknowledged.
  bool ended = true;      // Nothing more will come.
  // How long no packet has come from the other end. Where the kernel does not say (gVisor), it
  // seems to hear the other end all the time.
  std::chrono::milliseconds unheard{0};
  std::chrono::milliseconds round_trip{0};
  uint32_t packets = 0;  // That were sent, also again, and probes; modulo 2^32.
  uint32_t probes = 0;   // That were not answered.
};

KernelView KernelViewOf(int descriptor);

// Has the kernel probe the other end when nothing has come from it for a second, and then every
// second. The other kernel answers, even if its process is stopped.
void ProbeWhenIdle(int descriptor);
// Has it send one probe more, if it has heard nothing for a second. Data on their way are probes
// themselves, so that it then sends none.
void ProbeNow(int descriptor);

// Resets a connection. What gRPC has not read yet is dropped, which it would read after an orderly
// end: a few megabytes, with tens of thousands of calls.
void CutOff(int descriptor);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_
