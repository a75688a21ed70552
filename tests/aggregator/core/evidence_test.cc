// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The evidence from which a job recovers, and its decisions.

#include "aggregator/core/evidence.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

const absl::Time kRecoversSince = absl::FromUnixSeconds(1000);

// A job of workers a, b and c has begun to recover.
struct Recovering : testing::Test {
  explicit Recovering(std::optional<SavedState> saved = std::nullopt) : evidence(std::move(saved)) {
    memory.total = 1 << 20;
    evidence.Begin(kRecoversSince, std::nullopt);
  }
  void Hold(const WorkerId& worker, bool remembers, bool fresh = false) {
    Hello hello;
    hello.worker = worker;
    hello.nonce = worker[0];
    hello.fresh = fresh;
    if (remembers) hello.membership = {{1, 1}, {{"a", "b", "c"}}};
    ASSERT_TRUE(evidence.held().Hold(memory, ++last_session, hello));
  }
  RecoveryDecision Decide(absl::Time now = kRecoversSince, bool halted = false) {
    return evidence.Decide(config, 3, now, halted, memory);
  }
  Config config;
  MemoryBudget memory;
  SessionId last_session = 0;
  Evidence evidence;
};
using EvidenceTest = Recovering;

TEST_F(EvidenceTest, EverybodyOfTheNewestListDecides) {
  Hold("a", true);
  Hold("b", true);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  Hold("c", true);
  const RecoveryDecision decision = Decide();
  EXPECT_EQ(decision.step, RecoveryStep::kRecover);
  EXPECT_EQ(decision.members.size(), 3u);
}

TEST_F(EvidenceTest, AFewHaltWhenTheWindowIsOverUnlessAnOperatorDecides) {
  Hold("a", true);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  EXPECT_EQ(Decide(evidence.Due(config)).step, RecoveryStep::kHalt);
  EXPECT_EQ(Decide(kRecoversSince, true).step, RecoveryStep::kHalt)
      << "a job that is halted has waited";
  evidence.Force();
  EXPECT_EQ(Decide().step, RecoveryStep::kRecover);
  evidence.Close();
  EXPECT_EQ(Decide().step, RecoveryStep::kWait) << "that was meant for one recovery";
}

TEST_F(EvidenceTest, ARunThatNobodyRemembersIsNewAtOnceIfItsLauncherSaysSo) {
  Hold("a", false);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  Hold("b", false, true);
  EXPECT_EQ(Decide().step, RecoveryStep::kFresh);
  EXPECT_THAT(Decide().reason, HasSubstr("its launcher declares it new"));
  Hold("c", true, true);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait) << "somebody remembers";
}

TEST_F(EvidenceTest, TheStateFileSaysThatARunIsNotNew) {
  evidence = Evidence(SavedState{"one", 1, {{1, 1}, {{"a", "b"}}}});
  evidence.Begin(kRecoversSince, std::nullopt);
  Hold("a", false, true);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  evidence.NameRun("one");
  EXPECT_TRUE(evidence.saved().has_value());
  evidence.NameRun("two");
  EXPECT_FALSE(evidence.saved().has_value()) << "it says nothing of another run";
  EXPECT_EQ(Decide().step, RecoveryStep::kFresh);
}

Orphan Lost() {
  Orphan orphan;
  orphan.lane = "g";
  orphan.round = 7;
  orphan.holders = {"b"};
  return orphan;
}

TEST_F(EvidenceTest, AValueThatWasLostIsExplainedOrWaitedFor) {
  for (const char* id : {"a", "b", "c"}) Hold(id, true);
  evidence.Lose(Lost());
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  EXPECT_EQ(Decide(evidence.Due(config)).step, RecoveryStep::kHalt);
  EXPECT_THAT(Decide().reason, HasSubstr("round 7 of lane g"));
  evidence.Forget();
  for (const char* id : {"a", "b", "c"}) Hold(id, true);
  EXPECT_EQ(Decide().step, RecoveryStep::kWait) << "the next recovery has to explain it too";
  evidence.Force();
  EXPECT_EQ(Decide().step, RecoveryStep::kRecover);
  EXPECT_THAT(Decide().reason, HasSubstr("the round is repeated"));
}

