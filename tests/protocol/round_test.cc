// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/round.h"

#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/ids.h"

namespace basin {
namespace {

RoundValue Value() {
  RoundValue value;
  value.outcome = Outcome::kCommitted;
  value.contributors = {{"w-0", {1700000000, 1}, 1}, {"w-1", {1700000000, 2}, 3}};
  value.divisor = 4;
  value.layout_version = 3;
  value.digest = 0x0123456789abcdef;
  return value;
}

// Chains are kept by workers across releases, so these numbers may never change.
TEST(Chain, IsStableAcrossVersions) {
  EXPECT_EQ(MixChain(0, 0), 0x6db6ca64564daeaa);
  EXPECT_EQ(MixChain(1, 2), 0xfccac7c96d3a1e78);
  EXPECT_EQ(ExtendChain(0, 1, Value()), 0xe7094761052f7d11);
  EXPECT_EQ(ExtendChain(ExtendChain(0, 1, Value()), 2, Value()), 0xfee03d232664bc1b);
}

TEST(Chain, CommitsToWhatWasDecided) {
  const uint64_t chain = ExtendChain(7, 1, Value());
  EXPECT_EQ(ExtendChain(7, 1, Value()), chain);
  EXPECT_NE(ExtendChain(8, 1, Value()), chain);
  EXPECT_NE(ExtendChain(7, 2, Value()), chain);
  const auto differs = [&](auto&& change) {
    RoundValue value = Value();
    change(value);
    return ExtendChain(7, 1, value) != chain;
  };
  EXPECT_TRUE(differs([](RoundValue& v) { v.outcome = Outcome::kAborted; }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.digest ^= 1; }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.contributors.pop_back(); }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.contributors[0].worker = "w-2"; }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.contributors[0].incarnation.term += 1; }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.contributors[0].ranks = 2; }));
  EXPECT_TRUE(differs([](RoundValue& v) { v.contributors[0].incarnation.counter += 1; }));
  // Names are delimited: "a" + "bc" is not "ab" + "c".
  RoundValue left = Value();
  RoundValue right = Value();
  left.contributors = {{"a", {}, 1}, {"bc", {}, 1}};
  right.contributors = {{"ab", {}, 1}, {"c", {}, 1}};
  EXPECT_NE(ExtendChain(0, 1, left), ExtendChain(0, 1, right));
}

// The digest of the bytes also fits another weight if the aggregator itself used that.
TEST(Decision, Fault_N8_CoversEverythingThatWasDecided) {
  RoundValue decided = Value();
  decided.spec.op = ReduceOp::kWeightedAverage;
  decided.spec.weight_by = WeightBy::kSamples;
  decided.dropped = {"w-7"};
  decided.tensor_divisors = {{1, 3}};
  decided.facts.totals.samples = 4;
  EXPECT_TRUE(IsAsDecided(decided)) << "an earlier aggregator says nothing";
  decided.decision = DecisionOf(decided);
  EXPECT_TRUE(IsAsDecided(decided));
  const auto seen = [&](auto&& change) {
    RoundValue value = decided;
    change(value);
    return !IsAsDecided(value);
  };
  EXPECT_TRUE(seen([](RoundValue& v) { v.outcome = Outcome::kAborted; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.op = ReduceOp::kAverage; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.prescale = 0.5; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.postscale = 0.5; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.predivide = 2; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.auto_predivide = true; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.kind = ContributionKind::kSum; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.weight_by = WeightBy::kTokens; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.denominator = Denominator::kPresent; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.loss_scale = 2; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.spec.layout = 1; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].weight = 7; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].worker = "w-2"; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].incarnation.term ^= 1; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].incarnation.counter ^= 1; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].ranks = 3; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors[1].reduced_with = {"w-3"}; }));
  EXPECT_TRUE(
      seen([](RoundValue& v) { v.contributors[1].local_reduction = LocalReduction::kFast; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contributors.pop_back(); }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.dropped.clear(); }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.divisor = 5; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.tensor_divisors[0].divisor = 4; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.tensor_divisors[0].tensor = 2; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.layout_version = 4; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.digest ^= 1; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.facts.totals.samples = 8; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.facts.totals.tokens = 0; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.generation.counter ^= 1; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.contract_version = 9; }));
  EXPECT_TRUE(seen([](RoundValue& v) { v.world_size = 9; }));
}

TEST(MemberList, RanksOfAMemberFollowThoseBeforeIt) {
  const MemberList members = MemberList::WithRanks({"a", "b", "c"}, {2, 1, 3});
  EXPECT_EQ(members.trainers(), 6u);
  EXPECT_EQ(members.FirstRank(0), 0u);
  EXPECT_EQ(members.FirstRank(2), 3u);
  std::string holders;
  for (uint32_t rank = 0; rank < 6; ++rank) holders += members[*members.PositionOf(rank)];
  EXPECT_EQ(holders, "aabccc");
  EXPECT_FALSE(members.PositionOf(6).has_value());
  EXPECT_FALSE(MemberList().PositionOf(0).has_value());
}

