// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_segment.h"

#include <cuda.h>
#include <unistd.h>

#include <utility>

namespace basin::accelerator {
namespace {

// The version of the driver's interface that this file is written for.
constexpr unsigned kDriverVersion = 11020;

// The functions of the driver that share memory.
struct Driver {
  decltype(&cuGetErrorString) get_error_string = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) export_to = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_from = nullptr;
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

  std::optional<Failure> Check(CUresult result, const std::string& device, const char* call) const {
    if (result == CUDA_SUCCESS) return std::nullopt;
    const char* text = nullptr;
    get_error_string(result, &text);
    return Failure{FailureCode::kDevice,
                   device + ": " + call + " failed: " + (text == nullptr ? "unknown error" : text)};
  }
};

template <typename Function>
std::optional<Failure> Find(const SegmentDevice& device, const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kDriverVersion, cudaEnableDefault, &result);
  if (auto failure = Check(error, device.name, "cudaGetDriverEntryPointByVersion")) return failure;
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return Failure{FailureCode::kUnsupported,
                   device.name + ": the driver has no " + name + ", so it shares no memory"};
  }
  function = reinterpret_cast<Function>(found);
  return std::nullopt;
}

Result<Driver> LoadDriver(const SegmentDevice& device) {
  Driver driver;
  std::optional<Failure> failure;
  const auto find = [&](const char* name, auto& function) {
    if (!failure) failure = Find(device, name, function);
  };
  find("cuGetErrorString", driver.get_error_string);
  find("cuMemGetAllocationGranularity", driver.granularity);
  find("cuMemCreate", driver.create);
  find("cuMemRelease", driver.release);
  find("cuMemExportToShareableHandle", driver.export_to);
  find("cuMemImportFromShareableHandle", driver.import_from);
  find("cuMemGetAllocationPropertiesFromHandle", driver.properties);
  find("cuMemAddressReserve", driver.reserve);
  find("cuMemAddressFree", driver.unreserve);
  find("cuMemMap", driver.map);
  find("cuMemUnmap", driver.unmap);
  find("cuMemSetAccess", driver.set_access);
  if (failure) return *std::move(failure);
  return driver;
}

// What was taken from the driver, and is given back with the object.
class Mapping {
 public:
  Mapping(Driver driver, const SegmentDevice& device, uint64_t size)
      : driver(driver), device{device.name, device.index, device.hangs, nullptr}, size(size) {}
  ~Mapping() {
    if (*device.hangs) return;  // The device may still read or write it.
    const CurrentDevice current(device.index);
    if (mapped) driver.unmap(at, size);
    if (at != 0) driver.unreserve(at, size);
    if (handle != 0) driver.release(handle);
    if (descriptor >= 0) close(descriptor);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Gives the memory of `handle` an address.
  std::optional<Failure> Map() {
    auto failure =
        driver.Check(driver.reserve(&at, size, 0, 0, 0), device.name, "cuMemAddressReserve");
    if (failure) return failure;
    failure = driver.Check(driver.map(at, size, 0, handle, 0), device.name, "cuMemMap");
    mapped = !failure;
    return failure;
  }
  CUresult Allow(CUmemAccess_flags access) const {
    CUmemAccessDesc allowed = {};
    allowed.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    allowed.location.id = device.index;
    allowed.flags = access;
    return driver.set_access(at, size, &allowed, 1);
  }

  const Driver driver;
  const SegmentDevice device;  // Without the releases, which may have this.
  const uint64_t size;
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
  CUdeviceptr at = 0;
  bool mapped = false;
};

class CudaSegment final : public DeviceSegment {
 public:
  CudaSegment(std::shared_ptr<Mapping> mapping, std::shared_ptr<Releases> releases)
      // The driver's addresses are integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
      : DeviceSegment(reinterpret_cast<char*>(mapping->at), mapping->size, mapping->descriptor),
        mapping_(std::move(mapping)),
        releases_(std::move(releases)) {}
  ~CudaSegment() override {
    releases_->Add([mapping = std::move(mapping_)]() mutable { mapping.reset(); });
  }

