// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Differential fuzzing of the reduction: any spec and any bytes give either a refusal or the same
// bits on every CPU target and the reference, over whole inputs, over slices and in chunks.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_reducer.h"
#include "kernels/reference.h"
#include "tests/kernels/contract.h"

namespace basin::kernels {
namespace {

constexpr size_t kMaxElements = 3000;     // A few blocks and a tail.
constexpr size_t kMaxContributions = 20;  // More than one group of terms.

// Takes values from the front of the input; zeros when it is used up.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T Take() {
    T value = {};
    const size_t count = std::min(sizeof(T), size_);
    std::memcpy(&value, data_, count);
    data_ += count;
    size_ -= count;
    return value;
  }

  // `size` bytes that repeat the remaining input.
  std::vector<unsigned char> Repeat(size_t size, size_t from) const {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size && size_ > 0; ++i) bytes[i] = data_[(from + i) % size_];
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Scales that are often 1, often small and round, sometimes anything.
double TakeScale(Source* source) {
  const auto choice = source->Take<uint8_t>();
  static constexpr double kUsual[] = {1.0, 1.0, 2.0, 0.125, 3.0, 1.0 / 3, 1e-3, -1.0};
  return choice < 240 ? kUsual[choice % 8] : source->Take<double>();
}

Contribution TakeContribution(DType tensor, Source* source) {
  static constexpr DType kWires[] = {DType::kF16, DType::kBF16};
  const auto flags = source->Take<uint8_t>();
  Contribution contribution;
  contribution.wire_dtype = (flags & 1) != 0 ? kWires[(flags >> 1) & 1] : tensor;
  contribution.kind = (flags & 4) != 0 ? ContributionKind::kSum : ContributionKind::kMean;
  contribution.skipped = (flags & 0x38) == 0x38;
  if ((flags & 0x40) != 0) contribution.wire_scale_exponent = int{source->Take<int8_t>()};
  if ((flags & 0x80) != 0) contribution.weight = source->Take<uint16_t>();
  return contribution;
}

contract::Case TakeCase(Source* source) {
  contract::Case c;
  c.spec.op = static_cast<ReduceOp>(source->Take<uint8_t>() % 7);
  c.spec.tensor_dtype = static_cast<DType>(source->Take<uint8_t>() % 10);
  const auto result = source->Take<uint8_t>();
  c.spec.result_dtype = result < 128 ? c.spec.tensor_dtype : static_cast<DType>(result % 10);
  c.spec.prescale = TakeScale(source);
  c.spec.postscale = TakeScale(source);
  c.spec.predivide = TakeScale(source);
  c.count = source->Take<uint16_t>() % kMaxElements;
  c.seed = source->Take<uint16_t>();
  const size_t contributions = 1 + source->Take<uint8_t>() % kMaxContributions;
  for (size_t i = 0; i < contributions; ++i) {
    c.spec.contributions.push_back(TakeContribution(c.spec.tensor_dtype, source));
  }
  const Result<uint64_t> divisor = Divisor(
      c.spec.op, c.seed % 2 ? DivisorPolicy::kAll : DivisorPolicy::kPresent, c.spec.contributions);
  c.spec.divisor = divisor.ok() ? divisor.value() : 0;
  return c;
}

void FuzzOne(const uint8_t* data, size_t size) {
  Source source(data, size);
  const contract::Case c = TakeCase(&source);
  if (!ReductionPlan::Make(c.spec).ok()) return;
  std::vector<std::vector<unsigned char>> contributions;
  for (const Contribution& contribution : c.spec.contributions) {
    const size_t bytes = contribution.skipped ? 0 : c.count * ElementSize(contribution.wire_dtype);
    contributions.push_back(source.Repeat(bytes, contributions.size() * 13));
  }
  std::vector<std::unique_ptr<Reducer>> owned;
  std::vector<const Reducer*> reducers;
  for (const std::string& target : CpuTargets()) owned.push_back(MakeCpuReducer(target));
  for (const auto& reducer : owned) reducers.push_back(reducer.get());
  contract::Report report;
  contract::CheckContributions(reducers, c, contributions, &report);
  if (report.failures() == 0) return;
  std::fprintf(stderr, "%s\n", report.Summary().c_str());
  std::abort();
}

}  // namespace
}  // namespace basin::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  basin::kernels::FuzzOne(data, size);
  return 0;
}
