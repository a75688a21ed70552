// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace basin::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

Digest DigestOf(std::string_view name, const Bytes& bytes, uint64_t first_block = 0) {
  RangeDigest digest(TensorKey(name), first_block);
  digest.Update(bytes.data(), bytes.size());
  return digest.Finish();
}

// Lengths around every boundary: of XXH3's own code paths, of a block, and of copying in pieces.
const size_t kSizes[] = {0,
                         1,
                         16,
                         17,
                         128,
                         240,
                         241,
                         1024,
                         4096,
                         9999,
                         16383,
                         16384,
                         16385,
                         65537,
                         kDigestBlockBytes - 1,
                         kDigestBlockBytes,
                         kDigestBlockBytes + 1,
                         3 * kDigestBlockBytes + 12345};

// The checksum is plain XXH3_64bits, as other programs compute it.
TEST(ChecksumTest, KnownValues) {
  EXPECT_EQ(ChecksumOf("", 0), 0x2d06800538d394c2u);
  EXPECT_EQ(ChecksumOf("hello, world", 12), 0x302cd5fba73d006cu);
  const std::string_view hello = "hello, world";
  Checksum checksum;
  checksum.Update(hello.data(), hello.size());
  EXPECT_EQ(checksum.value(), ChecksumOf(hello.data(), hello.size()));
}

TEST(ChecksumTest, PiecesDoNotMatter) {
  std::mt19937 random(7);
  Checksum checksum;
  for (size_t size : kSizes) {
    const Bytes bytes = RandomBytes(size, 1);
    const uint64_t whole = ChecksumOf(bytes.data(), size);
    for (size_t largest : {1u, 100u, 4096u, 1u << 20}) {
      if (size > 100000 && largest == 1) continue;  // Byte by byte adds nothing there.
      checksum.Reset();
      for (size_t at = 0; at < size;) {
        const size_t piece = std::min<size_t>(size - at, random() % (largest + 1));  // Also 0.
        checksum.Update(bytes.data() + at, piece);
        at += piece;
      }
      EXPECT_EQ(checksum.value(), whole) << size << " bytes in pieces of up to " << largest;
    }
  }
}

TEST(ChecksumTest, SeesEveryFlippedBit) {
  Bytes bytes = RandomBytes(3000, 2);
  const uint64_t before = ChecksumOf(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= 1u << (bit % 8);
    EXPECT_NE(ChecksumOf(bytes.data(), bytes.size()), before) << "bit " << bit;
    bytes[bit / 8] ^= 1u << (bit % 8);
  }
}

TEST(DigestTest, AddsWithCarryAndTakesBack) {
  Digest sum{~uint64_t{0}, 1};
  sum += Digest{1, 0};
  EXPECT_EQ(sum, (Digest{0, 2}));
  sum -= Digest{1, 0};
  EXPECT_EQ(sum, (Digest{~uint64_t{0}, 1}));
  const Digest& same = sum;
  sum += same;
  EXPECT_EQ(sum, (Digest{~uint64_t{0} - 1, 3}));
  sum -= same;
  EXPECT_EQ(sum, Digest{});
}

// The digest is part of the protocol: these values must never change. They were computed from the
// formula in checksum.h by a few lines of Python.
TEST(DigestTest, KnownValues) {
  EXPECT_EQ(DigestOf("weight", {}), (Digest{0x382126cf147230aa, 0x6ea840d45845e5da}));
  EXPECT_EQ(DigestOf("weight", {1, 2, 3}), (Digest{0x3bfb3859059aa129, 0x5c141e15095d3e62}));
  Bytes counted(kDigestBlockBytes + 1000);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<uint8_t>(i * i >> 3);
  EXPECT_EQ(DigestOf("layer3.weight", counted), (Digest{0xa292885ec03d37fa, 0x74b192e9df859353}));
}

TEST(DigestTest, SlicesDoNotMatter) {
  std::mt19937 random(11);
  for (size_t size : kSizes) {
    const Bytes bytes = RandomBytes(size, 3);
    const Digest whole = DigestOf("t", bytes);
    RangeDigest digest(TensorKey("t"), 0);
    for (size_t largest : {7u, 1000u, 1u << 19}) {
      if (size > 100000 && largest == 7) continue;
      digest.Restart(TensorKey("t"), 0);
      for (size_t at = 0; at < size;) {
        const size_t piece = std::min<size_t>(size - at, random() % (largest + 1));
        digest.Update(bytes.data() + at, piece);
        at += piece;
      }
      EXPECT_EQ(digest.Finish(), whole) << size << " bytes in slices of up to " << largest;
    }
  }
}

