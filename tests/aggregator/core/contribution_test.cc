// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A contribution alone, and the spec that several of them agree on.

#include "aggregator/core/contribution.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "aggregator/core/spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using State = ContributionState;

TEST(ContributionTable, HasNoShortCuts) {
  std::set<State> left;
  for (const ContributionTransition& row : kContributionTransitions) left.insert(row.from);
  EXPECT_EQ(left.count(State::kDropped), 0u) << "a dropped contribution is never counted again";
  const auto leads = [](State from, State to) {
    return std::any_of(
        std::begin(kContributionTransitions), std::end(kContributionTransitions),
        [&](const ContributionTransition& row) { return row.from == from && row.to == to; });
  };
  EXPECT_FALSE(leads(State::kAwaited, State::kCommitted)) << "a commit comes after a begin";
  EXPECT_FALSE(leads(State::kBegun, State::kEffective)) << "it is effective only after a commit";
}

// One tensor of two chunks, and one of a single byte.
struct Sent {
  Sent() {
    layout.Append({"large", DType::kU8, {kChunkBytes + 1}});
    layout.Append({"small", DType::kU8, {1}});
    contribution.Grow(layout, BytesFrom(layout, Shares(), 0));
  }
  Commit CommitOf(std::vector<TensorIndex> tensors) const {
    Commit commit;
    commit.layout_version = layout.version();
    commit.present.Resize(layout.version());
    for (const TensorIndex tensor : tensors) {
      commit.present.Set(tensor);
      commit.chunks += layout.TensorChunks(tensor);
      commit.bytes += layout.TensorSize(tensor);
    }
    commit.digest = contribution.digest();
    return commit;
  }
  Layout layout;
  Contribution contribution;
};

TEST(ContributionTest, CountsWhatIsMissingAndWhatIsParked) {
  Sent sent;
  EXPECT_EQ(sent.contribution.missing().total(), kChunkBytes + 2);
  sent.contribution.OnChunk(0, kChunkBytes, 11, kCoordinatorShard);
  EXPECT_EQ(sent.contribution.parked().total(), kChunkBytes);
  EXPECT_TRUE(sent.contribution.OnSkip(sent.layout, Shares(), 1));
  EXPECT_FALSE(sent.contribution.OnSkip(sent.layout, Shares(), 1)) << "it is skipped already";
  EXPECT_EQ(sent.contribution.missing().total(), 1u);
  sent.contribution.OnChunk(1, 1, 5, kCoordinatorShard);
  EXPECT_EQ(sent.contribution.missing().total(), 0u);
  EXPECT_EQ(sent.contribution.digest(), 16u);
  sent.contribution.NoteReduced(0, kChunkBytes, kCoordinatorShard);
  EXPECT_EQ(sent.contribution.parked().total(), 1u);
  // Only the second chunk is still parked.
  EXPECT_TRUE(sent.contribution.TakeBack(0, kChunkBytes, kCoordinatorShard, false));
  EXPECT_TRUE(sent.contribution.TakeBack(1, 1, kCoordinatorShard, true));
  EXPECT_FALSE(sent.contribution.TakeBack(1, 1, kCoordinatorShard, true))
      << "it was taken back already";
  EXPECT_EQ(sent.contribution.parked().total(), 0u);
  EXPECT_EQ(sent.contribution.missing().total(), kChunkBytes + 1);
  EXPECT_EQ(sent.contribution.digest(), 0u);
  EXPECT_TRUE(sent.contribution.Knows(0)) << "its digest shows whether other bytes arrive";
}

TEST(ContributionTest, GrowsByWhatIsNew) {
  Sent sent;
  sent.contribution.OnChunk(2, 1, 7, kCoordinatorShard);
  sent.layout.Append({"late", DType::kU8, {3}});
  sent.contribution.Grow(sent.layout, BytesFrom(sent.layout, Shares(), 2));
  EXPECT_EQ(sent.contribution.missing().total(), kChunkBytes + 1 + 3);
  EXPECT_TRUE(sent.contribution.Has(2));
  EXPECT_FALSE(sent.contribution.Has(3));
}

TEST(ContributionTest, ACommitIsComparedWithWhatWasSent) {
  Sent sent;
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, sent.CommitOf({0})),
            "comes without a begin");
  sent.contribution.Apply(ContributionInput::kBegin);
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, sent.CommitOf({0})), "");
  sent.contribution.OnChunk(2, 1, 7, kCoordinatorShard);
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, sent.CommitOf({0})),
            "leaves out a tensor that it pushed");
  sent.contribution.OnSkip(sent.layout, Shares(), 0);
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, sent.CommitOf({0, 1})),
            "claims a tensor that it skipped");
  Commit commit = sent.CommitOf({1});
  commit.bytes = 2;
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, commit),
            "claims 1 chunks and 2 bytes, but its tensors have 1 and 1");
  commit = sent.CommitOf({1});
  ++commit.layout_version;
  EXPECT_EQ(sent.contribution.WhatIsWrongWith(sent.layout, commit),
            "names a layout that does not exist");
}

TEST(ContributionTest, OneThatNoLongerCountsKeepsNoChunks) {
  Sent sent;
  EXPECT_TRUE(sent.contribution.Apply(ContributionInput::kBegin));
  sent.contribution.OnChunk(2, 1, 7, kCoordinatorShard);
  EXPECT_FALSE(sent.contribution.Apply(ContributionInput::kComplete)) << "it has no commit";
  EXPECT_TRUE(sent.contribution.Has(2));
  EXPECT_TRUE(sent.contribution.Apply(ContributionInput::kWithdraw));
  EXPECT_FALSE(sent.contribution.counts());
  EXPECT_FALSE(sent.contribution.begun());
  EXPECT_FALSE(sent.contribution.Has(2));
  EXPECT_EQ(sent.contribution.parked().total(), 0u);
}

TEST(ChooseSpecTest, TakesTheMostCommonUnlessTheLanesLastIsAskedFor) {
  RoundSpec average;
  average.op = ReduceOp::kAverage;
  RoundSpec sum;
  sum.op = ReduceOp::kSum;
  RoundSpec max;
  max.op = ReduceOp::kMax;
  EXPECT_EQ(ChooseSpec({&sum, &average, &average}, std::nullopt), 1u);
  EXPECT_EQ(ChooseSpec({&sum, &average}, std::nullopt), 0u) << "on a tie, the first one is chosen";
  EXPECT_EQ(ChooseSpec({&average, &average, &sum}, sum), 2u);
  EXPECT_EQ(ChooseSpec({&average, &sum, &sum}, max), 1u) << "no contributor requests it";
}

}  // namespace
}  // namespace basin::aggregator
