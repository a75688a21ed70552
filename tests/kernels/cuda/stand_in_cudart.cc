// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A libcudart.so.13 with one device, for loaded_runtime_test.cc: it notes which kernels are
// registered, and which of them are launched. It has only the functions that the test comes to.

#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

namespace {

struct StandIn {
  std::set<void*> begun;                     // Images that are not complete.
  std::map<const void*, std::string> names;  // The kernels of complete images.
  std::map<const void*, std::string> adding;
  std::string launched;  // The names, each with a space behind it.
};

StandIn& State() {
  static StandIn state;
  return state;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

void** __cudaRegisterFatBinary(void* image) {
  State().begun.insert(image);
  return static_cast<void**>(image);
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  if (State().begun.count(handle) == 1) State().adding[host] = name;
}

void __cudaRegisterFatBinaryEnd(void** handle) {
  if (State().begun.erase(handle) == 0) return;
  State().names.insert(State().adding.begin(), State().adding.end());
  State().adding.clear();
}

unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*) { return 0; }

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* bytes, void* stream) {
  *grid = *block = dim3{1, 1, 1};
  *bytes = 0;
  std::memset(stream, 0, sizeof(void*));
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  if (State().names.count(host) == 0) return cudaErrorInvalidDeviceFunction;
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  State().launched += State().names.at(kernel) + " ";
  return cudaSuccess;
}

const char* stand_in_launched() { return State().launched.c_str(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "stand-in");
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* host) {
  return State().names.count(host) == 1 ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

// As if the device had no memory.
cudaError_t cudaMalloc(void**, size_t) { return cudaErrorMemoryAllocation; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
