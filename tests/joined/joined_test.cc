// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Jobs of real workers and the real engine, without sockets: threads, locks and bytes as in the
// service, under ThreadSanitizer.

#include "tests/joined/joined.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::joined {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Seeds, Joined, testing::Range<uint64_t>(1, 4));

TEST_P(Joined, EveryMemberIsCountedOnceInEveryRound) {
  const auto members = Launch(3, {3, 3, 3});
  for (int round = 1; round <= 4; ++round) ExpectSum(members, Round(members), 7);
  EXPECT_LE(network.most_unconsumed(), Network::kWindow + kMaxMessageBytes);
}

TEST_P(Joined, AveragesNarrowContributions) {
  const auto members = Launch(2, {2, 2, 2});
  RoundSpec spec;
  spec.op = ReduceOp::kAverage;
  const auto outcomes = Together(members, [&](Trainer& trainer, size_t i) {
    const std::vector<float> weight(Trainer::kWeights, Bit(i));
    client::BeginRound begin;
    begin.lane = trainer.lane();
    begin.spec = spec;
    EXPECT_TRUE(trainer.worker().Begin(begin).ok());
    EXPECT_TRUE(trainer.worker()
                    .Push(trainer.lane(),
                          {0, weight.data(), weight.size() * sizeof(float), {DType::kBF16, 0}})
                    .ok());
    EXPECT_TRUE(trainer.worker().Commit(trainer.lane()).ok());
    return trainer.worker().Wait(trainer.lane(), kLong);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ((*outcome)->record().value.divisor, 2u);
    EXPECT_FALSE((*outcome)->Has(1)) << "everybody skipped it";
    std::vector<float> weight(Trainer::kWeights);
    ASSERT_TRUE((*outcome)->CopyTo(0, weight.data(), weight.size() * sizeof(float)).ok());
    EXPECT_EQ(std::count(weight.begin(), weight.end(), 1.5F), int64_t{Trainer::kWeights});
  }
}

TEST_P(Joined, CallsRunBesideTheGradients) {
  const auto members = Launch(3, {3, 3, 3});
  const auto sums = Together(members, [](Trainer& trainer, size_t i) {
    const auto call =
        trainer.worker().Register("call/metrics", LaneKind::kCall, {{"loss", DType::kF64, {2}}});
    EXPECT_TRUE(call.ok()) << call.status();
    trainer.Contribute(Bit(i));
    double loss[2] = {1.0 + static_cast<double>(i), 10};
    client::BeginRound begin;
    begin.lane = call->lane;
    begin.spec = Trainer::Sum();
    client::Source source(call->tensors[0], loss, sizeof(loss));
    const auto outcome = trainer.worker().Allreduce(begin, {&source, 1},
                                                    {{source.tensor(), loss, sizeof(loss)}}, kLong);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(trainer.Finish().ok());
    return loss[0] + loss[1];
  });
  EXPECT_THAT(sums, ElementsAre(36, 36, 36));
}

TEST_P(Joined, Fault_W1_AWorkerThatDiesBeforeItsCommitIsNotCounted) {
  const auto members = Launch(3, {2, 3, 3});
  ExpectSum(members, Round(members), 7);
  // It pushes its tensors, and ends before the commit.
  const std::vector<float> weight(Trainer::kWeights, Bit(2));
  client::BeginRound begin;
  begin.lane = members[2]->lane();
  begin.spec = Trainer::Sum();
  ASSERT_TRUE(members[2]->worker().Begin(begin).ok());
  ASSERT_TRUE(members[2]
                  ->worker()
                  .Push(members[2]->lane(), {0, weight.data(), weight.size() * sizeof(float)})
                  .ok());
  members[2]->Die();
  const std::vector<Trainer*> survivors = {members[0], members[1]};
  ExpectSum(survivors, Round(survivors), 3);
  ExpectSum(survivors, Round(survivors), 3);
}

TEST_P(Joined, Fault_W6_WhoLeavesIsNotWaitedFor) {
  const auto members = Launch(3, {2, 3, 3});
  ExpectSum(members, Round(members), 7);
  EXPECT_TRUE(members[2]->worker().Leave().ok());
  const std::vector<Trainer*> survivors = {members[0], members[1]};
  ExpectSum(survivors, Round(survivors), 3);
  EXPECT_EQ(members[0]->worker().view().membership.members.size(), 2u);
}

TEST_P(Joined, Fault_W17_AJoinerIsCountedFromTheNextRoundOnAndGetsTheState) {
  auto members = Launch(2, {2, 3, 2});
  ExpectSum(members, Round(members), 3);
  Trainer* joiner = Add({2, 3, 2});
  // It becomes a member at a verdict, of which there are as many as it takes.
  auto joined = std::async(std::launch::async, [&] { return joiner->AwaitMember(); });
  while (members[0]->worker().view().membership.members.size() < 3) {
    ExpectSum(members, Round(members), 3);
  }
  ASSERT_TRUE(joined.get().ok());
  const client::JobView view = joiner->worker().view();
  ASSERT_TRUE(view.donor.has_value());
  EXPECT_EQ(view.rank, 2u);
  members.push_back(joiner);
  ExpectSum(members, Round(members), 7);
}

TEST_P(Joined, Fault_N2_WhatALostConnectionCarriedIsCountedOnce) {
  // A session that ends together with its streams looks like a process that ended. On a busy
  // machine the worker needs longer than that lease to come back.
  config.closed_lease = config.lease = kLong;
  service = nullptr;
  service = std::make_unique<Service>(network, clock, config);
  const auto members = Launch(3, {3, 3, 3});
  network.BreakAfterEvery(40);
  while (network.broken() < 20) ExpectSum(members, Round(members), 7);
}

TEST_P(Joined, Fault_A1_EveryRoundIsAppliedOnceAcrossACrashOfTheAggregator) {
  const auto members = Launch(3, {3, 3, 3});
  ExpectSum(members, Round(members), 7);
  for (int crash = 1; crash <= 2; ++crash) {
    for (size_t i = 0; i < 3; ++i) members[i]->Contribute(Bit(i));
    service.reset();
    config.term += 10;
    service = std::make_unique<Service>(network, clock, config);
    const auto outcomes =
        Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
    ExpectSum(members, outcomes, 7);
    EXPECT_EQ((*outcomes[0])->record().round, static_cast<RoundNumber>(2 * crash));
    ExpectSum(members, Round(members), 7);
  }
}

TEST_P(Joined, ADeadlineLeavesTheOutcomeOpenAndTheMemoryTaken) {
  const auto members = Launch(2, {2, 2, 2});
  members[0]->Contribute(Bit(0));
  const auto outcome = members[0]->Finish(absl::Milliseconds(50));
  EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kOutcomeUnknown) << outcome.status();
  members[1]->Contribute(Bit(1));
  const auto outcomes =
      Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
  ExpectSum(members, outcomes, 3);
}

