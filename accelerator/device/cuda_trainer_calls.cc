// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_trainer_calls.h"

namespace basin::accelerator {
namespace {

// An event cannot be recorded on a stream of another device.
Failure OfStream(Failure failure, cudaError_t error) {
  const bool foreign =
      error == cudaErrorInvalidResourceHandle || error == cudaErrorContextIsDestroyed;
  if (foreign) failure.code = FailureCode::kInvalidArgument;
  return failure;
}

}  // namespace

Result<TrainerCallsPtr> OpenTrainerCalls(int index, int (*check_kernels)()) {
  Result<std::string> name = NameOfCudaDevice(index);
  if (!name.ok()) return name.failure();
  auto calls = std::make_shared<TrainerCalls>();
  calls->name = std::move(name).value();
  calls->index = index;
  auto failure = calls->Call("search for kernels for this GPU",
                             [&] { return static_cast<cudaError_t>(check_kernels()); });
  if (failure) return *std::move(failure);
  return calls;
}

CudaEvent::~CudaEvent() {
  if (*calls_->hangs) return;
  (void)calls_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(event_); });
}

std::optional<Failure> CudaEvent::Record(TrainerStream stream) {
  const auto handle = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaSuccess;
  auto failure = calls_->Call("cudaStreamIsCapturing", [&] {
    error = cudaStreamIsCapturing(handle, &captured);
    // The default stream, which another one's capture forbids to use.
    const bool implicit = error == cudaErrorStreamCaptureImplicit;
    if (!implicit) return error;
    captured = cudaStreamCaptureStatusActive;
    cudaGetLastError();
    return cudaSuccess;
  });
  if (failure) return OfStream(*std::move(failure), error);
  if (captured != cudaStreamCaptureStatusNone) {
    return Failure{FailureCode::kUnsupported,
                   calls_->name + ": the stream is being captured into a graph"};
  }
  failure =
      calls_->Call("cudaEventRecord", [&] { return error = cudaEventRecord(event_, handle); });
  return failure ? OfStream(*std::move(failure), error) : failure;
}

Result<std::unique_ptr<CudaStream>> CudaStream::Make(TrainerCallsPtr calls) {
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  auto failure = calls->Call("cudaStreamCreateWithFlags", [&] {
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  });
  if (failure) return *std::move(failure);
  failure = calls->Call("cudaEventCreateWithFlags", [&] {
    const cudaError_t error = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    if (error != cudaSuccess) cudaStreamDestroy(stream);
    return error;
  });
  if (failure) return *std::move(failure);
  return std::make_unique<CudaStream>(std::move(calls), stream, done);
}

CudaStream::~CudaStream() {
  (void)calls_->Call("cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); });
  (void)calls_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(done_); });
}

std::optional<Failure> CudaStream::After(cudaEvent_t event) {
  return calls_->Call("cudaStreamWaitEvent",
                      [&] { return cudaStreamWaitEvent(stream_, event, 0); });
}

std::optional<Failure> CudaStream::Before(TrainerStream stream) {
  auto failure = calls_->Call("cudaEventRecord", [&] { return cudaEventRecord(done_, stream_); });
  if (failure) return failure;
  return calls_->Call("cudaStreamWaitEvent", [&] {
    return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done_, 0);
  });
}

}  // namespace basin::accelerator
