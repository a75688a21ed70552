// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Layout LayoutOf(const std::vector<uint64_t>& bytes) {
  Layout layout;
  for (const uint64_t size : bytes) {
    layout.Append({std::to_string(layout.version()), DType::kU8, {size}});
  }
  return layout;
}

Placement PlacementOn(const std::vector<ShardId>& shards, std::vector<ShardId> lost = {}) {
  Placement placement{1, 0, {}, std::move(lost)};
  for (const ShardId shard : shards) placement.shards.push_back({shard, "s", "host:1"});
  return placement;
}

Shares SharesOf(const Placement& placement, const Layout& layout) {
  return {placement, layout, layout.version()};
}

std::vector<ShardId> OfEach(const Shares& shares, const Layout& layout) {
  std::vector<ShardId> of;
  for (uint32_t flat = 0; flat < layout.chunks(); ++flat) of.push_back(shares.Of(layout, flat));
  return of;
}

std::map<ShardId, uint64_t> BytesOf(const Shares& shares, const Layout& layout) {
  std::map<ShardId, uint64_t> bytes;
  for (uint32_t flat = 0; flat < layout.chunks(); ++flat) {
    bytes[shares.Of(layout, flat)] += layout.SizeOf(flat);
  }
  return bytes;
}

// The runs of one shard: (shard, chunks).
std::vector<std::pair<ShardId, uint32_t>> Runs(const Shares& shares, const Layout& layout) {
  std::vector<std::pair<ShardId, uint32_t>> runs;
  for (const ShardId shard : OfEach(shares, layout)) {
    if (runs.empty() || runs.back().first != shard) runs.emplace_back(shard, 0);
    ++runs.back().second;
  }
  return runs;
}

double MaxOverMean(const std::map<ShardId, uint64_t>& bytes, size_t shards) {
  uint64_t total = 0;
  uint64_t most = 0;
  for (const auto& [shard, of] : bytes) {
    total += of;
    most = std::max(most, of);
  }
  return static_cast<double>(most) * static_cast<double>(shards) / static_cast<double>(total);
}

TEST(Placement, WithoutOneEverythingIsOnTheCoordinator) {
  const Layout layout = LayoutOf({kChunkBytes * 9});
  for (const Shares& shares : {Shares(), SharesOf(Placement{}, layout)}) {
    EXPECT_TRUE(shares.single());
    EXPECT_EQ(shares.First(), kCoordinatorShard);
    EXPECT_EQ(shares.Of(layout, 8), kCoordinatorShard);
  }
}

// A change of the rule would place chunks apart from where workers of another version send them.
TEST(Placement, TheCutsAreFixed) {
  const Layout layout =
      LayoutOf({5 * kChunkBytes, 100, 4 * kChunkBytes + 8, 0, 3, 2 * kChunkBytes});
  const auto runs = [&layout](Placement placement) {
    placement.least_bytes = 2 * kChunkBytes;  // Parts for several turns would be smaller.
    return Runs(SharesOf(placement, layout), layout);
  };
  EXPECT_THAT(runs(PlacementOn({0})), ElementsAre(Pair(0, 14)));
  EXPECT_THAT(runs(PlacementOn({0, 7})), ElementsAre(Pair(0, 6), Pair(7, 8)));
  EXPECT_THAT(runs(PlacementOn({2, 0, 1})), ElementsAre(Pair(2, 4), Pair(0, 4), Pair(1, 6)));
  EXPECT_THAT(runs(PlacementOn({0, 1, 2, 3, 4})),
              ElementsAre(Pair(0, 2), Pair(1, 2), Pair(2, 4), Pair(3, 2), Pair(4, 4)));
  EXPECT_THAT(runs(PlacementOn({2, 0, 1}, {0})), ElementsAre(Pair(2, 6), Pair(1, 8)));
  EXPECT_THAT(runs(PlacementOn({2, 0, 1}, {1, 2})), ElementsAre(Pair(0, 14)));
}

TEST(Placement, ALargeLaneIsDealtInTurns) {
  const Layout layout = LayoutOf({7 * kChunkBytes + 1, 3 * kChunkBytes, 14 * kChunkBytes});
  Placement placement = PlacementOn({0, 1, 2});
  placement.least_bytes = kChunkBytes;
  // 24 chunks and a byte: two turns of 4 chunks each, the byte is a chunk of the first tensor.
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout),
              ElementsAre(Pair(0, 4), Pair(1, 5), Pair(2, 4), Pair(0, 4), Pair(1, 4), Pair(2, 4)));
  placement.lost = {1};
  // What shard 1 had is dealt in one turn, because two would have too small parts.
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout),
              ElementsAre(Pair(0, 9), Pair(2, 4), Pair(0, 4), Pair(2, 8)));
}

