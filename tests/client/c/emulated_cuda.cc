// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/c/emulated_cuda.h"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "accelerator/device/cuda_device.h"
#include "tests/accelerator/device/emulated_device.h"

namespace {

using basin::accelerator::EmulatedStream;
using basin::accelerator::FaultPlan;
using basin::accelerator::Memory;

// The machine, with two devices.
struct EmulatedMachine {
  std::mutex mutex;
  std::array<std::shared_ptr<FaultPlan>, 2> devices = {std::make_shared<FaultPlan>(),
                                                       std::make_shared<FaultPlan>()};
  std::map<void*, Memory> memory;  // The trainer's.
  bool any_memory = false;
};

EmulatedMachine& TheMachine() {
  static auto* const machine = new EmulatedMachine();
  return *machine;
}

EmulatedStream* StreamAt(void* stream) { return static_cast<EmulatedStream*>(stream); }

}  // namespace

namespace basin::accelerator {

// Instead of that of the CUDA runtime.
Result<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  EmulatedMachine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  if (index < 0 || static_cast<size_t>(index) >= machine.devices.size()) {
    return Failure{FailureCode::kDevice,
                   "CUDA device " + std::to_string(index) + ": there are 2 devices"};
  }
  return MakeEmulatedDevice(machine.devices[index], {index, machine.any_memory});
}

}  // namespace basin::accelerator

extern "C" {

void* basin_emulated_allocate(int32_t device, size_t bytes) {
  EmulatedMachine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  Memory memory = basin::accelerator::AllocateForTrainer(machine.devices.at(device), bytes);
  void* const data = memory.get();
  machine.memory.emplace(data, std::move(memory));
  return data;
}

void basin_emulated_free(void* memory) {
  EmulatedMachine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  machine.memory.erase(memory);
}

void basin_emulated_any_memory(int32_t any) {
  EmulatedMachine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  machine.any_memory = any != 0;
}

void* basin_emulated_stream(int32_t device) { return new EmulatedStream(device); }

void basin_emulated_stream_free(void* stream) { delete StreamAt(stream); }

void basin_emulated_add(void* stream, void (*work)(void* user), void* user) {
  StreamAt(stream)->Add([work, user] { work(user); });
}

void basin_emulated_copy(void* stream, void* to, const void* from, size_t bytes) {
  StreamAt(stream)->Add([=] { std::memcpy(to, from, bytes); });
}

void basin_emulated_hold(void* stream, int32_t held) {
  held != 0 ? StreamAt(stream)->Hold() : StreamAt(stream)->Release();
}

void basin_emulated_synchronize(void* stream) { StreamAt(stream)->Synchronize(); }

void basin_emulated_capture(void* stream, int32_t captured) {
  StreamAt(stream)->captured = captured != 0;
}

int64_t basin_emulated_calls(int32_t device) { return TheMachine().devices.at(device)->calls; }

void basin_emulated_fail(int32_t device, int64_t call) {
  TheMachine().devices.at(device)->failing_call = call;
}

void basin_emulated_fail_from(int32_t device, int64_t call) {
  TheMachine().devices.at(device)->failing_from = call;
}

}  // extern "C"
