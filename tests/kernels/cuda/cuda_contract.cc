// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite and the golden vectors on a GPU. Needs no test framework, so that it builds
// with only a compiler.
//
// usage: cuda_contract --golden=<folder> [--device=<index>] [--part=all|short|vectors]
//
//   short    two dtypes and no long spans
//   vectors  only the golden vectors, for tools that make a program much slower
// Exit status: 0 all equal, 1 something differs or the driver does not work, 2 usage, 77 skipped:
// there is no device.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/device/cuda_device.h"
#include "tests/accelerator/device/driver_is_loaded.h"
#include "tests/kernels/contract.h"
#include "tests/kernels/cuda/device_checks.h"
#include "tests/kernels/golden.h"

namespace basin::kernels::cuda {
namespace {

using accelerator::CountCudaDevices;
using accelerator::Device;
using accelerator::DriverIsLoaded;
using accelerator::Memory;
using accelerator::OpenCudaDevice;

constexpr int kSkipped = 77;

enum class Part { kAll, kShort, kVectors };

struct Arguments {
  std::string golden;
  int device = 0;
  Part part = Part::kAll;
};

class Tally {
 public:
  void Add(const std::string& what, const contract::Report& report) {
    std::printf("%-24s %8llu comparisons  %s\n", what.c_str(),
                static_cast<unsigned long long>(report.comparisons()),
                report.ok() ? "ok" : report.Summary().c_str());
    std::fflush(stdout);
    report.ok() ? ++passed_ : ++failed_;
  }

  int Close() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
};

void RunSuite(const Arguments& arguments, const Reducer& reducer, Tally* tally) {
  std::vector<DType> dtypes;
  if (arguments.part == Part::kShort) dtypes = {DType::kF32, DType::kBF16};
  if (arguments.part == Part::kAll) {
    dtypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
              DType::kI64, DType::kI32, DType::kU8};
  }
  for (DType dtype : dtypes) {
    tally->Add(std::string("contract ") + DTypeName(dtype),
               contract::CheckAgainstReference(reducer, dtype));
  }
  for (const std::string& file : contract::GoldenFiles()) {
    tally->Add("golden " + file, contract::CheckGolden(reducer, arguments.golden + "/" + file));
  }
}

// More memory than there is: a failure that names the call, after which the device works.
contract::Report CheckOutOfMemory(Device* device) {
  contract::Report report;
  const Result<Memory> memory = device->AllocateOnDevice(size_t{1} << 60);
  const bool named = !memory.ok() && memory.failure().code == FailureCode::kDevice &&
                     memory.failure().message.find("cudaMalloc") != std::string::npos;
  report.Add(named ? "" : "an exbibyte was allocated, or the failure does not name the call");
  const bool goes_on = device->AllocateOnDevice(1 << 20).ok() && device->MakeQueue().ok();
  report.Add(goes_on ? "" : "the device does nothing more after it ran out of memory");
  return report;
}

int Run(const Arguments& arguments) {
  const Result<int> count = CountCudaDevices();
  if (!count.ok() || count.value() == 0) {
    const bool fails = DriverIsLoaded();
    std::printf("%s: %s\n", fails ? "failed" : "skipped",
                count.ok() ? "no CUDA device" : count.failure().message.c_str());
    return fails ? 1 : kSkipped;
  }
  Result<std::unique_ptr<Device>> opened = OpenCudaDevice(arguments.device);
  if (!opened.ok()) {
    std::printf("failed: %s\n", opened.failure().message.c_str());
    return 1;
  }
  const std::unique_ptr<Device> device = std::move(opened).value();
  std::printf("%s\n", std::string(device->name()).c_str());
  Tally tally;
  RunSuite(arguments, PipelineReducer(device.get()), &tally);
  if (arguments.part != Part::kVectors) {
    tally.Add("out of memory", CheckOutOfMemory(device.get()));
    tally.Add("passes through a pipeline", CheckPipeline(device.get()));
  }
  if (arguments.part == Part::kAll) {
    tally.Add("as many terms as a task", CheckManyTerms(device.get()));
    tally.Add("spans of several pieces", CheckManyPieces(device.get()));
    tally.Add("inputs on the device", CheckOnDevice(device.get()));
  }
  return tally.Close();
}

}  // namespace
}  // namespace basin::kernels::cuda

int main(int argc, char** argv) {
  basin::kernels::cuda::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--golden=", 0) == 0) {
      arguments.golden = argument.substr(9);
    } else if (argument.rfind("--device=", 0) == 0) {
      arguments.device = std::atoi(argument.c_str() + 9);
    } else if (argument == "--part=all") {
      arguments.part = basin::kernels::cuda::Part::kAll;
    } else if (argument == "--part=short") {
      arguments.part = basin::kernels::cuda::Part::kShort;
    } else if (argument == "--part=vectors") {
      arguments.part = basin::kernels::cuda::Part::kVectors;
    } else {
      std::fprintf(stderr, "cuda_contract: unknown argument: %s\n", argument.c_str());
      return 2;
    }
  }
  if (arguments.golden.empty()) {
    std::fprintf(stderr,
                 "usage: cuda_contract --golden=<folder> [--device=<index>] "
                 "[--part=all|short|vectors]\n");
    return 2;
  }
  return basin::kernels::cuda::Run(arguments);
}
