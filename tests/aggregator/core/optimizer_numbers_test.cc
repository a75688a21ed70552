// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers of optimizers: who is refused, and in which words.

#include "aggregator/core/optimizer_numbers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

Begin With(uint64_t hash, const Lines& lines) {
  Begin begin;
  begin.optimizer = hash;
  begin.optimizer_numbers = lines;
  return begin;
}

// More than is ever needed.
constexpr uint64_t kRoom = uint64_t{1} << 20;

std::string DifferenceOf(const Lines& a, const Lines& b) {
  OptimizerNumbers numbers;
  MemoryBudget memory;
  numbers.Note(With(1, a), kRoom, memory);
  numbers.Note(With(2, b), kRoom, memory);
  return numbers.Difference("a", 1, "b", 2);
}

TEST(OptimizerNumbers, OnlyWhatDiffersIsNamedWithBothValues) {
  EXPECT_EQ(DifferenceOf({"lr=0.1 in all groups", "momentum=0.9 in all groups"},
                         {"lr=0.2 in all groups", "momentum=0.9 in all groups"}),
            "worker a has lr=0.1 in all groups, and worker b has lr=0.2 in all groups");
}

TEST(OptimizerNumbers, ANumberThatOnlyOneHasIsNamedAtBoth) {
  EXPECT_EQ(DifferenceOf({"amsgrad=True", "lr=0.1"}, {"lr=0.1"}),
            "worker a has amsgrad=True, and worker b has no amsgrad");
  EXPECT_EQ(DifferenceOf({"lr=1 in one"}, {"lr=1 in one", "lr=1 in two"}),
            "worker a has no such number, and worker b has lr=1 in two");
}

TEST(OptimizerNumbers, ManyAndLongOnesAreCounted) {
  Lines a;
  Lines b;
  for (int i = 0; i < 9; ++i) {
    a.push_back("lr=1 in the group of parameter " + std::to_string(i));
    b.push_back("lr=2 in the group of parameter " + std::to_string(i));
  }
  EXPECT_THAT(DifferenceOf(a, b), HasSubstr("lr=1 in the group of parameter 4 and 4 more, and"));
  a = Lines(3, "lr=1 in the group of parameter " + std::string(250, 'x'));
  b = Lines(3, "lr=2 in the group of parameter " + std::string(900, 'x'));
  EXPECT_LT(DifferenceOf(a, b).size(), 1000u);
  EXPECT_THAT(DifferenceOf(a, b), HasSubstr("xxx and 1 more, and worker b has 3 other numbers"));
}

TEST(OptimizerNumbers, ThatWereCutAreNotMadeUp) {
  const std::string unknown = "worker a and worker b differ in numbers that the aggregator was not";
  EXPECT_THAT(DifferenceOf({"lr=1"}, {"lr=1"}), HasSubstr(unknown)) << "as far as they were sent";
  EXPECT_THAT(DifferenceOf({"lr=1"}, {}), HasSubstr(unknown));
  EXPECT_THAT(OptimizerNumbers().Difference("a", 1, "b", 2), HasSubstr(unknown));
}

TEST(OptimizerNumbers, AreBoundedAndThoseOfTheLastRoundStay) {
  OptimizerNumbers numbers;
  MemoryBudget memory;
  const auto lines = [](uint64_t i) {
    return Lines{"lr=" + std::to_string(i), "x" + std::string(3000, 'x')};
  };
  for (uint64_t i = 1; i <= 100; ++i) numbers.Note(With(i, lines(i)), kRoom, memory);
  EXPECT_LE(memory.reserved, OptimizerNumbers::kMostBytes);
  EXPECT_GE(memory.reserved, OptimizerNumbers::kMostBytes - 4000);
  EXPECT_THAT(numbers.Difference("a", 1, "b", 2), HasSubstr("lr=2"));
  EXPECT_THAT(numbers.Difference("a", 1, "b", 100), HasSubstr("was not sent"));
  numbers.EndRound(2, memory);
  EXPECT_THAT(numbers.Difference("a", 1, "b", 2), HasSubstr("was not sent"));
  numbers.Note(With(100, lines(100)), kRoom, memory);
  EXPECT_THAT(numbers.Difference("a", 2, "b", 100), HasSubstr("a has lr=2, and worker b has lr="));
  numbers.EndRound(0, memory);
  EXPECT_THAT(numbers.Difference("a", 2, "b", 100), HasSubstr("lr=2"));
}

TEST(OptimizerNumbers, AreChargedAndThoseWithoutRoomAreLeftOut) {
  OptimizerNumbers numbers;
  MemoryBudget memory;
  numbers.Note(With(1, {"lr=1"}), kRoom, memory);
  const uint64_t one = memory.reserved;
  EXPECT_GT(one, 0u);
  EXPECT_EQ(numbers.bytes(), one);
  numbers.Note(With(2, {"lr=2"}), one - 1, memory);
  EXPECT_EQ(memory.reserved, one);
  EXPECT_THAT(numbers.Difference("a", 1, "b", 2), HasSubstr("could not keep"));
  numbers.Note(With(2, {"lr=2"}), one, memory);
  EXPECT_EQ(memory.reserved, 2 * one);
  EXPECT_EQ(numbers.Difference("a", 1, "b", 2), "worker a has lr=1, and worker b has lr=2");
  numbers.EndRound(2, memory);
  EXPECT_EQ(memory.reserved, one);
  numbers.EndRound(3, memory);
  EXPECT_EQ(memory.reserved, 0u) << "nobody has sent those of the round";
  numbers.Note(With(1, {"lr=1"}), kRoom, memory);
  numbers.Clear(memory);
  EXPECT_EQ(memory.reserved, 0u);
}