// A backward pushes the layers in some order, one after the other. Whatever the order, the links of
// all shards have something to do.
TEST(Placement, EachEighthOfTheLayersIsOnAllShards) {
  const Layout layout = LayoutOf(std::vector<uint64_t>(64, 16 * kChunkBytes));
  const std::vector<ShardId> shards = {0, 1, 2, 3, 4, 5, 6, 7};
  Placement placement = PlacementOn(shards);
  placement.least_bytes = kLeastShare;
  const std::vector<ShardId> of = OfEach(SharesOf(placement, layout), layout);
  for (size_t eighth = 0; eighth < 8; ++eighth) {
    std::map<ShardId, int> chunks;
    for (size_t i = 0; i < of.size() / 8; ++i) ++chunks[of[eighth * of.size() / 8 + i]];
    ASSERT_EQ(chunks.size(), shards.size());
    for (const auto& [shard, count] : chunks) EXPECT_EQ(count, 16) << shard;
  }
}

TEST(Placement, SharesAreEqual) {
  std::vector<uint64_t> model(600, 3000);  // Many small tensors between large ones.
  for (int i = 0; i < 40; ++i) model[static_cast<size_t>(i) * 15] = 23 * kChunkBytes / 4;
  model.push_back(300 * kChunkBytes + 17);
  const Layout layout = LayoutOf(model);
  for (ShardId count = 1; count <= 5; ++count) {
    std::vector<ShardId> shards(count);
    std::iota(shards.begin(), shards.end(), 0);
    const Shares shares = SharesOf(PlacementOn(shards), layout);
    EXPECT_LE(MaxOverMean(BytesOf(shares, layout), count), 1.02) << count;
  }
}

TEST(Placement, ALossMovesOnlyWhatTheLostShardHadAndKeepsSharesEqual) {
  const Layout layout = LayoutOf({700 * kChunkBytes, 100, 300 * kChunkBytes + 1});
  const std::vector<ShardId> shards = {0, 1, 2, 3, 4};
  std::vector<ShardId> lost;
  std::vector<ShardId> before = OfEach(SharesOf(PlacementOn(shards), layout), layout);
  for (const ShardId gone : {2, 4, 0, 1}) {
    lost.push_back(gone);
    const Shares shares = SharesOf(PlacementOn(shards, lost), layout);
    const std::vector<ShardId> after = OfEach(shares, layout);
    for (size_t flat = 0; flat < after.size(); ++flat) {
      if (before[flat] != gone) {
        EXPECT_EQ(after[flat], before[flat]);
      }
    }
    EXPECT_LE(MaxOverMean(BytesOf(shares, layout), shards.size() - lost.size()), 1.02);
    before = after;
  }
}

TEST(Placement, ASmallLaneStaysOnTheFirstShardThatIsLeft) {
  const Layout layout = LayoutOf({kLeastShare, 2 * kLeastShare - 1});
  Placement placement = PlacementOn({3, 1, 2});
  placement.least_bytes = kLeastShare;
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout), ElementsAre(Pair(3, layout.chunks())));
  placement.lost = {1};
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout), ElementsAre(Pair(3, layout.chunks())));
  placement.lost = {1, 3};
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout), ElementsAre(Pair(2, layout.chunks())));

  const Layout enough = LayoutOf({kLeastShare, 2 * kLeastShare});
  placement.lost.clear();
  EXPECT_EQ(BytesOf(SharesOf(placement, enough), enough).size(), 3u);
}

// A coordinator that is to hold nothing counts as lost from the start.
TEST(Placement, TheFirstShardMayHoldNothingUntilItIsTheOnlyOne) {
  Layout layout = LayoutOf({100 * kChunkBytes, 4, 60 * kChunkBytes});
  Placement placement = PlacementOn({0, 1, 2}, {0});
  const Shares shares = SharesOf(placement, layout);
  EXPECT_EQ(shares.Left().size(), 2u);
  EXPECT_EQ(shares.First(), 1u);
  const std::map<ShardId, uint64_t> bytes = BytesOf(shares, layout);
  EXPECT_EQ(bytes.count(0), 0u);
  EXPECT_LE(MaxOverMean(bytes, 2), 1.02);
  // This holds for tensors that come later, too.
  for (const uint64_t size : {3 * kChunkBytes, uint64_t{5}, 4 * kChunkBytes}) {
    layout.Append({std::to_string(layout.version()), DType::kU8, {size}});
  }
  EXPECT_EQ(BytesOf(Shares(placement, layout, 3), layout).count(0), 0u);
  placement.lost = {0, 2};
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout), ElementsAre(Pair(1, layout.chunks())));
  placement.lost = {2, 1};
  EXPECT_THAT(Runs(SharesOf(placement, layout), layout), ElementsAre(Pair(0, layout.chunks())));
  placement = PlacementOn({0, 1, 2}, {0});
  placement.least_bytes = kLeastShare;
  const Layout small = LayoutOf({100, 5});
  EXPECT_THAT(Runs(SharesOf(placement, small), small), ElementsAre(Pair(1, 2)));
}

