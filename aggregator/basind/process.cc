// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/process.h"

#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "accelerator/device/cuda_device.h"
#include "aggregator/text/address.h"

namespace basin::aggregator {

// 32 MiB is the largest mapping threshold that glibc accepts.
void KeepMemoryOfMessages() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

void WriteToStandardOutput(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = write(STDOUT_FILENO, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // The reader of the log has gone; that is no reason to end.
    lines.remove_prefix(static_cast<size_t>(written));
  }
}

void Report(Log& log, LogLevel level, const char* event, const std::string& reason) {
  LogLine line;
  line.level = level;
  line.event = event;
  line.reason = reason;
  log.Write(line);
}

DeviceSource CudaDevices() {
  return {accelerator::CountCudaDevices, accelerator::OpenCudaDevice, MeasureReduction,
          accelerator::LeaveCudaDevices};
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "";
  return name;
}

std::string WithPort(const std::string& text, int port) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  return address.ok() ? ToString({address->host, static_cast<uint16_t>(port)}) : text;
}

}  // namespace basin::aggregator