TEST_P(Joined, Fault_W10_AnotherOpIsNotCountedAndNamesBothSides) {
  const auto members = Launch(3, {3, 3, 3});
  const auto outcomes = Together(members, [](Trainer& trainer, size_t i) {
    RoundSpec spec = Trainer::Sum();
    if (i == 2) spec.op = ReduceOp::kMax;
    return trainer.Step(Bit(i), spec);
  });
  ExpectSum(members, outcomes, 3);
  ASSERT_TRUE((*outcomes[2])->rejected().has_value());
  EXPECT_EQ((*outcomes[2])->rejected()->code, ErrorCode::kMismatch);
  EXPECT_THAT((*outcomes[2])->rejected()->text, HasSubstr("w0"));
}

TEST_P(Joined, Criterion_2_5_ABroadcastCopiesBits) {
  const auto members = Launch(3, {3, 3, 3});
  const std::vector<float> value = {std::nanf("0x123"), -0.0F,
                                    std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::denorm_min(), 1};
  std::vector<float> large(3 * kChunkBytes / sizeof(float) + 7);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  const TensorSpec small_spec = {"small", DType::kF32, {value.size()}};
  const TensorSpec large_spec = {"large", DType::kF32, {large.size()}};
  client::Worker& root = members[0]->worker();
  // Some request it before it is announced.
  auto received = std::async(std::launch::async, [&] {
    return Together({members[1], members[2]}, [&](Trainer& trainer, size_t) {
      std::vector<float> small(value.size());
      std::vector<float> big(large.size());
      const auto one = trainer.worker().values().Get({kLane, "small", 1}, small_spec, "w0", kLong);
      EXPECT_TRUE(one.ok()) << one.status();
      if (one.ok()) {
        EXPECT_TRUE((*one)->CopyTo(small.data(), small.size() * sizeof(float)).ok());
      }
      const auto other =
          trainer.worker().values().Get({kLane, "large", 1}, large_spec, std::nullopt, kLong);
      EXPECT_TRUE(other.ok()) << other.status();
      if (other.ok()) {
        EXPECT_TRUE((*other)->CopyTo(big.data(), big.size() * sizeof(float)).ok());
      }
      return std::memcmp(small.data(), value.data(), value.size() * sizeof(float)) == 0 &&
             big == large;
    });
  });
  EXPECT_TRUE(root.values()
                  .Announce({kLane, "large", 1}, large_spec, large.data(),
                            large.size() * sizeof(float), client::Hold::kInPlace)
                  .ok());
  EXPECT_TRUE(root.values()
                  .Announce({kLane, "small", 1}, small_spec, value.data(),
                            value.size() * sizeof(float), client::Hold::kCopy)
                  .ok());
  EXPECT_THAT(received.get(), ElementsAre(true, true));
  EXPECT_EQ(CodeOf(root.values().Get({kLane, "small", 1}, small_spec, "w0", kLong).status()),
            ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(root.values().StopServing(kLane, "large").ok());
}

TEST_P(Joined, Criterion_2_2_AValueThatIsNeverAnnouncedEndsInATypedError) {
  const auto members = Launch(2, {2, 2, 2});
  const auto value = members[1]->worker().values().Get({kLane, "never", 1}, std::nullopt, "w0",
                                                       absl::Milliseconds(50));
  EXPECT_EQ(CodeOf(value.status()), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(value.status().message(), HasSubstr("never"));
  EXPECT_THAT(value.status().message(), HasSubstr("w0"));
}

TEST_P(Joined, NothingIsHeldBetweenRounds) {
  const auto members = Launch(3, {3, 3, 3});
  ExpectSum(members, Round(members), 7);
  ExpectSum(members, Round(members), 7);
  // The acknowledgements of the last results may still be on their way.
  uint64_t held = 1;
  for (const absl::Time until = clock.Now() + kLong; held != 0 && clock.Now() < until;) {
    std::promise<uint64_t> bytes;
    service->engine().Inspect([&](const aggregator::Runner& runner, absl::Time) {
      bytes.set_value(runner.parked_bytes() + runner.result_bytes());
    });
    held = bytes.get_future().get();
  }
  EXPECT_EQ(held, 0u);
}

}  // namespace
}  // namespace basin::joined