// One tensor digested as ranges of blocks, in random order, cut at random blocks.
TEST(DigestTest, RangesAndArrivalDoNotMatter) {
  constexpr size_t kBlocks = 9;
  const Bytes bytes = RandomBytes((kBlocks - 1) * kDigestBlockBytes + 77, 4);
  const Digest whole = DigestOf("t", bytes);
  std::mt19937 random(13);
  for (int round = 0; round < 20; ++round) {
    std::vector<size_t> cuts = {0, kBlocks};
    for (size_t block = 1; block < kBlocks; ++block) {
      if (random() % 2 == 0) cuts.push_back(block);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    Digest sum;
    for (size_t range : order) {
      const size_t begin = cuts[range] * kDigestBlockBytes;
      const size_t end = std::min(bytes.size(), cuts[range + 1] * kDigestBlockBytes);
      sum += DigestOf("t", Bytes(bytes.begin() + begin, bytes.begin() + end), cuts[range]);
    }
    EXPECT_EQ(sum, whole);
  }
}

// Planted faults: each must change the digest of the set of tensors {a, b}.
class PlantedFaultTest : public ::testing::Test {
 protected:
  Digest Both() const {
    Digest sum = DigestOf("a", a_);
    sum += DigestOf("b", b_);
    return sum;
  }

  void SwapBlocks(Bytes& x, size_t i, Bytes& y, size_t j) {
    std::swap_ranges(x.begin() + i * kDigestBlockBytes, x.begin() + (i + 1) * kDigestBlockBytes,
                     y.begin() + j * kDigestBlockBytes);
  }

  Bytes a_ = RandomBytes(3 * kDigestBlockBytes, 5);
  Bytes b_ = RandomBytes(3 * kDigestBlockBytes, 6);
  const Digest before_ = Both();
};

TEST_F(PlantedFaultTest, FlippedBit) {
  for (size_t at : {size_t{0}, kDigestBlockBytes - 1, kDigestBlockBytes, a_.size() - 1}) {
    a_[at] ^= 0x10;
    EXPECT_NE(Both(), before_) << "byte " << at;
    a_[at] ^= 0x10;
  }
  EXPECT_EQ(Both(), before_);
}

TEST_F(PlantedFaultTest, BlocksOfOneTensorSwapped) {
  SwapBlocks(a_, 0, a_, 2);
  EXPECT_NE(Both(), before_);
}

TEST_F(PlantedFaultTest, SameBlocksOfTwoTensorsSwapped) {
  SwapBlocks(a_, 1, b_, 1);
  EXPECT_NE(Both(), before_);
}

TEST_F(PlantedFaultTest, TensorsSwapped) {
  std::swap(a_, b_);
  EXPECT_NE(Both(), before_);
}

// Without keys the terms of x, x and y, y would equal those of x, y and x, y.
TEST_F(PlantedFaultTest, EqualBlocksMovedBetweenTensors) {
  const Bytes x = RandomBytes(kDigestBlockBytes, 7);
  const Bytes y = RandomBytes(kDigestBlockBytes, 8);
  Digest same = DigestOf("a", x);
  same += DigestOf("a", x, 1);
  same += DigestOf("b", y);
  same += DigestOf("b", y, 1);
  Digest crossed = DigestOf("a", x);
  crossed += DigestOf("a", y, 1);
  crossed += DigestOf("b", x);
  crossed += DigestOf("b", y, 1);
  EXPECT_NE(same, crossed);
}

TEST_F(PlantedFaultTest, StaleBlock) {
  const Bytes older = RandomBytes(kDigestBlockBytes, 9);
  std::copy(older.begin(), older.end(), b_.begin() + kDigestBlockBytes);
  EXPECT_NE(Both(), before_);
}

TEST_F(PlantedFaultTest, BlockLostOrDoubled) {
  Digest sum = before_;
  const Bytes last(a_.begin() + 2 * kDigestBlockBytes, a_.end());
  sum -= DigestOf("a", last, 2);
  EXPECT_EQ(sum, [this] {
    Digest rest = DigestOf("a", Bytes(a_.begin(), a_.begin() + 2 * kDigestBlockBytes));
    rest += DigestOf("b", b_);
    return rest;
  }());
  EXPECT_NE(sum, before_);
  sum += DigestOf("a", last, 2);
  EXPECT_EQ(sum, before_);
  sum += DigestOf("a", last, 2);
  EXPECT_NE(sum, before_);
}

TEST_F(PlantedFaultTest, ShortenedByZeros) {
  Bytes padded = a_;
  padded.resize(padded.size() + 5);  // Zeros.
  EXPECT_NE(DigestOf("a", padded), DigestOf("a", a_));
}

TEST(DigestTest, TensorWithoutBytesIsNotNoTensor) {
  EXPECT_NE(DigestOf("a", {}), Digest{});
  EXPECT_NE(DigestOf("a", {}), DigestOf("b", {}));
  EXPECT_NE(DigestOf("a", {}), DigestOf("a", {0}));
}

TEST(CopyAndHashTest, CopiesAndGivesTheHashOfTheBytes) {
  for (size_t size : kSizes) {
    for (size_t offset : {0u, 1u, 3u}) {
      const Bytes source = RandomBytes(size + offset, 10);
      Bytes copy(size + offset + 1, 0xee);
      Checksum checksum;
      CopyAndHash(copy.data() + offset, source.data() + offset, size, &checksum);
      EXPECT_EQ(checksum.value(), ChecksumOf(source.data() + offset, size));
      EXPECT_TRUE(std::equal(source.begin() + offset, source.end(), copy.begin() + offset));
      EXPECT_EQ(copy.back(), 0xee) << "wrote beyond the end";

      RangeDigest digest(TensorKey("t"), 5);
      CopyAndHash(copy.data() + offset, source.data() + offset, size, &digest);
      EXPECT_EQ(digest.Finish(), DigestOf("t", Bytes(source.begin() + offset, source.end()), 5));
    }
  }
}

}  // namespace
}  // namespace basin::kernels
