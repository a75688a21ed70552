// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory of a device that two processes on one machine share. One of them creates it and writes to
// it; the other one opens the descriptor that it got from the first, and its device reads it where
// it lies.
//
// Ownership: shared; the memory is unmapped with the last reference, and freed with the last
// process that has it, so it outlives a process that is killed. Thread contract: size and place are
// constant; the users define when which thread reads and writes which bytes.
// Failure: a Failure of code kDevice; the bytes then travel in memory of the host.

#ifndef BASIN_RUNTIME_DEVICE_SEGMENT_H_
#define BASIN_RUNTIME_DEVICE_SEGMENT_H_

#include <cstdint>
#include <optional>

#include "kernels/failure.h"

namespace basin {

class DeviceSegment {
 public:
  virtual ~DeviceSegment() = default;
  DeviceSegment(const DeviceSegment&) = delete;
  DeviceSegment& operator=(const DeviceSegment&) = delete;

  // An address of the device, which the host cannot use.
  char* data() const { return data_; }
  uint64_t size() const { return size_; }
  // To be passed to another process; -1 if it was opened.
  int descriptor() const { return descriptor_; }

  // Copies bytes to the host, and returns when they are there. REQUIRES: they lie in the segment.
  virtual std::optional<kernels::Failure> Read(void* host, uint64_t offset,
                                               uint64_t size) const = 0;

 protected:
  DeviceSegment(char* data, uint64_t size, int descriptor)
      : data_(data), size_(size), descriptor_(descriptor) {}

 private:
  char* const data_;
  const uint64_t size_;
  const int descriptor_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_DEVICE_SEGMENT_H_
