// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers of the trainer's optimizer: each begin has their hash, and the numbers themselves
// only while the aggregator of this session may not know them.

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using Lines = std::vector<std::string>;
const Lines kNumbers = {"lr=0.1 in all groups", "momentum=0.9 in all groups"};

struct OptimizerTest : testing::Test {
  OptimizerTest() { worker.BecomeMember(); }
  Harness worker;
  RoundNumber round = 0;

  // Begins with the optimizer of this hash, and returns the numbers that are sent.
  Lines Sent(uint64_t hash) {
    BeginRound begin{0, Harness::Average(), {}, 17, {}};
    begin.optimizer = hash;
    begin.optimizer_numbers = kNumbers;
    const auto sent = worker.Do(begin).OneSent<Begin>();
    EXPECT_EQ(sent.optimizer, hash);
    return sent.optimizer_numbers;
  }
  // The round is committed, over this worker and others, or over the others only.
  void Finish(bool counted = true) {
    ++round;
    RoundValue value = worker.Value();
    value.contributors[0].incarnation = worker.client.incarnation();
    if (!counted) value.contributors.erase(value.contributors.begin());
    for (const TensorHandle tensor : {kA, kB, kC}) worker.PushOne(tensor);
    worker.Do(CommitRound{0});
    Prepared prepared = worker.MakePrepared(1, round);
    prepared.value = value;
    worker.Receive(prepared);
    worker.ReceiveAllResults(1, round);
    ASSERT_TRUE(worker.Receive(worker.MakeVerdict(value)).Has<Deliver>());
  }
  void Reconnect(RoundNumber next) {
    worker.Do(SessionDown{"the network"});
    worker.Pass(absl::Seconds(3));
    worker.Do(SessionUp{});
    Welcome welcome = worker.MakeWelcome(Role::kMember);
    welcome.layouts = {worker.MakeLayout(0, next)};
    reconnected = worker.Receive(welcome);
  }
  Actions reconnected;
};

TEST_F(OptimizerTest, NumbersAreSentOnceAndAgainWhenTheyChange) {
  EXPECT_EQ(Sent(5), kNumbers);
  Finish();
  EXPECT_EQ(Sent(5), Lines());
  Finish();
  EXPECT_EQ(Sent(6), kNumbers);
  Finish();
  EXPECT_EQ(Sent(6), Lines());
}

TEST_F(OptimizerTest, NumbersAreSentAgainAfterARoundThatDidNotCountThem) {
  EXPECT_EQ(Sent(5), kNumbers);
  Finish(/*counted=*/false);
  EXPECT_EQ(Sent(5), kNumbers);
  Finish();
  EXPECT_EQ(Sent(5), Lines());
}

TEST_F(OptimizerTest, ANewSessionKnowsNoNumbers) {
  EXPECT_EQ(Sent(5), kNumbers);
  Finish();
  Reconnect(2);
  EXPECT_EQ(Sent(5), kNumbers);
}

TEST_F(OptimizerTest, ABeginThatIsSentAgainHasTheNumbers) {
  EXPECT_EQ(Sent(5), kNumbers);
  Finish();
  EXPECT_EQ(Sent(5), Lines());
  Reconnect(2);
  const auto again = reconnected.OneSent<Begin>();
  EXPECT_EQ(again.optimizer, 5u);
  EXPECT_EQ(again.optimizer_numbers, kNumbers);
}

}  // namespace
}  // namespace basin::client
