// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Workers on the aggregator's machine share memory with it: whole rounds,
// also beside workers that use the network, and when one side dies or misbehaves.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/client/transport/grpc/tcp_relay.h"
#include "tests/joined/over_grpc.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

// Every trainer of a step contributes its power of two.
void Step(const std::vector<std::unique_ptr<Trainer>>& trainers) {
  float sum = 0;
  for (size_t k = 0; k < trainers.size(); ++k) {
    const float value = static_cast<float>(1 << k);
    trainers[k]->Contribute(value);
    sum += value;
  }
  for (const auto& trainer : trainers) trainer->Commit();
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), sum);
  for (const auto& trainer : trainers) {
    EXPECT_EQ(trainer->result->record().chain, trainers[0]->result->record().chain);
  }
}

// Waits until the payloads of the aggregator's frames have come through shared memory.
void StepUntilShared(const Aggregator& aggregator,
                     const std::vector<std::unique_ptr<Trainer>>& trainers, uint64_t sessions) {
  Await([&] { return aggregator.counters().local_sessions >= sessions; });
  const uint64_t frames = aggregator.counters().local_frames;
  const uint64_t results = aggregator.counters().local_results;
  const auto shared = [&] {
    return aggregator.counters().local_frames > frames &&
           aggregator.counters().local_results > results;
  };
  // The first frames go over the network, until the other end has reported that it mapped the
  // segment.
  for (int step = 0; step < 1000 && !shared() && !testing::Test::HasFailure(); ++step) {
    Step(trainers);
  }
  EXPECT_TRUE(shared());
}

TEST(Local, RoundsAreSummedBitForBitThroughSharedMemory) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  const auto trainers = Join(aggregator.port(), 3, 3);
  StepUntilShared(aggregator, trainers, 3);
  for (int step = 0; step < 5; ++step) Step(trainers);
}

// The aggregator reads the trainer's own memory: a trainer that changes it after the push changes
// its contribution, and that of nobody else.
TEST(Local, RegisteredMemoryIsReadWhereItLies) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  const auto trainers = Join(aggregator.port(), 2, 2);
  for (const auto& trainer : trainers) trainer->Allocate();
  StepUntilShared(aggregator, trainers, 2);
  for (int step = 0; step < 3; ++step) Step(trainers);
  const uint64_t frames = aggregator.counters().local_frames;
  trainers[0]->Contribute(1);
  // All but the bias has come by reference when it is counted; nothing is reduced before the other
  // worker has contributed.
  Await([&] { return aggregator.counters().local_frames >= frames + kElements / (1 << 18); });
  std::fill_n(trainers[0]->registered, kElements, 64.0F);
  trainers[1]->Contribute(2);
  for (const auto& trainer : trainers) trainer->Commit();
  for (const auto& trainer : trainers) trainer->FinishAny();
  EXPECT_EQ(trainers[0]->weight(), std::vector<float>(kElements, 66));
  EXPECT_EQ(trainers[1]->weight(), trainers[0]->weight());

  // Memory that was freed in a round is still there until its end.
  trainers[0]->Contribute(4);
  EXPECT_TRUE(trainers[0]->worker().memory().Free(trainers[0]->registered).ok());
  EXPECT_FALSE(trainers[0]->worker().memory().Free(trainers[0]->registered).ok());
  trainers[0]->registered = nullptr;
  trainers[1]->Contribute(8);
  for (const auto& trainer : trainers) trainer->Commit();
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 12.0F);
  Step(trainers);  // From memory of its own, beside the other's.
}

TEST(Local, RegisteredMemoryIsOrdinaryMemoryWhereNothingIsShared) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 2);
  trainers[0]->Allocate();
  for (int step = 0; step < 3; ++step) Step(trainers);
  EXPECT_EQ(aggregator.counters().local_frames, 0u);
  EXPECT_FALSE(trainers[0]->worker().memory().Allocate(0).ok());
  EXPECT_EQ(trainers[0]->worker().memory().Allocate(uint64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Local, WorkersOfBothKindsShareARound) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (uint32_t i = 0; i < 3; ++i) {
    trainers.push_back(std::make_unique<Trainer>(aggregator.port(), "w" + std::to_string(i),
                                                 JobSettings{3, 3, 3}, ClientTls(), "", i != 1));
  }
  for (const auto& trainer : trainers) EXPECT_TRUE(trainer->worker().AwaitMember(kLong).ok());
  StepUntilShared(aggregator, trainers, 2);
  for (int step = 0; step < 3; ++step) Step(trainers);
  EXPECT_EQ(aggregator.counters().local_sessions, 2u);
  // An operator sees which is which. Connections have small numbers; few of them are sessions.
  uint32_t sharing = 0;
  uint32_t others = 0;
  for (aggregator::SessionId id = 1; id < 100; ++id) {
    const aggregator::Peer peer = aggregator.server().PeerOf(id);
    if (peer.address.empty()) continue;
    EXPECT_EQ(peer.address, "127.0.0.1");
    ++(peer.shares_memory ? sharing : others);
  }
  EXPECT_EQ(sharing, 2u);
  EXPECT_EQ(others, 1u);
}

