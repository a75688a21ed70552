// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A connection of TCP as the kernel sees it, beside gRPC, which owns it.
//
// Thread contract: functions. Failure: none; a descriptor that is no connection of TCP has ended.

#ifndef BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_
#define BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_

#include <cstdint>

namespace basin::aggregator {

struct KernelView {
  uint64_t received = 0;  // Bytes; gRPC may not have read all of them yet.
  uint64_t sent = 0;      // Bytes that the peer has acknowledged.
  bool ended = true;      // Nothing more will come.
};

KernelView KernelViewOf(int descriptor);

// Resets a connection. What gRPC has not read yet is dropped, which it would read after an orderly
// end: a few megabytes, with tens of thousands of calls.
void CutOff(int descriptor);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_KERNEL_VIEW_H_
