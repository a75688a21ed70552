// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The rules of leadership one by one, all fates of the first requests of two aggregators, and the
// checks of the modelled world themselves.

#include "aggregator/leadership/core/leadership.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/world.h"
#include "tests/simulation/random.h"

namespace basin::aggregator {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(5);
const absl::Time kWall = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kLease = absl::Seconds(3);

// One aggregator, whose requests a test answers.
class One {
 public:
  explicit One(absl::Duration lease = kLease)
      : core_({"me", "127.0.0.1:29600", lease, absl::Milliseconds(100)}, kStart) {
    Step(TimePassed{});
  }

  void Step(const LeadershipEvent& event) {
    actions_.clear();
    core_.Step(event, now_, kWall, actions_);
  }
  void Pass(absl::Duration time) {
    now_ += time;
    Step(TimePassed{});
  }
  // Lets time pass until something is asked, and answers with what the authority has.
  void PassAndRead(absl::Duration time, const RecordState& state) {
    now_ += time;
    Step(TimePassed{});
    if (Asks<ReadRecord>()) Step(RecordRead{state});
  }
  // Reads again and again for so long.
  void Watch(absl::Duration time, const RecordState& state) {
    const absl::Time until = now_ + time;
    while (core_.NextDeadline() < until && !Asks<WriteRecord>()) {
      PassAndRead(core_.NextDeadline() - now_, state);
    }
    if (!Asks<WriteRecord>()) now_ = until;
  }
  void Lead() {
    Step(RecordRead{Released(7)});
    Step(RecordWritten{"v1"});
  }

  static RecordState Held(uint64_t fence, std::string version, absl::Duration lease = kLease) {
    return {LeaderRecord{fence, "other", "there:1", lease}, std::move(version), false};
  }
  static RecordState Released(uint64_t fence) {
    return {LeaderRecord{fence, "", "", kLease}, "v0", false};
  }
  RecordState Mine(std::string version) const {
    return {LeaderRecord{fence_of_write(), "me", "127.0.0.1:29600", kLease}, std::move(version),
            false};
  }

  template <typename Action>
  bool Asks() const {
    return Find<Action>() != nullptr;
  }
  template <typename Action>
  const Action* Find() const {
    for (const LeadershipAction& action : actions_) {
      if (const auto* found = std::get_if<Action>(&action)) return found;
    }
    return nullptr;
  }
  uint64_t fence_of_write() const { return absl::ToUnixSeconds(kWall); }
  const Leadership& core() const { return core_; }
  absl::Time now() const { return now_; }
  bool MayDecide() const { return core_.leads() && now_ < core_.decides_until(); }

