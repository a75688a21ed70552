// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A libcudart.so.13 with two devices, for loaded_runtime_test.cc: it notes which kernels are
// registered, which of them are launched, and on which devices the process has a context. As in the
// library of NVIDIA, the calls that need a context create that of the current device, and so does
// cudaSetDevice. It has only the functions that the test comes to.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace {

struct StandIn {
  std::set<void*> begun;                     // Images that are not complete.
  std::map<const void*, std::string> names;  // The kernels of complete images.
  std::map<const void*, std::string> adding;
  std::string launched;  // The names, each with a space behind it.
  std::set<int> contexts;
  int driver = CUDART_VERSION;
  int busy_looks = 0;  // As often a look at a stream sees work. It takes no callback until then.
};

StandIn& State() {
  static StandIn state;
  return state;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t NeedContext() {
  State().contexts.insert(current_device);
  return cudaSuccess;
}

CUresult CUDAAPI HasContext(CUdevice device, unsigned*, int* active) {
  *active = State().contexts.count(device) == 1 ? 1 : 0;
  return CUDA_SUCCESS;
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
  return NeedContext();
}

const char* stand_in_launched() { return State().launched.c_str(); }
std::set<int>* stand_in_contexts() { return &State().contexts; }
int* stand_in_busy_looks() { return &State().busy_looks; }

int* stand_in_driver() { return &State().driver; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = State().driver;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (State().driver < CUDART_VERSION / 1000 * 1000) {
    return last_error = cudaErrorInsufficientDriver;
  }
  *count = 2;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "stand-in");
  properties->major = 9;
  properties->minor = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* index) {
  *index = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int index) {
  current_device = index;
  return NeedContext();
}

cudaError_t cudaDeviceReset() {
  State().contexts.erase(current_device);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(name, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(HasContext) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* host) {
  NeedContext();
  return State().names.count(host) == 1 ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return NeedContext(); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) { return NeedContext(); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return NeedContext(); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return NeedContext(); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return NeedContext(); }

cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t call, void* data) {
  if (State().busy_looks > 0) return last_error = cudaErrorMemoryAllocation;
  call(data);
  return NeedContext();
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  return State().busy_looks-- > 1 ? last_error = cudaErrorNotReady : NeedContext();
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

// As if the device had no memory.
cudaError_t cudaMalloc(void**, size_t) { return last_error = cudaErrorMemoryAllocation; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
