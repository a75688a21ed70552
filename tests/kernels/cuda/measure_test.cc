// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The digests and norms that the device computes have the bits of those that the host computes.

#include "kernels/cuda/measure.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/checksum.h"
#include "kernels/norm.h"
#include "protocol/tensor.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::kernels::cuda {
namespace {

using accelerator::Device;
using accelerator::FaultPlan;
using accelerator::MakeEmulatedDevice;
using accelerator::Memory;
using accelerator::Queue;

class MeasureTest : public testing::Test {
 protected:
  MeasureTest() : queue_(device_->MakeQueue().value()) {}

  void Measure(const MeasureItem& item) {
    MeasureTask task = {KeysOfXxh3(), {item}, 1};
    ASSERT_FALSE(queue_->Run(task).has_value());
    ASSERT_FALSE(queue_->Wait().has_value());
  }

  const std::unique_ptr<Device> device_ = MakeEmulatedDevice(std::make_shared<FaultPlan>());
  const std::unique_ptr<Queue> queue_;
};

TEST_F(MeasureTest, ContentsAreThoseOfTheHost) {
  std::mt19937_64 random(1);
  // Memory that ends with the bytes, at each alignment.
  for (const uint64_t size : {1, 16, 239, 240, 241, 255, 256, 1023, 1024, 1025, 1088, 1089, 4096,
                              100'000, 262'143, 262'144, 262'145, 600'000}) {
    for (const uint64_t shift : {0, 1, 2, 4}) {
      std::string bytes(size + shift, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      const char* const data = bytes.data() + shift;
      std::vector<ChunkRecord> records(ChunkCount(size));
      Measure({data, size, records.data(), nullptr, kChunkBytes, DType::kU8});
      for (size_t chunk = 0; chunk < records.size(); ++chunk) {
        const uint64_t begin = chunk * kChunkBytes;
        const uint64_t count = std::min(kChunkBytes, size - begin);
        ContentDigest expected;
        expected.Update(data + begin, count);
        EXPECT_EQ(ContentOf(records[chunk], count), expected.Finish())
            << size << " bytes, chunk " << chunk << ", shift " << shift;
      }
    }
  }
}

TEST_F(MeasureTest, NarrowChunksAreHalfAsLong) {
  const std::string bytes(kChunkBytes, 'x');
  std::vector<ChunkRecord> records(2);
  Measure({bytes.data(), bytes.size(), records.data(), nullptr, kChunkBytes / 2, DType::kF16});
  ContentDigest expected;
  expected.Update(bytes.data(), kChunkBytes / 2);
  const Digest half = expected.Finish();
  EXPECT_EQ(ContentOf(records[0], kChunkBytes / 2), half);
  EXPECT_EQ(ContentOf(records[1], kChunkBytes / 2), half);
}

TEST_F(MeasureTest, NormsAreThoseOfTheHost) {
  std::mt19937_64 random(2);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const uint64_t element = ElementSize(dtype);
    for (const uint64_t count :
         {uint64_t{1}, uint64_t{17}, uint64_t{32768}, uint64_t{32769}, uint64_t{70'001}}) {
      // Any bits but those of numbers that are not finite, whose norm has no bits to compare.
      std::vector<uint64_t> words((count * element + 7) / 8);
      for (uint64_t& word : words) word = random() & 0xbfff'bfff'bfff'bfff;
      std::vector<ChunkRecord> records(ChunkCount(count * element));
      std::vector<double> lanes(NormLeaves(count) * kNormLanes, -1.0);
      Measure({words.data(), count * element, records.data(), lanes.data(), kChunkBytes, dtype});
      std::vector<double> leaves;
      for (size_t leaf = 0; leaf < NormLeaves(count); ++leaf) {
        AppendNormLeaf(lanes.data() + leaf * kNormLanes, &leaves);
      }
      std::vector<double> expected;
      AppendNormLeaves(dtype, words.data(), count, &expected);
      EXPECT_EQ(leaves, expected) << DTypeName(dtype) << " " << count;
      EXPECT_GT(SquaredNorm(leaves.data(), leaves.size()), 0.0);
    }
  }
}

// Nothing is read beyond the tensor, or written.
TEST_F(MeasureTest, DTypesWithoutANormHaveNoLanes) {
  const std::string bytes(1000, 'x');
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8, DType::kF8E4M3FN}) {
    ChunkRecord record;
    double lane = -1.0;
    Measure({bytes.data(), bytes.size(), &record, &lane, kChunkBytes, dtype});
    EXPECT_EQ(lane, -1.0) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace basin::kernels::cuda
