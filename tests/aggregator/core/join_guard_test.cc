// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker that joins, is lost before a round counts it, and joins again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Config WithLimit() {
  Config config;
  config.fruitless_joins = 2;
  return config;
}

struct Guarded : Running {
  Guarded() : Running(Settings(1, 4, 2), WithLimit()) {}
  // The worker joins at the next verdict of the others.
  TestWorker& JoinLate(const std::string& id) {
    TestWorker& worker = Join(id);
    Round();
    EXPECT_EQ(worker.role, Role::kMember);
    return worker;
  }
  void Fail(TestWorker& worker) {
    Step(WorkerExited{kJob, worker.id});
    worker.Restart();
  }
};

TEST(JoinGuard, RefusesAWorkerThatIsLostAgainBeforeARoundCountsIt) {
  Guarded c;
  for (int join = 0; join < 2; ++join) c.Fail(c.JoinLate("j"));
  TestWorker& j = c["j"];
  j.Connect();
  ASSERT_TRUE(j.ended.has_value());
  EXPECT_EQ(j.ended->code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(j.ended->text, AllOf(HasSubstr("worker j joined 2 times in a row"),
                                   HasSubstr("the last time it has exited"),
                                   HasSubstr("refused for 10m (worker.join_pause)")));
  EXPECT_EQ(c.LastNote(NoteKind::kWorkerRefused).cause, NoteCause::kFruitlessJoins);
  c.Round();
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 2u) << "the others go on";
}

TEST(JoinGuard, AfterThePauseTheWorkerHasOneMoreTurn) {
  Guarded c;
  for (int join = 0; join < 2; ++join) c.Fail(c.JoinLate("j"));
  c.Sleep(c.config.join_pause);
  c.Fail(c.JoinLate("j"));
  c["j"].Connect();
  ASSERT_TRUE(c["j"].ended.has_value());
  EXPECT_THAT(c["j"].ended->text, HasSubstr("joined 3 times in a row"));
}

TEST(JoinGuard, ARoundThatCountsTheWorkerStartsAnew) {
  Guarded c;
  c.Fail(c.JoinLate("j"));
  TestWorker& j = c.JoinLate("j");
  c.Round();
  j.Contribute();
  c.Fail(j);
  c.Fail(c.JoinLate("j"));
  c.JoinLate("j");
  EXPECT_FALSE(j.ended.has_value());
}

// As a script does that raises an error in its first step.
TEST(JoinGuard, AWorkerThatLeavesBeforeARoundCountsItCountsToo) {
  Guarded c;
  for (int join = 0; join < 2; ++join) {
    TestWorker& j = c.JoinLate("j");
    j.Send(Leave{});
    j.Restart();
  }
  c["j"].Connect();
  ASSERT_TRUE(c["j"].ended.has_value());
  EXPECT_THAT(c["j"].ended->text, HasSubstr("the last time it left"));
}

TEST(JoinGuard, IsOffWithoutALimit) {
  Guarded c;
  EXPECT_EQ(Config().fruitless_joins, 0u);
  JoinGuard guard;
  for (int join = 0; join < 9; ++join) guard.AddFruitless(absl::UnixEpoch(), "has exited");
  EXPECT_EQ(guard.RefusedUntil(Config()), absl::InfinitePast());
}

}  // namespace
}  // namespace basin::aggregator