TEST_F(EvidenceTest, ARunThatIsTakenForNewKeepsWhatWasLostUnlessAnOperatorDecided) {
  for (const char* id : {"a", "b", "c"}) Hold(id, true);
  evidence.Lose(Lost());
  evidence.CloseAsNew();
  EXPECT_EQ(Decide().step, RecoveryStep::kWait);
  evidence.Force();
  evidence.CloseAsNew();
  EXPECT_EQ(Decide().step, RecoveryStep::kRecover);
  evidence.Lose(Lost());
  evidence.ForgetOrphans();
  EXPECT_EQ(Decide().step, RecoveryStep::kRecover);
}

TEST_F(EvidenceTest, ADecisionIsVoidOnceIfSomebodyElseWasHeard) {
  EXPECT_FALSE(evidence.TakeMoreHellos());
  evidence.OnMoreHellos();
  EXPECT_TRUE(evidence.TakeMoreHellos());
  EXPECT_FALSE(evidence.TakeMoreHellos());
  evidence.OnMoreHellos();
  evidence.Decided(NoteCause::kEveryMemberIsBack, {RecoveredLane{}});
  EXPECT_EQ(evidence.lanes().size(), 1u);
  evidence.Forget();
  EXPECT_FALSE(evidence.TakeMoreHellos());
  EXPECT_TRUE(evidence.lanes().empty());
}

TEST_F(EvidenceTest, ALargeJobIsLookedAtNowAndThen) {
  std::vector<WorkerId> many;
  for (int i = 0; i < 200; ++i) many.push_back(std::to_string(i));
  evidence.Begin(kRecoversSince, Membership{{1, 1}, many});
  Hold("0", false);
  EXPECT_FALSE(evidence.MayDecide(config, kRecoversSince, false)) << "200 led, and one is here";
  for (int i = 1; i < 64; ++i) Hold(many[static_cast<size_t>(i)], false);
  EXPECT_TRUE(evidence.MayDecide(config, kRecoversSince, false));
  Hold("64", false);
  EXPECT_FALSE(evidence.MayDecide(config, kRecoversSince, false));
  EXPECT_TRUE(evidence.MayDecide(config, evidence.Due(config), false));
  EXPECT_TRUE(evidence.MayDecide(config, kRecoversSince, true));
  evidence.Force();
  EXPECT_TRUE(evidence.MayDecide(config, kRecoversSince, false));
}

TEST_F(EvidenceTest, SaysWhoTakesPartInARound) {
  Hello hello;
  hello.worker = "a";
  hello.lanes.emplace_back();
  hello.lanes.back().name = "g";
  hello.lanes.back().begun = 4;
  ASSERT_TRUE(evidence.held().Hold(memory, 1, hello));
  EXPECT_TRUE(evidence.TakesPart("a", "g", 4));
  EXPECT_FALSE(evidence.TakesPart("a", "g", 5));
  EXPECT_FALSE(evidence.TakesPart("a", "h", 4));
  EXPECT_FALSE(evidence.TakesPart("b", "g", 4));
}

TEST_F(EvidenceTest, TheHighestTermIsOneThatSomebodyMentions) {
  EXPECT_EQ(evidence.HighestTermAbove(5), 5u);
  Hello hello;
  hello.worker = "a";
  hello.membership.generation = {9, 1};
  ASSERT_TRUE(evidence.held().Hold(memory, 1, hello));
  EXPECT_EQ(evidence.HighestTermAbove(5), 9u);
  EXPECT_EQ(evidence.HighestTermAbove(12), 12u);
}

}  // namespace
}  // namespace basin::aggregator
