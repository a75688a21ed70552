// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime that Basin calls, for a build without libcudart: each passes
// its call on to the library that runtime_library.h finds at the first call. Without the library a
// call fails with kNotFound, whose text says what to install.
//
// The code that nvcc generates registers kernels while the program starts, when nothing may be
// loaded yet. What it registers is kept here, and passed on when the library is loaded. The code
// has no place for an object of ours, so that the state here is the process's, as that of the
// runtime.
//
// Thread contract: as the CUDA runtime.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/runtime_library.h"

// Names of the runtime, and its functions' signatures as arguments of macros.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
// NOLINTBEGIN(bugprone-macro-parentheses)

// What nvcc's code calls. The toolkit declares them only in the files that nvcc compiles.
extern "C" {
void** __cudaRegisterFatBinary(void* image);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int threads, uint3* thread, uint3* block, dim3* block_size,
                            dim3* grid_size, int* warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream);
}

namespace {

constexpr cudaError_t kNotFound = cudaErrorSharedObjectInitFailed;

// A kernel, with the arguments of its registration.
struct Kernel {
  const char* host;
  char* device;
  const char* name;
  int threads;
};

// The device code of a file.
struct Image {
  void* data = nullptr;
  std::vector<Kernel> kernels;
};

struct Runtime {
  std::vector<Image*> images;  // Those that are complete. They live as long as the process.
  basin::kernels::cuda::RuntimeLibrary library;
};

template <typename Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Names without a library are null.
#define BASIN_FIND(library, name) Find<decltype(&name)>(library, #name)

void Register(void* library, const Image& image) {
  const auto begin = BASIN_FIND(library, __cudaRegisterFatBinary);
  const auto add = BASIN_FIND(library, __cudaRegisterFunction);
  const auto end = BASIN_FIND(library, __cudaRegisterFatBinaryEnd);
  if (begin == nullptr || add == nullptr || end == nullptr) return;  // Launches fail.
  void** const handle = begin(image.data);
  for (const Kernel& kernel : image.kernels) {
    add(handle, kernel.host, kernel.device, kernel.name, kernel.threads, nullptr, nullptr, nullptr,
        nullptr, nullptr);
  }
  end(handle);
}

// Files register in the order of their initialisation, before any call.
Runtime& Registered() {
  static Runtime* const runtime = new Runtime;  // The end of the process may still register.
  return *runtime;
}

// The library has pointers to images and kernels in this one until the process ends, so this one
// stays.
void StayLoaded() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&StayLoaded), &info) == 0) return;
  dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

// Null: it was not found.
void* Library() {
  static std::once_flag once;
  Runtime& runtime = Registered();
  std::call_once(once, [&] {
    const std::string name = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    runtime.library = basin::kernels::cuda::OpenRuntimeLibrary(name);
    if (runtime.library.handle == nullptr) return;
    StayLoaded();
    for (const Image* image : runtime.images) Register(runtime.library.handle, *image);
  });
  return runtime.library.handle;
}

template <typename Function>
Function Load(const char* name) {
  void* const library = Library();
  return library == nullptr ? nullptr : Find<Function>(library, name);
}

}  // namespace

// Defines a function that passes its call on.
#define BASIN_PASS_ON(name, parameters, arguments)               \
  cudaError_t name parameters {                                  \
    static const auto function = Load<decltype(&name)>(#name);   \
    return function == nullptr ? kNotFound : function arguments; \
  }

extern "C" {

BASIN_PASS_ON(cudaDeviceCanAccessPeer, (int* can, int device, int peer), (can, device, peer))
BASIN_PASS_ON(cudaDeviceReset, (), ())
BASIN_PASS_ON(cudaDriverGetVersion, (int* version), (version))
BASIN_PASS_ON(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), (event, flags))
BASIN_PASS_ON(cudaEventDestroy, (cudaEvent_t event), (event))
BASIN_PASS_ON(cudaEventQuery, (cudaEvent_t event), (event))
BASIN_PASS_ON(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))
BASIN_PASS_ON(cudaFree, (void* data), (data))
BASIN_PASS_ON(cudaFreeHost, (void* data), (data))
BASIN_PASS_ON(cudaFuncGetAttributes, (cudaFuncAttributes * attributes, const void* function_),
              (attributes, function_))