 private:
  absl::Time now_ = kStart;
  Leadership core_;
  std::vector<LeadershipAction> actions_;
};

TEST(LeadershipTest, TakesWhatWasGivenUpAtOnce) {
  One one;
  ASSERT_TRUE(one.Asks<ReadRecord>());
  one.Step(RecordRead{One::Released(7)});
  const auto* write = one.Find<WriteRecord>();
  ASSERT_NE(write, nullptr);
  EXPECT_EQ(write->record.holder, "me");
  EXPECT_EQ(write->version, "v0");
  EXPECT_FALSE(one.core().leads());
  one.Step(RecordWritten{"v1"});
  ASSERT_TRUE(one.Asks<BeginLeading>());
  EXPECT_TRUE(one.MayDecide());
}

TEST(LeadershipTest, TheFenceGrowsAndIsAtLeastTheSeconds) {
  One one;
  one.Step(RecordRead{One::Released(7)});
  EXPECT_EQ(one.Find<WriteRecord>()->record.fence, 1'800'000'000u);
  One late;
  late.Step(RecordRead{One::Released(1'900'000'000)});
  EXPECT_EQ(late.Find<WriteRecord>()->record.fence, 1'900'000'001u);
}

TEST(LeadershipTest, AStandbyWaitsUntilTheRecordHasNotChangedForItsLease) {
  One one;
  one.Step(RecordRead{One::Held(7, "a")});
  one.Watch(kLease - absl::Milliseconds(1), One::Held(7, "a"));
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.PassAndRead(absl::Seconds(1), One::Held(7, "b"));
  one.Watch(kLease - absl::Milliseconds(1), One::Held(7, "b"));
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.Watch(absl::Seconds(1), One::Held(7, "b"));
  EXPECT_TRUE(one.Asks<WriteRecord>());
}

TEST(LeadershipTest, Fault_A3_AStandbyLooksForALeadThatIsGivenUpWhateverTheLease) {
  for (const absl::Duration lease : {absl::Milliseconds(200), kLease, absl::Minutes(10)}) {
    One one(lease);
    one.Step(RecordRead{One::Held(7, "a", lease)});
    EXPECT_LE(one.core().NextDeadline() - one.now(), absl::Milliseconds(150));
    EXPECT_GE(one.core().NextDeadline() - one.now(), absl::Milliseconds(10));
  }
}

TEST(LeadershipTest, TheLeaseIsTheLongerOneOfRecordAndConfiguration) {
  for (const absl::Duration recorded : {kLease / 2, kLease * 2}) {
    One one;
    const RecordState held = One::Held(7, "a", recorded);
    one.Step(RecordRead{held});
    one.Watch(std::max(recorded, kLease) - absl::Milliseconds(1), held);
    EXPECT_FALSE(one.Asks<WriteRecord>());
    one.Watch(absl::Seconds(1), held);
    EXPECT_TRUE(one.Asks<WriteRecord>());
  }
}

TEST(LeadershipTest, AStandbyTakesOverAtOnceFromAHolderThatHasEnded) {
  One one;
  RecordState held = One::Held(7, "a");
  held.holder_ended = true;
  one.Step(RecordRead{held});
  EXPECT_TRUE(one.Asks<WriteRecord>());
}

TEST(LeadershipTest, WhereThereIsNoRecordAStandbyWritesThatNobodyLeadsAndWaits) {
  One one;
  one.Step(RecordRead{RecordState{}});
  const auto* write = one.Find<WriteRecord>();
  ASSERT_NE(write, nullptr);
  EXPECT_EQ(write->record.holder, kNobody);
  const RecordState nobody{write->record, "v1", false};
  one.Step(RecordWritten{"v1"});
  EXPECT_FALSE(one.core().leads());
  one.Watch(2 * kLease - absl::Milliseconds(1), nobody);
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.Watch(absl::Seconds(1), nobody);
  ASSERT_TRUE(one.Asks<WriteRecord>());
  one.Step(RecordWritten{"v2"});
  EXPECT_TRUE(one.MayDecide());
}

TEST(LeadershipTest, APermissionCountsFromTheTimeBeforeTheRequest) {
  One one;
  one.Step(RecordRead{One::Released(7)});
  const absl::Time asked = one.now();
  one.Pass(absl::Seconds(1));
  one.Step(RecordWritten{"v1"});
  EXPECT_EQ(one.core().decides_until(), asked + kLease - one.core().config().margin());
}

TEST(LeadershipTest, ATakeThatIsAnsweredTooLateBeginsNothing) {
  One one;
  one.Step(RecordRead{One::Released(7)});
  one.Pass(kLease);
  one.Step(RecordWritten{"v1"});
  EXPECT_FALSE(one.Asks<BeginLeading>());
  EXPECT_FALSE(one.core().leads());
  ASSERT_TRUE(one.Asks<ReadRecord>());
  one.Step(RecordRead{one.Mine("v1")});
  one.Step(RecordWritten{"v2"});
  EXPECT_TRUE(one.MayDecide());
}

TEST(LeadershipTest, TheMarginCoversTwoClocksThatAreOnePercentWrong) {
  const absl::Duration margin = LeadershipConfig{"me", "", kLease, absl::ZeroDuration()}.margin();
  EXPECT_LE((kLease - margin) / 0.99, kLease / 1.01);
}

TEST(LeadershipTest, ALeaderRenewsLongBeforeItsPermissionEnds) {
  One one;
  one.Lead();
  for (int i = 2; i < 20; ++i) {
    ASSERT_LT(one.core().NextDeadline(), one.core().decides_until());
    one.Pass(one.core().NextDeadline() - one.now());
    ASSERT_TRUE(one.Asks<WriteRecord>());
    one.Step(RecordWritten{"v" + std::to_string(i)});
    EXPECT_TRUE(one.MayDecide());
  }
}

TEST(LeadershipTest, Fault_A4_AfterAPauseALeaderAsksBeforeItDecides) {
  One one;
  one.Lead();
  one.Pass(kLease + kLease / 2);
  EXPECT_FALSE(one.MayDecide());
  ASSERT_TRUE(one.Asks<WriteRecord>());
  one.Step(RecordWritten{"v2"});
  EXPECT_TRUE(one.MayDecide());
  EXPECT_FALSE(one.Asks<BeginLeading>());  // It goes on where it was.
}

TEST(LeadershipTest, Fault_A5_ALeaderThatWasReplacedEndsAndNamesTheOther) {
  One one;
  one.Lead();
  one.Pass(kLease + kLease / 2);
  one.Step(WriteRefused{});
  EXPECT_FALSE(one.MayDecide());
  EXPECT_TRUE(one.core().leads());  // The answer to an earlier renewal may have been lost.
  ASSERT_TRUE(one.Asks<ReadRecord>());
  one.Step(RecordRead{One::Held(one.fence_of_write() + 1, "w")});
  ASSERT_TRUE(one.Asks<EndLeading>());
  EXPECT_THAT(one.Find<EndLeading>()->why, testing::HasSubstr("other has taken the lead"));
  EXPECT_FALSE(one.core().leads());
}

TEST(LeadershipTest, ARenewalWhoseAnswerWasLostCostsOneRead) {
  One one;
  one.Lead();
  one.Pass(one.core().NextDeadline() - one.now());
  one.Step(RequestFailed{"no answer"});
  EXPECT_EQ(one.core().trouble(), "no answer");
  one.Pass(one.core().NextDeadline() - one.now());
  ASSERT_TRUE(one.Asks<ReadRecord>());
  one.Step(RecordRead{one.Mine("v2")});
  ASSERT_TRUE(one.Asks<WriteRecord>());
  EXPECT_EQ(one.Find<WriteRecord>()->version, "v2");
  one.Step(RecordWritten{"v3"});
  EXPECT_TRUE(one.MayDecide());
  EXPECT_EQ(one.core().trouble(), "");
}

TEST(LeadershipTest, ATakeWhoseAnswerWasLostLeadsOnlyAfterAWriteThatSucceeded) {
  One one;
  one.Step(RecordRead{One::Released(7)});
  one.Step(RequestFailed{"no answer"});
  one.Pass(one.core().NextDeadline() - one.now());
  one.Step(RecordRead{one.Mine("v2")});
  EXPECT_FALSE(one.core().leads());
  ASSERT_TRUE(one.Asks<WriteRecord>());
  EXPECT_GT(one.Find<WriteRecord>()->record.fence, one.fence_of_write());
  one.Step(RecordWritten{"v3"});
  EXPECT_TRUE(one.MayDecide());
}

TEST(LeadershipTest, ALeaderThatCannotRenewStopsThenEnds) {
  One one;
  one.Lead();
  while (one.now() + absl::Milliseconds(1) < kStart + 2 * kLease) {
    EXPECT_TRUE(one.core().leads());
    EXPECT_EQ(one.MayDecide(), one.now() < one.core().decides_until());
    one.Pass(std::min(one.core().NextDeadline(), kStart + 2 * kLease) - one.now());
    if (one.Asks<EndLeading>()) break;
    one.Step(RequestFailed{"the authority is away"});
  }
  ASSERT_TRUE(one.Asks<EndLeading>());
  EXPECT_THAT(one.Find<EndLeading>()->why, testing::HasSubstr("the authority is away"));
}

TEST(LeadershipTest, ALostRecordEndsTheLead) {
  One one;
  one.Lead();
  one.Pass(one.core().NextDeadline() - one.now());
  one.Step(WriteRefused{});
  one.Step(RecordRead{RecordState{}});
  EXPECT_TRUE(one.Asks<EndLeading>());
}

TEST(LeadershipTest, AfterAStepDownOthersComeFirst) {
  One one;
  one.Lead();
  one.Step(StepDown{});
  EXPECT_FALSE(one.MayDecide());
  ASSERT_TRUE(one.Asks<WriteRecord>());
  EXPECT_EQ(one.Find<WriteRecord>()->record.holder, "");
  one.Step(RecordWritten{"v2"});
  const RecordState released{LeaderRecord{one.fence_of_write(), "", "", kLease}, "v2", false};
  one.Watch(one.core().config().wait_for_successor(), released);
  one.Pass(absl::ZeroDuration());
  EXPECT_TRUE(one.Asks<EndLeading>());
  one.Watch(2 * kLease - absl::Milliseconds(1), released);
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.Watch(absl::Seconds(1), released);  // Nobody else is there.
  EXPECT_TRUE(one.Asks<WriteRecord>());
}

// So that its workers, whose sessions end with its lead, find the other one.
TEST(LeadershipTest, Fault_A3_ALeadThatWasGivenUpEndsWhenAnotherOneLeads) {
  One one;
  one.Lead();
  one.Step(StepDown{});
  one.Step(RecordWritten{"v2"});
  EXPECT_FALSE(one.Asks<EndLeading>());
  EXPECT_FALSE(one.core().leads());
  const RecordState released{LeaderRecord{one.fence_of_write(), "", "", kLease}, "v2", false};
  for (int i = 0; i < 3; ++i) {
    const absl::Duration wait = one.core().NextDeadline() - one.now();
    EXPECT_LE(wait, kLease / 100);
    one.PassAndRead(wait, released);
    EXPECT_FALSE(one.Asks<EndLeading>());
    EXPECT_FALSE(one.MayDecide());
  }
  one.Pass(one.core().NextDeadline() - one.now());
  one.Step(RequestFailed{"no answer"});
  EXPECT_FALSE(one.Asks<EndLeading>());
  one.PassAndRead(one.core().NextDeadline() - one.now(), One::Held(one.fence_of_write() + 1, "w"));
  ASSERT_TRUE(one.Asks<EndLeading>());
  EXPECT_THAT(one.Find<EndLeading>()->why, testing::HasSubstr("other has taken the lead"));
  EXPECT_EQ(one.core().state(), LeadershipState::kStandby);
}

TEST(LeadershipTest, AnotherStepDownWhileALeadIsGivenUpChangesNothing) {
  One one;
  one.Lead();
  one.Step(StepDown{});
  one.Step(StepDown{});
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.Step(RecordWritten{"v2"});
  one.Step(StepDown{});
  EXPECT_TRUE(one.core().NextDeadline() < absl::InfiniteFuture());
  one.Step(Retire{});
  EXPECT_EQ(one.core().state(), LeadershipState::kReleased);
  one.Pass(one.core().config().wait_for_successor());
  EXPECT_TRUE(one.Asks<EndLeading>());
  EXPECT_EQ(one.core().state(), LeadershipState::kRetired);
}

TEST(LeadershipTest, AStepDownDuringARenewalReleasesAfterIt) {
  One one;
  one.Lead();
  one.Pass(one.core().NextDeadline() - one.now());
  ASSERT_TRUE(one.Asks<WriteRecord>());
  one.Step(StepDown{});
  EXPECT_FALSE(one.MayDecide());
  EXPECT_FALSE(one.Asks<WriteRecord>());
  one.Step(RecordWritten{"v2"});
  ASSERT_TRUE(one.Asks<WriteRecord>());
  EXPECT_EQ(one.Find<WriteRecord>()->record.holder, "");
  EXPECT_EQ(one.Find<WriteRecord>()->version, "v2");
}

TEST(LeadershipTest, OneThatRetiresAsksForNothingMore) {
  One one;
  one.Lead();
  one.Step(Retire{});
  one.Step(RecordWritten{"v2"});
  one.Pass(one.core().config().wait_for_successor());
  EXPECT_TRUE(one.Asks<EndLeading>());
  EXPECT_EQ(one.core().state(), LeadershipState::kRetired);
  EXPECT_EQ(one.core().NextDeadline(), absl::InfiniteFuture());
  One standby;
  standby.Step(Retire{});
  EXPECT_EQ(standby.core().state(), LeadershipState::kRetired);
}

// ---- all fates of the first requests

TEST(LeadershipTest, Fault_A5_AllFatesOfTheFirstRequestsGiveOneLeader) {
  constexpr size_t kRequests = 4;  // The fates of the later ones are well.
  for (const bool vouches : {false, true}) {
    std::vector<uint64_t> fates(kRequests, 0);
    bool more = true;
    while (more) {
      size_t asked = 0;
      bool first = true;
      uint64_t options = 0;
      const LeadershipRun run = RunLeadership(
          [&](ChoiceKind kind, uint64_t most) {
            if (kind == ChoiceKind::kWorld) return uint64_t{std::exchange(first, false) && vouches};
            options = most;
            return asked < kRequests ? fates[asked++] : uint64_t{0};
          },
          false);
      ASSERT_EQ(run.violation, "") << testing::PrintToString(fates);
      more = false;
      for (size_t i = kRequests; i-- > 0 && !more; more = fates[i] != 0) {
        fates[i] = (fates[i] + 1) % options;
      }
    }
  }
}

// ---- the checks see mistakes

bool IsSeen(PlantedMistake mistake) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    simulation::Random random(simulation::Mix(seed, 0x1ead));
    const LeadershipRun run = RunLeadership(
        [&](ChoiceKind kind, uint64_t options) {
          if (kind == ChoiceKind::kRequest && !random.Chance(15)) return uint64_t{0};
          return random.Below(options);
        },
        true, mistake);
    if (!run.violation.empty()) return true;
  }
  return false;
}

TEST(LeadershipWorldTest, SeesPlantedMistakes) {
  EXPECT_TRUE(IsSeen(PlantedMistake::kClocksDriftFurther));
  EXPECT_TRUE(IsSeen(PlantedMistake::kVersionsAreIgnored));
  EXPECT_TRUE(IsSeen(PlantedMistake::kDecidesWhileItLeads));
  EXPECT_TRUE(IsSeen(PlantedMistake::kEndedHolderIsOnlyPaused));
  EXPECT_FALSE(IsSeen(PlantedMistake::kNone));
}

}  // namespace
}  // namespace basin::aggregator
