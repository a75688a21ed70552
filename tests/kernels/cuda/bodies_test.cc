// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the threads of the copies, the casts and the searches for scales do.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cast.h"
#include "kernels/cuda/copy_body.h"
#include "kernels/cuda/magnitude_body.h"
#include "kernels/cuda/narrow_body.h"
#include "kernels/float_environment.h"
#include "kernels/norm.h"

namespace basin::kernels::cuda {
namespace {

// Every length, alignment of either side and number of threads copies these bytes and no others.
TEST(CopyBodyTest, CopiesWhatItIsGivenAndNothingElse) {
  constexpr unsigned char kUntouched = 0xee;
  alignas(16) unsigned char from[160];
  for (size_t i = 0; i < sizeof(from); ++i) from[i] = static_cast<unsigned char>(i + 1);
  for (size_t source = 0; source < 16; source += 3) {
    for (size_t destination = 0; destination < 16; ++destination) {
      for (uint64_t bytes = 0; bytes <= 100; ++bytes) {
        for (const uint64_t threads : {1, 7}) {
          alignas(16) unsigned char to[160];
          std::memset(to, kUntouched, sizeof(to));
          const CopyItem item = {from + source, to + destination, bytes};
          for (uint64_t thread = 0; thread < threads; ++thread) CopyShare(item, thread, threads);
          ASSERT_EQ(std::memcmp(to + destination, from + source, bytes), 0);
          for (size_t i = 0; i < sizeof(to); ++i) {
            if (i >= destination && i < destination + bytes) continue;
            ASSERT_EQ(to[i], kUntouched) << "byte " << i << " of " << bytes;
          }
        }
      }
    }
  }
}

// Numbers of all kinds, those that overflow or vanish in 16 bits too.
std::vector<float> AnyFloats(size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<float> floats(count);
  for (float& each : floats) {
    each = std::ldexp(1.0F + static_cast<float>(random() % 8192) / 8192,
                      static_cast<int>(random() % 60) - 35);
    if (random() % 2 == 0) each = -each;
    if (random() % 5000 == 0) each = std::numeric_limits<float>::denorm_min();
    if (random() % 100000 == 0) each = std::numeric_limits<float>::infinity();
  }
  return floats;
}

// The elements are those of the CPU's cast, and the norm is that of the CPU, whatever the number of
// elements; nothing else is written.
TEST(NarrowBodyTest, CastsAndAddsUpLikeTheCpu) {
  constexpr uint16_t kUntouched = 0xeeee;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{17}, size_t{256},
                               size_t{1000}, kNormLeafElements - 1, kNormLeafElements,
                               kNormLeafElements + 1, 3 * kNormLeafElements + 4321}) {
      for (const int exponent : {0, 15, -126}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " " << count << " " << exponent);
        const std::vector<float> from = AnyFloats(count);
        std::vector<uint16_t> wanted(count);
        CastToWire(from.data(), count, dtype, exponent, wanted.data());
        std::vector<double> wanted_leaves;
        AppendNormLeaves(DType::kF32, from.data(), count, &wanted_leaves);

        std::vector<uint16_t> to(count + 8, kUntouched);
        const size_t leaves = NormLeaves(count);
        std::vector<double> lanes(leaves * kNormLanes + 8, -1.0);
        const NarrowItem item = {
            from.data(), to.data(), lanes.data(), count, std::ldexp(1.0F, exponent), dtype};
        {
          const ScopedFloatEnvironment environment;
          for (uint64_t thread = NarrowThreadsOf(item) + 3; thread-- > 0;) {
            NarrowShare(item, thread);
          }
        }
        std::vector<double> got_leaves;
        for (size_t leaf = 0; leaf < leaves; ++leaf) {
          AppendNormLeaf(&lanes[leaf * kNormLanes], &got_leaves);
        }
        EXPECT_EQ(got_leaves, wanted_leaves);
        EXPECT_EQ(std::vector<double>(8, -1.0), std::vector<double>(lanes.end() - 8, lanes.end()));
        wanted.resize(count + 8, kUntouched);
        EXPECT_EQ(to, wanted);
      }
    }
  }
}

// A largest magnitude instead of a scale gives the bits of the exponent that fits it.
TEST(NarrowBodyTest, FitsTheScaleToTheLargestMagnitude) {
  for (const float largest :
       {0.0F, 1e-40F, 3e-20F, 1.0F, 65520.0F, 3e38F, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    SCOPED_TRACE(largest);
    std::vector<float> from;
    for (int i = 0; i < 100; ++i) from.push_back(std::ldexp(largest, -i) * (i % 2 == 0 ? -1 : 1));
    const uint32_t magnitude = LargestMagnitude(from.data(), from.size());
    std::vector<uint16_t> wanted(from.size());
    CastToWire(from.data(), from.size(), DType::kF16, FittedExponent(magnitude), wanted.data());
    std::vector<uint16_t> to(from.size());
    std::vector<double> lanes(kNormLanes);
    NarrowItem item = {from.data(), to.data(), lanes.data(), from.size(), 3.0F, DType::kF16};
    item.largest = &magnitude;
    const ScopedFloatEnvironment environment;
    for (uint64_t thread = 0; thread < NarrowThreadsOf(item); ++thread) NarrowShare(item, thread);
    EXPECT_EQ(to, wanted);
  }
}

// Whatever the number of threads, and wherever the largest one is.
TEST(MagnitudeBodyTest, TheSharesOfAllThreadsHaveTheLargestMagnitude) {
  for (const size_t count : {0, 1, 2, 31, 1000}) {
    for (const uint64_t threads : {1, 2, 7, 64}) {
      for (size_t at = 0; at < count; at += 13) {
        std::vector<float> from = AnyFloats(count);
        from[at] = at % 2 == 0 ? -3e38F : std::numeric_limits<float>::quiet_NaN();
        const MagnitudeItem item = {from.data(), nullptr, count};
        uint32_t largest = 0;
        for (uint64_t thread = 0; thread < threads; ++thread) {
          largest = std::max(largest, LargestOfShare(item, thread, threads));
        }
        EXPECT_EQ(largest, BitsOfF32(from[at]) & kMagnitudeMaskF32);
        EXPECT_EQ(largest, LargestMagnitude(from.data(), count));
      }
    }
  }
}

}  // namespace
}  // namespace basin::kernels::cuda
