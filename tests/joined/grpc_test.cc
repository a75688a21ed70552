// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The service as it is used: real workers and the real aggregator, over gRPC and TCP, in one
// process.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/transport/grpc/tcp_relay.h"
#include "tests/joined/over_grpc.h"

namespace basin::joined {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Worker k contributes 2^k, so that a sum shows the counted workers.
TEST(OverGrpc, RoundsAreSummedBitForBit) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 3, 3);
  for (int step = 0; step < 5; ++step) {
    for (size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->Contribute(static_cast<float>(1 << k));
      trainers[k]->Commit();
    }
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 7.0f);
    EXPECT_EQ(trainers[0]->result->record().chain, trainers[2]->result->record().chain);
  }
}

TEST(OverGrpc, Fault_W1_TheOthersGoOnWithoutAWorkerThatDies) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 3, 2);
  for (size_t k = 0; k < trainers.size(); ++k) {
    trainers[k]->Contribute(static_cast<float>(1 << k));
    if (k != 1) trainers[k]->Commit();
  }
  trainers[1]->Die();
  EXPECT_EQ(trainers[0]->Finish(), 5.0f);
  EXPECT_EQ(trainers[2]->Finish(), 5.0f);
  EXPECT_THAT(trainers[0]->result->record().next.members, ElementsAre("w0", "w2"));
}

// A weight that changed on its way would be a wrong average on every worker, with a valid digest.
TEST(OverGrpc, Fault_N8_AFlippedBitInACountIsSeenAndTheRoundIsRight) {
  Aggregator aggregator(1);
  client::TcpRelay relay(aggregator.port());
  const JobSettings two{2, 2, 2};
  Trainer plain(aggregator.port(), "w0", two);
  Trainer flipped(relay.port(), "w1", two);
  for (Trainer* trainer : {&plain, &flipped}) {
    ASSERT_TRUE(trainer->worker().AwaitMember(kLong).ok());
    trainer->samples = 0x1234567;
  }
  for (int round = 0; round < 2; ++round) {
    if (round == 1) relay.FlipNext("\xe7\x8a\x8d\x09");  // The number, as protobuf has it.
    plain.Contribute(1);
    flipped.Contribute(3);
    plain.Commit();
    flipped.Commit();
    EXPECT_EQ(plain.Finish(), 2.0f);
    EXPECT_EQ(flipped.Finish(), 2.0f);
    EXPECT_EQ(plain.result->record().value.contributors[1].weight, 0x1234567u);
  }
  EXPECT_TRUE(relay.flipped());
  EXPECT_EQ(aggregator.counters().damaged_frames, 1u);
  EXPECT_THAT(aggregator.reports(),
              Contains(AllOf(HasSubstr("worker w1 of job job"), HasSubstr("checksum is wrong"))));
}

TEST(OverGrpc, Fault_A1_ARoundOutlivesItsAggregator) {
  auto aggregator = std::make_unique<Aggregator>(1);
  const int port = aggregator->port();
  const auto trainers = Join(port, 3, 2);
  for (int step = 0; step < 3; ++step) {
    for (size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->Contribute(static_cast<float>(1 << k));
    }
    // In the middle of the round: no worker has committed, and the pushed tensors are lost.
    aggregator.reset();
    aggregator = std::make_unique<Aggregator>(static_cast<Term>(step) + 2, port);
    for (const auto& trainer : trainers) trainer->Commit();
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 7.0f);
  }
}

TEST(OverGrpc, AValueReachesWhoAsksForIt) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 2);
  std::vector<float> parameters(kElements);
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = static_cast<float>(i);
  const BlobKey key{"model", "parameters", 1};
  const TensorSpec spec{"parameters", DType::kF32, {kElements}};
  ASSERT_TRUE(trainers[0]
                  ->worker()
                  .values()
                  .Announce(key, spec, parameters.data(), parameters.size() * sizeof(float),
                            client::Hold::kInPlace)
                  .ok());
  const client::BlobOutcome value = trainers[1]->worker().values().Get(key, spec, "w0", kLong);
  ASSERT_TRUE(value.ok()) << value.status();
  std::vector<float> got(kElements);
  ASSERT_TRUE((*value)->CopyTo(got.data(), got.size() * sizeof(float)).ok());
  EXPECT_TRUE(got == parameters);
}

TEST(OverGrpc, Fault_W6_AWorkerThatLeavesIsNotWaitedFor) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 1);
  const absl::Status left = trainers[1]->worker().Leave();
  EXPECT_TRUE(left.ok()) << left;
  trainers[0]->Contribute(1);
  trainers[0]->Commit();
  EXPECT_EQ(trainers[0]->Finish(), 1.0f);
  EXPECT_THAT(trainers[0]->result->record().value.contributors, SizeIs(1));
}

}  // namespace
}  // namespace basin::joined
