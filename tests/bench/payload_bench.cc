// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The work of each end on the bytes of a frame besides sending them: checksums, digests, norms,
// copies that hash, casts. One core; the argument is the size of the payload: a frame that is in
// the cache, or a tensor that is not. Compare with the copy of the same size.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cast.h"
#include "kernels/checksum.h"
#include "kernels/copy.h"
#include "kernels/norm.h"

namespace basin::kernels {
namespace {

constexpr int64_t kFrame = int64_t{1} << 20;
constexpr int64_t kTensor = int64_t{256} << 20;

// `size` bytes, as f32 numbers of moderate size.
std::vector<float> Payload(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size) / sizeof(float));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 1e-9f;
  }
  return values;
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Copy(benchmark::State& state) {
  const std::vector<float> source = Payload(state.range(0));
  std::vector<float> destination(source.size());
  for (auto _ : state) {
    std::memcpy(destination.data(), source.data(), static_cast<size_t>(state.range(0)));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

void PastCache(benchmark::State& state) {
  const std::vector<float> source = Payload(state.range(0));
  std::vector<float> destination(source.size());
  for (auto _ : state) {
    CopyPastCache(destination.data(), source.data(), static_cast<size_t>(state.range(0)));
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

void FrameChecksum(benchmark::State& state) {
  const std::vector<float> source = Payload(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(ChecksumOf(source.data(), static_cast<size_t>(state.range(0))));
  }
  SetBytes(state);
}

void TensorDigest(benchmark::State& state) {
  const std::vector<float> source = Payload(state.range(0));
  const TensorKey key("weight");
  RangeDigest digest(key, 0);
  for (auto _ : state) {
    digest.Restart(key, 0);
    digest.Update(source.data(), static_cast<size_t>(state.range(0)));
    benchmark::DoNotOptimize(digest.Finish().low);
  }
  SetBytes(state);
}

void CopyAndDigest(benchmark::State& state) {
  const std::vector<float> source = Payload(state.range(0));
  std::vector<float> destination(source.size());
  const TensorKey key("weight");
  RangeDigest digest(key, 0);
  for (auto _ : state) {
    digest.Restart(key, 0);
    CopyAndHash(destination.data(), source.data(), static_cast<size_t>(state.range(0)), &digest);
    benchmark::DoNotOptimize(digest.Finish().low);
  }
  SetBytes(state);
}

// `element_bytes` is the size of an element of `dtype`.
void Norm(benchmark::State& state, DType dtype, size_t element_bytes) {
  const std::vector<float> source = Payload(state.range(0));
  const size_t count = source.size() * sizeof(float) / element_bytes;
  std::vector<double> leaves;
  for (auto _ : state) {
    leaves.clear();
    AppendNormLeaves(dtype, source.data(), count, &leaves);
    benchmark::DoNotOptimize(leaves.data());
  }
  SetBytes(state);
}

// Casts count the bytes of the f32 side.
void ToWire(benchmark::State& state, DType wire_dtype) {
  const std::vector<float> source = Payload(state.range(0));
  std::vector<uint16_t> wire(source.size());
  for (auto _ : state) {
    CastToWire(source.data(), source.size(), wire_dtype, 4, wire.data());
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

void FromWire(benchmark::State& state, DType wire_dtype) {
  const std::vector<float> source = Payload(state.range(0));
  std::vector<uint16_t> wire(source.size());
  std::vector<float> destination(source.size());
  CastToWire(source.data(), source.size(), wire_dtype, 4, wire.data());
  for (auto _ : state) {
    CastFromWire(wire.data(), wire.size(), wire_dtype, 4, destination.data());
    benchmark::ClobberMemory();
  }
  SetBytes(state);
}

BENCHMARK(Copy)->Arg(kFrame)->Arg(kTensor);
BENCHMARK(PastCache)->Arg(kFrame)->Arg(kTensor);
BENCHMARK(FrameChecksum)->Arg(kFrame)->Arg(kTensor);
BENCHMARK(TensorDigest)->Arg(kFrame)->Arg(kTensor);
BENCHMARK(CopyAndDigest)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(Norm, f32, DType::kF32, 4)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(Norm, bf16, DType::kBF16, 2)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(ToWire, f16, DType::kF16)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(ToWire, bf16, DType::kBF16)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(FromWire, f16, DType::kF16)->Arg(kFrame)->Arg(kTensor);
BENCHMARK_CAPTURE(FromWire, bf16, DType::kBF16)->Arg(kFrame)->Arg(kTensor);

}  // namespace
}  // namespace basin::kernels
