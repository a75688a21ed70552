// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of a thread of the measuring kernel, for the device and, in the tests, on the host: what
// the host needs to know of a contribution that stays on the device. For each chunk that is the
// state of XXH3 before its last step, which measure.h takes; for each leaf of the norm of facts.h,
// its lanes.
//
// XXH3 keeps eight sums for a long input, which do not depend on each other. Each of them, and each
// lane of a leaf, is one thread, which goes over its words in their order, so that no thread waits
// for another one.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_MEASURE_BODY_H_
#define BASIN_KERNELS_CUDA_MEASURE_BODY_H_

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"

namespace basin::kernels::cuda {

constexpr unsigned kMeasureThreads = 64;

// XXH3's stripes and blocks of them.
constexpr uint64_t kStripeBytes = kHashSums * sizeof(uint64_t);
constexpr unsigned kStripesPerBlock = 16;
constexpr uint64_t kHashBlockBytes = kStripesPerBlock * kStripeBytes;

BASIN_HOST_DEVICE uint64_t MeasuredChunks(const MeasureItem& item) {
  return (item.bytes + item.chunk_bytes - 1) / item.chunk_bytes;
}

// None of a dtype that has no norm here: of integers, and of fp8, which no job reduces.
BASIN_HOST_DEVICE uint64_t MeasuredElements(const MeasureItem& item) {
  switch (item.dtype) {
    case DType::kF64:
      return item.bytes / sizeof(double);
    case DType::kF32:
      return item.bytes / sizeof(float);
    case DType::kF16:
    case DType::kBF16:
      return item.bytes / sizeof(uint16_t);
    default:
      return 0;
  }
}

BASIN_HOST_DEVICE uint64_t MeasuredLanes(const MeasureItem& item) {
  if (item.lanes == nullptr) return 0;
  return (MeasuredElements(item) + kNormLeafElements - 1) / kNormLeafElements * kNormLanes;
}

// Threads that an item needs.
BASIN_HOST_DEVICE uint64_t MeasureThreadsOf(const MeasureItem& item) {
  return MeasuredChunks(item) * kHashSums + MeasuredLanes(item);
}

// Arrays of bytes are read as words.
template <typename T>
struct HashWord {
  T part;
} __attribute__((may_alias));

// The little-endian word at an address that is aligned to T.
template <typename T>
BASIN_HOST_DEVICE uint64_t LoadHashWord(const unsigned char* at) {
  uint64_t word = 0;
  BASIN_UNROLL
  for (unsigned i = 0; i < sizeof(uint64_t) / sizeof(T); ++i) {
    const uint64_t part = reinterpret_cast<const HashWord<T>*>(at)[i].part;
    word |= part << (8 * sizeof(T) * i);
  }
  return word;
}

BASIN_HOST_DEVICE uint64_t HashProduct(uint64_t word, uint64_t key) {
  const uint64_t keyed = word ^ key;
  return (keyed & 0xffffffff) * (keyed >> 32);
}

// Sum `sum` of a chunk of more than kShortChunk bytes.
template <typename T>
BASIN_HOST_DEVICE uint64_t HashSum(const HashKeys& keys, const unsigned char* data, uint64_t size,
                                   unsigned sum) {
  // Each word is multiplied into its own sum and added to that of its neighbour.
  const unsigned char* const own = data + sum * sizeof(uint64_t);
  const unsigned char* const other = data + (sum ^ 1) * sizeof(uint64_t);
  uint64_t total = keys.start[sum];
  const uint64_t blocks = (size - 1) / kHashBlockBytes;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t begin = block * kHashBlockBytes;
    uint64_t words[kStripesPerBlock];  // Loaded before the first is used.
    uint64_t others[kStripesPerBlock];
    BASIN_UNROLL
    for (unsigned i = 0; i < kStripesPerBlock; ++i) {
      words[i] = LoadHashWord<T>(own + begin + i * kStripeBytes);
      others[i] = LoadHashWord<T>(other + begin + i * kStripeBytes);
    }
    BASIN_UNROLL
    for (unsigned i = 0; i < kStripesPerBlock; ++i) {
      total += others[i] + HashProduct(words[i], keys.stripe[i + sum]);
    }
    total = (total ^ total >> 47 ^ keys.stripe[kStripesPerBlock + sum]) * keys.multiplier;
  }
  const uint64_t begin = blocks * kHashBlockBytes;
  const uint64_t stripes = (size - 1 - begin) / kStripeBytes;
  for (uint64_t i = 0; i < stripes; ++i) {
    const uint64_t at = begin + i * kStripeBytes;
    total +=
        LoadHashWord<T>(other + at) + HashProduct(LoadHashWord<T>(own + at), keys.stripe[i + sum]);
  }
  const uint64_t last = size - kStripeBytes;
  return total + LoadHashWord<T>(other + last) +
         HashProduct(LoadHashWord<T>(own + last), keys.last[sum]);
}

