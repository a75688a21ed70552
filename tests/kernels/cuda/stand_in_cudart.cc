// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A libcudart.so.13 with two devices, for loaded_runtime_test.cc: it notes which kernels are
// registered, which of them are launched, and on which devices the process has a context. As in the
// library of NVIDIA, the calls that need a context create that of the current device, and so does
// cudaSetDevice; the functions of the driver only use the one that the thread has. It has only the
// functions that the test comes to.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
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
  std::thread::id unmapped_by;
};

StandIn& State() {
  static StandIn state;
  return state;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool has_context = false;

cudaError_t NeedContext() {
  State().contexts.insert(current_device);
  has_context = true;
  return cudaSuccess;
}

CUresult CUDAAPI HasContext(CUdevice device, unsigned*, int* active) {
  *active = State().contexts.count(device) == 1 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult InContext() { return has_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

CUresult CUDAAPI ErrorString(CUresult, const char** text) {
  *text = "an error of the driver";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI Granularity(size_t* unit, const CUmemAllocationProp*,
                             CUmemAllocationGranularity_flags) {
  *unit = 4096;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI Create(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                        unsigned long long) {
  *handle = 1;
  return InContext();
}
CUresult CUDAAPI ReleaseHandle(CUmemGenericAllocationHandle) { return InContext(); }
CUresult CUDAAPI Export(void* descriptor, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                        unsigned long long) {
  *static_cast<int*>(descriptor) = open("/dev/null", O_RDWR | O_CLOEXEC);
  return InContext();
}
CUresult CUDAAPI Import(CUmemGenericAllocationHandle* handle, void*, CUmemAllocationHandleType) {
  *handle = 2;
  return InContext();
}
CUresult CUDAAPI Properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle) {
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return CUDA_SUCCESS;
}
CUresult CUDAAPI Reserve(CUdeviceptr* at, size_t, size_t, CUdeviceptr, unsigned long long) {
  *at = 4096;
  return InContext();
}
CUresult CUDAAPI Unreserve(CUdeviceptr, size_t) { return InContext(); }
CUresult CUDAAPI Map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                     unsigned long long) {
  return InContext();
}
CUresult CUDAAPI Unmap(CUdeviceptr, size_t) {
  State().unmapped_by = std::this_thread::get_id();
  return InContext();
}
CUresult CUDAAPI SetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return InContext();
}

void* DriverFunction(const std::string& name) {
  static const std::map<std::string, void*> functions = {
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(HasContext)},
      {"cuGetErrorString", reinterpret_cast<void*>(ErrorString)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(Granularity)},
      {"cuMemCreate", reinterpret_cast<void*>(Create)},
      {"cuMemRelease", reinterpret_cast<void*>(ReleaseHandle)},
      {"cuMemExportToShareableHandle", reinterpret_cast<void*>(Export)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(Import)},
      {"cuMemGetAllocationPropertiesFromHandle", reinterpret_cast<void*>(Properties)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(Reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(Unreserve)},
      {"cuMemMap", reinterpret_cast<void*>(Map)},
      {"cuMemUnmap", reinterpret_cast<void*>(Unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(SetAccess)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
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
std::thread::id* stand_in_unmapped_by() { return &State().unmapped_by; }

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
  *function = DriverFunction(name);
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
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
