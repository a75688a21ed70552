// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_trainer_calls.h"

namespace basin::kernels::cuda {
namespace {

// An event cannot be recorded on a stream of another device.
Failure OfStream(Failure failure, cudaError_t error) {
  const bool foreign =
      error == cudaErrorInvalidResourceHandle || error == cudaErrorContextIsDestroyed;
  if (foreign) failure.code = FailureCode::kInvalidArgument;
  return failure;
}

}  // namespace

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

}  // namespace basin::kernels::cuda