BASIN_HOST_DEVICE void MeasureChunk(const HashKeys& keys, const MeasureItem& item, uint64_t chunk,
                                    unsigned sum) {
  const auto* const data = static_cast<const unsigned char*>(item.data) + chunk * item.chunk_bytes;
  const uint64_t left = item.bytes - chunk * item.chunk_bytes;
  const uint64_t size = left < item.chunk_bytes ? left : uint64_t{item.chunk_bytes};
  ChunkRecord& record = item.records[chunk];
  if (size <= kShortChunk) {
    for (uint64_t i = sum; i < size; i += kHashSums) record.bytes[i] = data[i];
    return;
  }
  const uint64_t both = reinterpret_cast<uint64_t>(data) | size;
  if (both % sizeof(uint64_t) == 0) {
    record.sums[sum] = HashSum<uint64_t>(keys, data, size, sum);
  } else if (both % sizeof(uint32_t) == 0) {
    record.sums[sum] = HashSum<uint32_t>(keys, data, size, sum);
  } else {
    record.sums[sum] = HashSum<uint8_t>(keys, data, size, sum);
  }
}

struct AsItIs {
  template <typename T>
  static BASIN_HOST_DEVICE T Widen(T value) {
    return value;
  }
};

template <typename Raw, typename From>
BASIN_HOST_DEVICE double SquaresOfLane(const MeasureItem& item, uint64_t lane) {
  const auto* const values = static_cast<const Raw*>(item.data);
  const uint64_t first = lane / kNormLanes * kNormLeafElements;
  const uint64_t left = MeasuredElements(item) - first;
  const uint64_t end = first + (left < kNormLeafElements ? left : uint64_t{kNormLeafElements});
  double sum = 0.0;
  for (uint64_t i = first + lane % kNormLanes; i < end; i += kNormLanes) {
    sum = sum + Square(From::Widen(values[i]));
  }
  return sum;
}

// Thread `thread` of at least MeasureThreadsOf(item).
BASIN_HOST_DEVICE void MeasureShare(const HashKeys& keys, const MeasureItem& item,
                                    uint64_t thread) {
  const uint64_t hashing = MeasuredChunks(item) * kHashSums;
  if (thread < hashing) {
    MeasureChunk(keys, item, thread / kHashSums, static_cast<unsigned>(thread % kHashSums));
    return;
  }
  const uint64_t lane = thread - hashing;
  if (lane >= MeasuredLanes(item)) return;
  switch (item.dtype) {
    case DType::kF64:
      item.lanes[lane] = SquaresOfLane<double, AsItIs>(item, lane);
      return;
    case DType::kF16:
      item.lanes[lane] = SquaresOfLane<uint16_t, BranchlessF16>(item, lane);
      return;
    case DType::kBF16:
      item.lanes[lane] = SquaresOfLane<uint16_t, BranchlessBF16>(item, lane);
      return;
    default:
      item.lanes[lane] = SquaresOfLane<float, AsItIs>(item, lane);
  }
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_MEASURE_BODY_H_