// Three members, which say that their optimizers have a learning rate.
struct ThreeRates : Three {
  explicit ThreeRates(const Config& config = {}) : Three(Settings(1, 4, 3), config) {
    Rates(1, 1, 1);
  }
  // 0: the worker gives none. Numbers that it has given in the round before are not sent again.
  void Rates(uint64_t of_a, uint64_t of_b, uint64_t of_c) {
    Set(a, of_a), Set(b, of_b), Set(c, of_c);
  }
  static void Set(TestWorker& worker, uint64_t rate) {
    const bool known = worker.optimizer == rate;
    worker.optimizer = rate;
    worker.optimizer_numbers = known || rate == 0 ? Lines{} : Lines{"lr=" + std::to_string(rate)};
  }
  size_t Contributors() {
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
    return a.verdict().value.contributors.size();
  }
};

TEST(Optimizers, OneThatDiffersIsRefusedInThatRoundAndGoesOn) {
  ThreeRates t;
  EXPECT_EQ(t.Contributors(), 3u);
  t.Rates(2, 1, 1);  // The numbers of b and c are those of the first round.
  EXPECT_EQ(t.Contributors(), 2u);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kMismatch);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              HasSubstr("round 2: the optimizers differ: worker a has lr=2, and worker b has lr=1. "
                        "Worker a is not counted in this round."));
  EXPECT_EQ(t.a.lane().last, 2u) << "it stages and applies the result";
  EXPECT_EQ(t.b.Count<Rejected>() + t.c.Count<Rejected>(), 0u);
  t.Rates(1, 1, 1);
  EXPECT_EQ(t.Contributors(), 3u);
}

// The harness compares what is reserved with what the jobs have.
TEST(Optimizers, AreChargedToTheJobUntilANewLineage) {
  ThreeRates t;
  const auto charged = [&t] { return t.job().lanes[0].optimizers.bytes(); };
  t.Rates(2, 3, 4);
  t.a.Begin();
  const uint64_t one = charged();
  EXPECT_GT(one, 0u);
  t.b.Begin();
  t.c.Begin();
  EXPECT_EQ(charged(), 3 * one);
  EXPECT_GE(t.core->reserved_bytes(), 3 * one);
  t.a.PushTensor(0);
  t.a.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(charged(), one) << "of the only contributor";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Send(Leave{});
  EXPECT_EQ(charged(), 0u);
}

TEST(Optimizers, WithoutMemoryForTheNumbersOneThatDiffersIsRefusedAllTheSame) {
  Config config;
  // The whole lane is a frame, so its least is all that it takes of the budget.
  config.frame_bytes = config.window_bytes = config.result_window_bytes = 2 * kChunkBytes;
  {
    ThreeRates without(config);
    without.Rates(0, 0, 0);
    EXPECT_EQ(without.Contributors(), 3u);
    config.memory_bytes = without.core->reserved_bytes() + 5'000;
  }
  ThreeRates t(config);
  t.Rates(2, 1, 1);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->optimizer_numbers = {std::string(10'000, 'x')};
  }
  EXPECT_EQ(t.Contributors(), 2u);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kMismatch);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              HasSubstr("worker a and worker b differ in numbers that the aggregator was not sent "
                        "or could not keep"));
}

TEST(Optimizers, AScheduleThatAllFollowIsNoDifference) {
  ThreeRates t;
  for (uint64_t rate = 1; rate < 5; ++rate) {
    t.Rates(rate, rate, rate);
    EXPECT_EQ(t.Contributors(), 3u);
  }
}

TEST(Optimizers, WhatMostHaveIsRightWhateverTheLastRoundHad) {
  ThreeRates t;
  EXPECT_EQ(t.Contributors(), 3u);
  t.Rates(1, 2, 2);  // Only a has forgotten to step its scheduler.
  EXPECT_EQ(t.Contributors(), 2u);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kMismatch);
}

TEST(Optimizers, IfAllDifferTheLowestIdIsRightAndEachIsNamed) {
  ThreeRates t;
  t.Rates(7, 8, 9);
  for (TestWorker* worker : {&t.c, &t.b, &t.a}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 1u);
  EXPECT_EQ(t.a.Count<Rejected>(), 0u);
  EXPECT_THAT(t.b.Last<Rejected>().error.text, HasSubstr("b has lr=8, and worker a has lr=7"));
  EXPECT_THAT(t.c.Last<Rejected>().error.text, HasSubstr("c has lr=9, and worker a has lr=7"));
}

TEST(Optimizers, OfOlderClientsAndThoseThatWithdrawAreNotCompared) {
  ThreeRates t;
  t.Rates(0, 5, 0);
  EXPECT_EQ(t.Contributors(), 3u);
  t.Rates(5, 6, 0);
  t.a.Begin();
  t.a.Withdraw();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.a.Count<Rejected>() + t.b.Count<Rejected>() + t.c.Count<Rejected>(), 0u);
}

TEST(Optimizers, AreComparedAgainWithoutAContributorThatIsLost) {
  ThreeRates t;
  t.Rates(1, 2, 2);
  t.b.Begin();
  t.b.Cut();  // It is lost before all have begun.
  t.Sleep(absl::Minutes(1));
  t.c.Contribute();
  t.a.Contribute();
  EXPECT_EQ(t.a.Count<Rejected>(), 0u) << "of one against one, the lower id is right";
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
}

TEST(Optimizers, AtAnotherStepTheStepIsNamed) {
  ThreeRates t;
  t.a.step = 7;
  t.b.step = t.c.step = 8;
  t.Rates(7, 8, 8);
  EXPECT_EQ(t.Contributors(), 2u);
  EXPECT_EQ(t.a.Count<Rejected>(), 1u);
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("worker a is at step 7"));
}

}  // namespace
}  // namespace basin::aggregator
