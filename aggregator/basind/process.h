// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the long-running commands of basind share.
//
// Thread contract: functions; KeepMemoryOfMessages while there is one thread. Failure: none.

#ifndef BASIN_AGGREGATOR_BASIND_PROCESS_H_
#define BASIN_AGGREGATOR_BASIND_PROCESS_H_

#include <string>
#include <string_view>

#include "aggregator/engine/choose_device.h"
#include "aggregator/telemetry/log.h"

namespace basin::aggregator {

// Messages have megabytes. glibc would return their memory to the kernel each time, and the page
// faults would be more than half of the cost of receiving.
void KeepMemoryOfMessages();

// For a Log.
void WriteToStandardOutput(std::string_view lines);

void Report(Log& log, LogLevel level, const char* event, const std::string& reason);

DeviceSource CudaDevices();

// Empty if it cannot be had.
std::string HostName();

// The address with this port.
std::string WithPort(const std::string& text, int port);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_PROCESS_H_
