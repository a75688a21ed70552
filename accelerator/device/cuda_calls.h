// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the CUDA runtime is called: its errors as Failures, the current device of a thread, captures,
// and waits that end.
//
// Thread contract: CudaCalls from any thread; Arrivals from one thread at a time, and a callback of
// the runtime; the others are plain values and pure functions.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_CALLS_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_CALLS_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "accelerator/device/memory.h"
#include "kernels/failure.h"

namespace basin::accelerator {

// Nothing if the call succeeded, else a sentence with the device, the call and the text of the
// runtime.
inline std::optional<Failure> Check(cudaError_t error, const std::string& device,
                                    const char* call) {
  if (error == cudaSuccess) return std::nullopt;
  // Clears an error that does not persist, so that later calls report only their own.
  cudaGetLastError();
  return Failure{FailureCode::kDevice, device + ": " + call +
                                           " failed: " + cudaGetErrorString(error) + " (" +
                                           cudaGetErrorName(error) + ")"};
}

// Shared by a device, its queues and its memory: whether work on it has not ended.
using Hangs = std::shared_ptr<std::atomic<bool>>;

inline std::optional<Failure> CheckHangs(const std::atomic<bool>& hangs,
                                         const std::string& device) {
  if (!hangs) return std::nullopt;
  return Failure{FailureCode::kDevice, device + ": work has not ended within " +
                                           std::to_string(kPatience.count()) + " s"};
}

// Makes a device current on this thread, and puts back which one was: the thread is the caller's.
//
// It sets the device also where it is current already: on a thread that has made no call yet,
// device 0 is current to the runtime, but the functions of the driver have no context.
//
// It puts back only a device on which this process has a context already, because cudaSetDevice
// creates one. Device 0 is current on a thread that has never chosen a device, so that each process
// of a machine would otherwise take memory of that GPU, whichever GPU it uses. A thread without
// such a context keeps the new device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

// While a thread of the trainer captures a graph, CUDA refuses most calls of all other threads, and
// the capture fails with them. None of the calls here concern the graph.
//
// REQUIRES: our device is current. The runtime creates a context on the current device to change
// the mode.
class NoPartOfCaptures {
 public:
  NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  NoPartOfCaptures(const NoPartOfCaptures&) = delete;
  NoPartOfCaptures& operator=(const NoPartOfCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A device as its queues, events and memory see it: how the runtime is called for it.
struct CudaCalls {
  std::string name;
  int index = 0;
  Hangs hangs = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> impatient{false};

  // Returns what `make` does, called with the device current, or why it was not called.
  template <typename Make>
  auto Use(Make make) const -> decltype(make()) {
    if (auto failure = CheckHangs(*hangs, name)) return *std::move(failure);
    const CurrentDevice current(index);
    if (auto failure = Check(current.error(), name, "cudaSetDevice")) return *std::move(failure);
    const NoPartOfCaptures mode;
    return make();
  }
  template <typename Function>
  std::optional<Failure> Call(const char* call, Function function) const {
    return Use([&] { return Check(function(), name, call); });
  }
};

using CudaCallsPtr = std::shared_ptr<CudaCalls>;

// The end of the work that was added to a stream so far, as a callback of the runtime reports it:
// cudaStreamSynchronize would wait forever for a device that hangs.
class Arrivals {
 public:
  // A callback of the runtime may come after the end of this.
  Arrivals() : shared_(std::make_unique<Shared>()) {}

  // The work may still end, and arrive.
  void Leak() { (void)shared_.release(); }

  // Asks for an arrival when the work that was added to the stream so far has ended.
  cudaError_t Add(cudaStream_t stream) {
    const cudaError_t error = cudaLaunchHostFunc(stream, Arrive, shared_.get());
    if (error == cudaSuccess) ++added_;
    return error;
  }

  // How many were asked for.
  uint64_t added() const { return added_; }

  // Waits until all work of the stream has ended, and sets `hangs` when that takes longer than
  // kPatience. The time counts while not `patient`, which is asked now and then.
  template <typename Patient>
  cudaError_t AwaitAll(cudaStream_t stream, std::atomic<bool>* hangs, Patient patient) {
    constexpr uint64_t kNever = UINT64_MAX;
    // The work uses memory that is given to others afterwards. So a callback that the runtime does
    // not take must not end the wait: the looks at the stream end it then.
    const bool added = Add(stream) == cudaSuccess;
    if (!added) cudaGetLastError();
    return AwaitFirst(added ? added_ : kNever, stream, hangs, patient);
  }
  // The same for the work before the first `count` arrivals. After an error of the device no
  // callback comes, so the state of the stream is checked as well.
  template <typename Patient>
  cudaError_t AwaitFirst(uint64_t count, cudaStream_t stream, std::atomic<bool>* hangs,
                         Patient patient) {
    constexpr std::chrono::milliseconds kLook{50};
    auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::unique_lock<std::mutex> lock(shared_->mutex);
    while (!shared_->changed.wait_for(lock, kLook, [&] { return shared_->count >= count; })) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state != cudaErrorNotReady) return state;
      cudaGetLastError();  // "Not ready" is no error, but is kept like one.
      const auto now = std::chrono::steady_clock::now();
      if (patient()) deadline = now + kPatience;
      if (now > deadline) *hangs = true;
      if (*hangs) return cudaSuccess;
    }
    return cudaSuccess;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t count = 0;  // Guarded by mutex.
  };

  static void Arrive(void* shared) {
    auto* const arrived = static_cast<Shared*>(shared);
    const std::lock_guard<std::mutex> lock(arrived->mutex);
    ++arrived->count;
    arrived->changed.notify_all();
  }

  std::unique_ptr<Shared> shared_;
  uint64_t added_ = 0;  // Arrivals that are due.
};

// "13.0" for 13000.
std::string CudaVersion(int version);

// Whether this process has a primary context on the device. To ask creates none.
bool HasContext(int index);

// "CUDA device 0 (NVIDIA H200)". Fails if there is no such device.
Result<std::string> NameOfCudaDevice(int index);

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_CALLS_H_
