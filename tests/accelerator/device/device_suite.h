// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What holds for every Device. A backend joins with a source that has a MakeTrainer, and is linked
// with device_suite.cc.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_DEVICE_SUITE_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_DEVICE_SUITE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "accelerator/device/device.h"

namespace basin::accelerator {

// A trainer that uses a device, with one stream.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Another object for the same device.
  virtual std::unique_ptr<Device> Open() = 0;

  virtual Stream stream() = 0;
  // What the stream is given until Release runs after that.
  virtual void Hold() = 0;
  virtual void Release() = 0;
  // Add work to the stream. Host memory is pinned.
  virtual void Fill(void* device, unsigned char byte, size_t size) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t size) = 0;
  // Returns when the stream has run everything.
  virtual void Synchronize() = 0;
  // Captures the stream into a graph. The end fails the test if the capture was disturbed.
  virtual void BeginCapture() = 0;
  virtual void EndCapture() = 0;
};

// Null if this machine has no such device; `why_not` then says why. Fails the test if there should
// be one.
std::unique_ptr<Trainer> MakeTrainer(std::string* why_not);

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_DEVICE_SUITE_H_