BASIN_PASS_ON(cudaGetDevice, (int* index), (index))
BASIN_PASS_ON(cudaGetDeviceCount, (int* count), (count))
BASIN_PASS_ON(cudaGetDeviceProperties, (cudaDeviceProp * properties, int index),
              (properties, index))
BASIN_PASS_ON(cudaGetDriverEntryPointByVersion,
              (const char* name, void** function_, unsigned version, unsigned long long flags,
               cudaDriverEntryPointQueryResult* result),
              (name, function_, version, flags, result))
BASIN_PASS_ON(cudaGetLastError, (), ())
BASIN_PASS_ON(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t call, void* data),
              (stream, call, data))
BASIN_PASS_ON(cudaMalloc, (void** data, size_t size), (data, size))
BASIN_PASS_ON(cudaMallocHost, (void** data, size_t size), (data, size))
BASIN_PASS_ON(cudaMemsetAsync, (void* to, int value, size_t count, cudaStream_t stream),
              (to, value, count, stream))
BASIN_PASS_ON(cudaMemcpyAsync,
              (void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream),
              (to, from, size, kind, stream))
BASIN_PASS_ON(cudaPointerGetAttributes, (cudaPointerAttributes * attributes, const void* data),
              (attributes, data))
BASIN_PASS_ON(cudaSetDevice, (int index), (index))
BASIN_PASS_ON(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), (stream, flags))
BASIN_PASS_ON(cudaStreamDestroy, (cudaStream_t stream), (stream))
BASIN_PASS_ON(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
              (stream, status))
BASIN_PASS_ON(cudaStreamQuery, (cudaStream_t stream), (stream))
BASIN_PASS_ON(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
              (stream, event, flags))
BASIN_PASS_ON(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), (mode))
BASIN_PASS_ON(__cudaPopCallConfiguration,
              (dim3 * grid, dim3* block, size_t* shared_bytes, void* stream),
              (grid, block, shared_bytes, stream))
BASIN_PASS_ON(__cudaGetKernel, (cudaKernel_t * kernel, const void* host), (kernel, host))
BASIN_PASS_ON(__cudaLaunchKernel,
              (cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
               cudaStream_t stream),
              (kernel, grid, block, arguments, shared_bytes, stream))

const char* cudaGetErrorName(cudaError_t error) {
  static const auto function = Load<decltype(&cudaGetErrorName)>("cudaGetErrorName");
  return function == nullptr ? "the CUDA runtime is missing" : function(error);
}

const char* cudaGetErrorString(cudaError_t error) {
  static const auto function = Load<decltype(&cudaGetErrorString)>("cudaGetErrorString");
  return function == nullptr ? Registered().library.error.c_str() : function(error);
}

// 0 lets the launch go on.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     CUstream_st* stream) {
  static const auto function =
      Load<decltype(&__cudaPushCallConfiguration)>("__cudaPushCallConfiguration");
  return function == nullptr ? unsigned{kNotFound} : function(grid, block, shared_bytes, stream);
}

void** __cudaRegisterFatBinary(void* data) {
  auto* const image = new Image;
  image->data = data;
  return reinterpret_cast<void**>(image);
}

void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int threads, uint3*, uint3*, dim3*, dim3*, int*) {
  reinterpret_cast<Image*>(handle)->kernels.push_back({host, device, name, threads});
}

void __cudaRegisterFatBinaryEnd(void** handle) {
  Registered().images.push_back(reinterpret_cast<Image*>(handle));
}

// Only the end of the process unregisters, see StayLoaded(); the library may have ended before.
void __cudaUnregisterFatBinary(void**) {}

}  // extern "C"

// NOLINTEND(bugprone-macro-parentheses)
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