TEST(Placement, TensorsThatWereRegisteredLaterMoveNothing) {
  Layout layout = LayoutOf({6 * kChunkBytes, 4});
  Placement placement = PlacementOn({0, 1, 2});
  placement.least_bytes = 2 * kChunkBytes;
  const Shares shares = SharesOf(placement, layout);
  const std::vector<ShardId> before = OfEach(shares, layout);
  for (const uint64_t size : {2 * kChunkBytes, uint64_t{5}, 9 * kChunkBytes, 3 * kChunkBytes}) {
    layout.Append({std::to_string(layout.version()), DType::kU8, {size}});
  }
  const std::vector<ShardId> after = OfEach(shares, layout);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
  // Whole and in turn, and the small one is on the first.
  EXPECT_EQ(shares.Of(layout, layout.FirstChunk(2)), 0u);
  EXPECT_EQ(shares.Of(layout, layout.FirstChunk(3)), 0u);
  EXPECT_EQ(shares.Of(layout, layout.FirstChunk(4)), 2u);
  EXPECT_EQ(shares.Of(layout, layout.FirstChunk(4) + 8), 2u);
  EXPECT_EQ(shares.Of(layout, layout.FirstChunk(5)), 0u);

  placement.lost = {2};
  const Shares less(placement, layout, 2);
  EXPECT_EQ(less.Of(layout, layout.FirstChunk(4)), 0u) << "number 2 modulo 2 of those left";
  EXPECT_EQ(less.Of(layout, layout.FirstChunk(5)), 0u);
}

// Every chunk has one shard that is left, splits agree with single chunks, a part is contiguous,
// and no share is larger than the mean by more than a chunk.
TEST(Placement, HoldsForRandomLayoutsAndLosses) {
  std::mt19937_64 random(11);
  const auto below = [&random](uint64_t bound) { return random() % bound; };
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<uint64_t> sizes(1 + below(30));
    for (uint64_t& size : sizes) size = below(3) == 0 ? below(40 * kChunkBytes) : below(9000);
    const Layout layout = LayoutOf(sizes);
    const auto cut = static_cast<uint32_t>(below(layout.version() + 1));
    std::vector<ShardId> shards(1 + below(6));
    std::iota(shards.begin(), shards.end(), 0);
    std::shuffle(shards.begin(), shards.end(), random);
    std::vector<ShardId> lost = shards;
    std::shuffle(lost.begin(), lost.end(), random);
    lost.resize(below(shards.size()));
    Placement placement = PlacementOn(shards, lost);
    placement.least_bytes = below(2) * below(4 * kChunkBytes);
    const Shares shares(placement, layout, cut);
    const std::vector<ShardId> of = OfEach(shares, layout);
    for (const ShardId shard : of) ASSERT_TRUE(placement.Has(shard)) << trial;
    for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
      const uint32_t chunks = layout.TensorChunks(tensor);
      if (chunks == 0) continue;
      const auto first = static_cast<uint32_t>(below(chunks));
      const ChunkRange range{tensor, first, 1 + static_cast<uint32_t>(below(chunks - first))};
      uint32_t at = range.first;
      shares.Split(layout, range, [&](ShardId shard, const ChunkRange& part) {
        ASSERT_EQ(part.tensor, tensor);
        ASSERT_EQ(part.first, at);
        for (; at < part.first + part.count; ++at) {
          ASSERT_EQ(of[layout.FirstChunk(tensor) + at], shard);
        }
      });
      ASSERT_EQ(at, range.first + range.count);
    }
    if (!lost.empty() || placement.least_bytes > 0 || cut < layout.version()) continue;
    for (const auto& [shard, bytes] : BytesOf(shares, layout)) {
      ASSERT_LE(bytes, layout.bytes() / shards.size() + kChunkBytes) << trial;
    }
  }
}

}  // namespace
}  // namespace basin