  std::optional<Failure> Read(void* host, uint64_t offset, uint64_t size) const override {
    const SegmentDevice& device = mapping_->device;
    if (auto failure = CheckHangs(*device.hangs, device.name)) return failure;
    const CurrentDevice current(device.index);
    if (current.error() != cudaSuccess) return Check(current.error(), device.name, "cudaSetDevice");
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (auto failure = Check(error, device.name, "cudaStreamCreateWithFlags")) return failure;
    error = cudaMemcpyAsync(host, data() + offset, size, cudaMemcpyDeviceToHost, stream);
    Arrivals arrivals;
    if (error == cudaSuccess) {
      error = arrivals.AwaitAll(stream, device.hangs.get(), [] { return false; });
    }
    if (*device.hangs) {
      arrivals.Leak();
    } else {
      cudaStreamDestroy(stream);
    }
    if (auto failure = Check(error, device.name, "copy of shared memory to the host")) {
      return failure;
    }
    return CheckHangs(*device.hangs, device.name);
  }

 private:
  std::shared_ptr<Mapping> mapping_;  // Shared only while it is handed over.
  const std::shared_ptr<Releases> releases_;
};

CUmemAllocationProp PropertiesFor(int index) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

Failure NotOurs(const SegmentDevice& device, const std::string& why) {
  return Failure{FailureCode::kInvalidArgument,
                 device.name + ": the memory that was offered " + why};
}

}  // namespace

Result<std::shared_ptr<DeviceSegment>> MakeCudaSegment(const SegmentDevice& device, uint64_t size) {
  const Result<Driver> driver = LoadDriver(device);
  if (!driver.ok()) return driver.failure();
  const CUmemAllocationProp properties = PropertiesFor(device.index);
  size_t unit = 0;
  auto failure = driver.value().Check(
      driver.value().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      device.name, "cuMemGetAllocationGranularity");
  if (failure) return *std::move(failure);
  auto mapping = std::make_unique<Mapping>(driver.value(), device, (size + unit - 1) / unit * unit);
  const std::string what = "cuMemCreate of " + std::to_string(mapping->size) + " bytes";
  failure =
      mapping->driver.Check(mapping->driver.create(&mapping->handle, mapping->size, &properties, 0),
                            device.name, what.c_str());
  if (failure) return *std::move(failure);
  failure =
      mapping->driver.Check(mapping->driver.export_to(&mapping->descriptor, mapping->handle,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            device.name, "cuMemExportToShareableHandle");
  if (failure) return *std::move(failure);
  if ((failure = mapping->Map())) return *std::move(failure);
  failure = mapping->driver.Check(mapping->Allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), device.name,
                                  "cuMemSetAccess");
  if (failure) return *std::move(failure);
  return std::shared_ptr<DeviceSegment>(
      std::make_shared<CudaSegment>(std::move(mapping), device.releases));
}

Result<std::shared_ptr<DeviceSegment>> OpenCudaSegment(const SegmentDevice& device, int descriptor,
                                                       uint64_t size) {
  const Result<Driver> driver = LoadDriver(device);
  if (!driver.ok()) return driver.failure();
  auto mapping = std::make_unique<Mapping>(driver.value(), device, size);
  // The handle is the descriptor itself, in place of a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const handle = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  auto failure =
      mapping->driver.Check(mapping->driver.import_from(&mapping->handle, handle,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                            device.name, "cuMemImportFromShareableHandle");
  if (failure) {
    mapping->handle = 0;
    return NotOurs(device, "is not memory of a CUDA device: " + failure->message);
  }
  CUmemAllocationProp properties = {};
  failure = mapping->driver.Check(mapping->driver.properties(&properties, mapping->handle),
                                  device.name, "cuMemGetAllocationPropertiesFromHandle");
  if (failure) return *std::move(failure);
  int reads = properties.location.id == device.index ? 1 : 0;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return NotOurs(device, "is not memory of a CUDA device");
  }
  if (reads == 0) {
    const cudaError_t error = cudaDeviceCanAccessPeer(&reads, device.index, properties.location.id);
    if (auto peer = Check(error, device.name, "cudaDeviceCanAccessPeer")) return *std::move(peer);
  }
  if (reads == 0) {
    return Failure{FailureCode::kUnsupported, device.name +
                                                  " cannot read the memory of CUDA device " +
                                                  std::to_string(properties.location.id)};
  }
  // Fails for more bytes than the allocation has.
  if ((failure = mapping->Map())) {
    return NotOurs(device, "does not have " + std::to_string(size) + " bytes: " + failure->message);
  }
  // Not every device knows memory that it can only read.
  CUresult allowed = mapping->Allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  if (allowed != CUDA_SUCCESS) allowed = mapping->Allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if ((failure = mapping->driver.Check(allowed, device.name, "cuMemSetAccess"))) {
    return *std::move(failure);
  }
  return std::shared_ptr<DeviceSegment>(
      std::make_shared<CudaSegment>(std::move(mapping), device.releases));
}

}  // namespace basin::accelerator