// With two lists in braces, a constructor that takes ids could take each list for one id.
template <typename T, typename = void>
struct TakesTwoLists : std::false_type {};
template <typename T>
struct TakesTwoLists<T, std::void_t<decltype(T{{"a", "b"}, {3, 2}})>> : std::true_type {};
static_assert(!TakesTwoLists<MemberList>::value, "ids and ranks have a name: WithRanks");
static_assert(TakesTwoLists<std::vector<WorkerId>>::value, "two strings, and neither is an id");

TEST(MemberList, OfSingleTrainersAreEqualHoweverTheyWereMade) {
  const MemberList members({"a", "b"});
  EXPECT_EQ(members, MemberList::WithRanks({"a", "b"}, {1, 1}));
  EXPECT_NE(members, MemberList::WithRanks({"a", "b"}, {1, 2}));
  EXPECT_EQ(members.RanksOf(1), 1u);
  EXPECT_EQ(members.PositionOf(1), 1u);
  EXPECT_EQ(MemberList::WithRanks({}, {}), MemberList());
}

TEST(HasResult, OnlyWhereACommittedRoundHasADivisor) {
  RoundValue value = Value();
  value.tensor_divisors = {{1, 0}, {2, 3}};
  EXPECT_TRUE(HasResult(value, 0));
  EXPECT_FALSE(HasResult(value, 1)) << "everyone skipped it";
  EXPECT_TRUE(HasResult(value, 2));
  EXPECT_FALSE(HasResult(value, 3)) << "not part of this round";
  value.divisor = 0;
  EXPECT_FALSE(HasResult(value, 0)) << "the weights sum to zero";
  value = Value();
  value.outcome = Outcome::kAborted;
  EXPECT_FALSE(HasResult(value, 0));
}

TEST(Divisors, OfOneTensorAndOfAllAreTheSame) {
  RoundValue value = Value();
  value.divisor = 5;
  value.tensor_divisors = {{1, 0}, {2, 3}, {9, 7}};
  EXPECT_EQ(DivisorsOf(value), (std::vector<uint64_t>{5, 0, 3})) << "9 is not part of this round";
  for (const Outcome outcome : {Outcome::kCommitted, Outcome::kAborted}) {
    value.outcome = outcome;
    const std::vector<uint64_t> all = DivisorsOf(value);
    ASSERT_EQ(all.size(), value.layout_version);
    for (TensorIndex tensor = 0; tensor < all.size(); ++tensor) {
      EXPECT_EQ(DivisorOf(value, tensor), all[tensor]);
    }
    EXPECT_EQ(DivisorOf(value, 9), 0u);
  }
  EXPECT_EQ(DivisorsOf(value), (std::vector<uint64_t>{0, 0, 0})) << "aborted";
}

TEST(SumOfWeights, IsOverTheContributorsAlone) {
  RoundValue value;
  EXPECT_EQ(SumOfWeights(value), 0u);
  value.contributors = {{"a", {}, 3}, {"b", {}, 0}, {"c", {}, 4}};
  EXPECT_EQ(SumOfWeights(value), 7u);
}

TEST(SumOfWeights, DoesNotWrapForTheMostWorkersOfTheHighestWeight) {
  RoundValue value;
  value.contributors.assign(10000, {"a", {}, kMaxCount});
  EXPECT_EQ(SumOfWeights(value) / 10000, kMaxCount);
}

TEST(Counts, Fault_W11_TheOneThatIsTooHighIsNamedWithItsValue) {
  EXPECT_EQ(WhyNotCounted({}), "");
  EXPECT_EQ(WhyNotCounted({kMaxCount, kMaxCount, kMaxCount}), "");
  const std::string limit =
      ", more than 2^48, 281474976710656, which is the limit; count in a coarser unit";
  EXPECT_EQ(WhyNotCounted({kMaxCount + 1, {}, {}}), "counts 281474976710657 samples" + limit);
  EXPECT_EQ(WhyNotCounted({0, ~uint64_t{0}, 0}), "counts 18446744073709551615 tokens" + limit);
  EXPECT_EQ(WhyNotCounted({{}, {}, kMaxCount + 1}), "counts 281474976710657 micro-batches" + limit);
}

TEST(Outcomes, HaveNames) {
  EXPECT_STREQ(OutcomeName(Outcome::kCommitted), "COMMITTED");
  EXPECT_STREQ(OutcomeName(Outcome::kAborted), "ABORTED");
  EXPECT_STREQ(OutcomeName(Outcome::kUnspecified), "UNSPECIFIED");
}

TEST(Ids, CompareTheTermFirst) {
  EXPECT_TRUE((Generation{1, 9} < Generation{2, 1}));
  EXPECT_FALSE((Generation{2, 1} < Generation{1, 9}));
  EXPECT_TRUE((Ballot{1, 1} < Ballot{1, 2}));
  EXPECT_TRUE((Incarnation{1, 1} < Incarnation{1, 2}));
  EXPECT_FALSE((Incarnation{1, 2} < Incarnation{1, 2}));
  EXPECT_EQ(ToString(Generation{3, 4}), "3.4");
  EXPECT_EQ(ToString(Incarnation{3, 4}), "3.4");
  EXPECT_EQ(ToString(Ballot{3, 4}), "3.4");
}

}  // namespace
}  // namespace basin