TEST(Local, ARoundNeedsNoSharedMemory) {
  Aggregator aggregator(1);
  const auto trainers = Join(aggregator.port(), 2, 2);
  for (int step = 0; step < 3; ++step) Step(trainers);
  EXPECT_EQ(aggregator.counters().local_sessions, 0u);
  EXPECT_EQ(aggregator.counters().local_frames, 0u);
}

TEST(Local, Fault_W1_TheOthersGoOnWithoutAWorkerThatDiesWithItsMemoryShared) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  auto trainers = Join(aggregator.port(), 3, 2);
  StepUntilShared(aggregator, trainers, 3);
  for (size_t k = 0; k < trainers.size(); ++k) {
    trainers[k]->Contribute(static_cast<float>(1 << k));
    if (k != 1) trainers[k]->Commit();
  }
  trainers[1]->Die();
  EXPECT_EQ(trainers[0]->Finish(), 5.0f);
  EXPECT_EQ(trainers[2]->Finish(), 5.0f);
}

// Only the session is lost: its token is void, and with it the socket; the streams follow.
TEST(Local, Fault_N2_ASessionThatIsCutBetweenFramesIsResumedAndSharesAgain) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  client::TcpRelay relay(aggregator.port());
  const std::string address = relay.address();
  const int through = std::stoi(address.substr(address.rfind(':') + 1));
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const int port : {through, aggregator.port()}) {
    trainers.push_back(std::make_unique<Trainer>(port, "w" + std::to_string(trainers.size()),
                                                 JobSettings{2, 2, 2}));
  }
  for (const auto& trainer : trainers) EXPECT_TRUE(trainer->worker().AwaitMember(kLong).ok());
  uint64_t sessions = 2;
  for (int cut = 0; cut < 3; ++cut, ++sessions) {
    StepUntilShared(aggregator, trainers, sessions);
    for (size_t k = 0; k < 2; ++k) trainers[k]->Contribute(static_cast<float>(1 << k));
    relay.CutOldest();
    for (const auto& trainer : trainers) trainer->Commit();
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 3.0f);
    EXPECT_EQ(trainers[0]->result->record().chain, trainers[1]->result->record().chain);
  }
  StepUntilShared(aggregator, trainers, sessions);
}

// The aggregator maps nothing: contributions go over the network, from the trainer's memory.
TEST(Local, WhatTheAggregatorDoesNotMapIsNotCopied) {
  Aggregator aggregator(1, 0, {}, nullptr, true, 4096);
  const auto trainers = Join(aggregator.port(), 2, 2);
  for (const auto& trainer : trainers) Await([&] { return trainer->Shares(); });
  // Until the refusal is known, there are copies.
  bool copies = true;
  for (int step = 0; step < 1000 && copies && !testing::Test::HasFailure(); ++step) {
    for (const auto& trainer : trainers) trainer->Scribble(99);
    Step(trainers);
    copies = false;
    for (const auto& trainer : trainers) copies |= !trainer->SharesOnly(99);
  }
  EXPECT_FALSE(copies);
  EXPECT_EQ(aggregator.counters().local_frames, 0u);
}

TEST(Local, Fault_A1_ARoundOutlivesItsAggregator) {
  auto aggregator = std::make_unique<Aggregator>(1, 0, ServerTls(), nullptr, true);
  const int port = aggregator->port();
  const auto trainers = Join(port, 2, 2);
  StepUntilShared(*aggregator, trainers, 2);
  for (size_t k = 0; k < trainers.size(); ++k) {
    trainers[k]->Contribute(static_cast<float>(1 << k));
  }
  aggregator.reset();
  aggregator = std::make_unique<Aggregator>(2, port, ServerTls(), nullptr, true);
  for (const auto& trainer : trainers) trainer->Commit();
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->Finish(), 3.0f);
  StepUntilShared(*aggregator, trainers, 2);
}

// A worker that changes its contribution after its commit changes only what it contributes: the
// members get the same bytes, whose digest is that of what was reduced.
TEST(Local, Fault_N10_AWorkerThatScribblesDoesNotMakeTwoMembersDiffer) {
  Aggregator aggregator(1, 0, {}, nullptr, true);
  const auto trainers = Join(aggregator.port(), 3, 3);
  StepUntilShared(aggregator, trainers, 3);
  for (int step = 0; step < 10; ++step) {
    for (size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->Contribute(static_cast<float>(1 << k));
    }
    trainers[1]->Commit();
    trainers[1]->Scribble(static_cast<float>(step));
    trainers[0]->Commit();
    trainers[2]->Commit();
    for (const auto& trainer : trainers) trainer->FinishAny();
    for (const auto& trainer : trainers) {
      EXPECT_EQ(trainer->result->record().chain, trainers[0]->result->record().chain);
      EXPECT_TRUE(trainer->weight() == trainers[0]->weight());
    }
  }
}

}  // namespace
}  // namespace basin::joined
