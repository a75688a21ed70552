// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls on rows through libbasin.so, with a real basind. tests/python/test_rows_c.py has workers in
// C, C++ and Python in one call.

#include <basin/basin.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c/aggregator_process.h"
#include "tests/client/c/trainer.h"

namespace basin {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string program;  // The path of basind, from the command line.

constexpr int64_t kPatience = BASIN_SECONDS(60);

using Numbers = std::vector<int64_t>;

// An array of a worker, by the name of its call.
struct Table {
  const char* name = "";
  std::vector<uint64_t> shape;
  Numbers numbers;
  basin_dtype dtype = BASIN_I64;

  basin_tensor c() const {
    return {name, dtype, static_cast<uint32_t>(shape.size()), shape.data()};
  }
  size_t bytes() const { return numbers.size() * sizeof(int64_t); }
};

// So many rows of two numbers, all of this value.
Table Pairs(const char* name, uint64_t rows, int64_t value) {
  return {name, {rows, 2}, Numbers(2 * rows, value)};
}

// A worker, with the arrays of its calls, which the library may read until there is an outcome.
struct Member : Trainer {
  using Trainer::Trainer;

  std::deque<Table> tables;
};

// What a worker has received, or its error.
struct Got {
  basin_code code = BASIN_OK;
  std::string message;
  std::vector<uint64_t> rows;  // Of each part.
  Numbers numbers;
  std::vector<std::string> contributors;
  basin_round_info info = BASIN_ROUND_INFO_INIT;
};

basin_code Allgather(Member& t, Table array, uint32_t* call) {
  const Table& rows = t.tables.emplace_back(std::move(array));
  const basin_tensor c = rows.c();
  return basin_allgather(t.worker, &c, rows.numbers.data(), rows.bytes(), call, t.failure.out());
}

basin_code AllToAll(Member& t, Table array, const std::vector<uint64_t>& splits, uint32_t* call) {
  const Table& rows = t.tables.emplace_back(std::move(array));
  const basin_tensor c = rows.c();
  return basin_alltoall(t.worker, &c, rows.numbers.data(), rows.bytes(), splits.data(),
                        splits.size(), call, t.failure.out());
}

basin_code ReduceScatter(Member& t, Table array, basin_op op, uint32_t* call) {
  const Table& rows = t.tables.emplace_back(std::move(array));
  const basin_tensor c = rows.c();
  const basin_round_spec spec = Trainer::Spec(op);
  return basin_reducescatter(t.worker, &c, &spec, rows.numbers.data(), rows.bytes(), call,
                             t.failure.out());
}

basin_code Broadcast(Member& t, Table array, uint32_t root, uint32_t* call) {
  const Table& rows = t.tables.emplace_back(std::move(array));
  const basin_tensor c = rows.c();
  return basin_broadcast_rows(t.worker, &c, root, rows.numbers.data(), rows.bytes(), call,
                              t.failure.out());
}

Got Wait(Member& t, uint32_t call, int64_t timeout = kPatience) {
  Got got;
  basin_received* received = nullptr;
  got.code = basin_wait_rows(t.worker, call, timeout, &received, t.failure.out());
  got.message = t.failure.message();
  EXPECT_EQ(received == nullptr, got.code != BASIN_OK);
  for (size_t part = 0; part < basin_received_parts(received); ++part) {
    size_t bytes = 0;
    const void* const data = basin_received_data(received, part, &bytes);
    const size_t before = got.numbers.size();
    got.rows.push_back(basin_received_rows(received, part));
    got.numbers.resize(before + bytes / sizeof(int64_t));
    if (bytes > 0) std::memcpy(got.numbers.data() + before, data, bytes);
    // The parts follow each other.
    EXPECT_EQ(data,
              static_cast<const int64_t*>(basin_received_data(received, 0, nullptr)) + before);
  }
  const basin_result* const result = basin_received_result(received);
  basin_result_info(result, &got.info);
  for (uint32_t i = 0; basin_result_contributor(result, i) != nullptr; ++i) {
    got.contributors.emplace_back(basin_result_contributor(result, i));
  }
  EXPECT_EQ(basin_result_contributor_deferred(result, 0), 0u);
  EXPECT_EQ(basin_result_has(result, 0), 0);  // It has no tensors.
  basin_received_free(received);
  return got;
}

class Rows : public testing::Test {
 protected:
  // Workers "w0", "w1", ..., which are members.
  void Launch(int count, const OptionMap& more = {}) {
    for (int i = 0; i < count; ++i) {
      trainers.push_back(
          std::make_unique<Member>(aggregator.address(), "w" + std::to_string(i), count, more));
    }
    for (const auto& trainer : trainers) {
      ASSERT_EQ(trainer->AwaitMember(), BASIN_OK) << trainer->failure.message();
    }
  }
  // Each worker makes the call that `begin` begins.
  using Begin = std::function<basin_code(Member& t, uint32_t rank, uint32_t* call)>;
  std::vector<Got> All(const Begin& begin) {
    std::vector<std::future<Got>> running;
    for (uint32_t rank = 0; rank < trainers.size(); ++rank) {
      running.push_back(std::async(std::launch::async, [this, &begin, rank] {
        Member& t = *trainers[rank];
        uint32_t call = 0;
        EXPECT_EQ(begin(t, rank, &call), BASIN_OK) << t.failure.message();
        return Wait(t, call);
      }));
    }
    std::vector<Got> all;
    all.reserve(running.size());
    for (auto& one : running) all.push_back(one.get());
    for (const Got& got : all) EXPECT_EQ(got.code == BASIN_OK, got.message.empty());
    return all;
  }

  AggregatorProcess aggregator{program};
  std::vector<std::unique_ptr<Member>> trainers;
};

TEST_F(Rows, AnAllgatherHasTheRowsOfAllByRank) {
  Launch(3);
  for (const uint64_t more : {0, 70'001, 0}) {  // The number of rows may change.
    const auto all = All([more](Member& t, uint32_t rank, uint32_t* call) {
      return Allgather(t, Pairs("features", rank + more, rank), call);
    });
    Numbers numbers;
    for (uint32_t rank = 0; rank < 3; ++rank)
      numbers.insert(numbers.end(), 2 * (rank + more), rank);
    for (const Got& got : all) {
      ASSERT_EQ(got.code, BASIN_OK) << got.message;
      EXPECT_THAT(got.rows, ElementsAre(more, more + 1, more + 2));
      EXPECT_TRUE(got.numbers == numbers);  // Too many to be printed.
      EXPECT_THAT(got.contributors, ElementsAre("w0", "w1", "w2"));
      EXPECT_EQ(got.info.trainers, 3u);
    }
  }
}

TEST_F(Rows, ANumberIsOneRowAndARowMayHaveNoBytes) {
  Launch(2);
  const auto numbers = All([](Member& t, uint32_t rank, uint32_t* call) {
    return Allgather(t, {"number", {}, {rank + 5}}, call);
  });
  for (const Got& got : numbers) {
    EXPECT_THAT(got.rows, ElementsAre(1, 1));
    EXPECT_THAT(got.numbers, ElementsAre(5, 6));
  }
  const auto nothing = All([](Member& t, uint32_t rank, uint32_t* call) {
    return Allgather(t, {"nothing", {rank + 1, 0}, {}}, call);
  });
  for (const Got& got : nothing) {
    EXPECT_THAT(got.rows, ElementsAre(1, 2));
    EXPECT_THAT(got.numbers, IsEmpty());
  }
}

TEST_F(Rows, AnAllToAllBringsRowsToTheRanksOfTheirSplits) {
  Launch(3);
  const auto all = All([](Member& t, uint32_t rank, uint32_t* call) {
    const int64_t first = 10 * static_cast<int64_t>(rank);
    return AllToAll(t, {"sent", {3}, {first, first + 1, first + 2}}, {1, 0, 2}, call);
  });
  EXPECT_THAT(all[0].rows, ElementsAre(1, 1, 1));
  EXPECT_THAT(all[0].numbers, ElementsAre(0, 10, 20));
  EXPECT_THAT(all[1].rows, ElementsAre(0, 0, 0));
  EXPECT_THAT(all[1].numbers, IsEmpty());
  EXPECT_THAT(all[2].rows, ElementsAre(2, 2, 2));
  EXPECT_THAT(all[2].numbers, ElementsAre(1, 2, 11, 12, 21, 22));
}

TEST_F(Rows, AReduceScatterHasTheRowsOfThisRank) {
  Launch(3);
  const auto all = All([](Member& t, uint32_t, uint32_t* call) {
    return ReduceScatter(t, {"sum", {5, 1}, {1, 2, 3, 4, 5}}, BASIN_SUM, call);
  });
  EXPECT_THAT(all[0].numbers, ElementsAre(3, 6));
  EXPECT_THAT(all[1].numbers, ElementsAre(9, 12));
  EXPECT_THAT(all[2].numbers, ElementsAre(15));
  EXPECT_THAT(all[2].rows, ElementsAre(1));
  for (const Got& got : all) {
    EXPECT_EQ(got.info.op, BASIN_SUM);
    EXPECT_EQ(got.info.world_size, 3u);
    EXPECT_THAT(got.contributors, ElementsAre("w0", "w1", "w2"));
  }
}

TEST_F(Rows, ABroadcastHasTheRowsOfTheRoot) {
  Launch(3);
  const auto all = All([](Member& t, uint32_t rank, uint32_t* call) {
    Table rows{"said", {3}, {1, 2, 3}};
    if (rank != 1) rows.numbers.clear();  // It needs no memory.
    return Broadcast(t, rows, 1, call);
  });
  for (const Got& got : all) {
    EXPECT_THAT(got.rows, ElementsAre(3));
    EXPECT_THAT(got.numbers, ElementsAre(1, 2, 3)) << got.message;
  }
}

// In each case worker w1 differs from the others.
TEST_F(Rows, DifferentCallsAreErrorsOfAllWorkersThatNameBothSides) {
  struct Case {
    const char* one;
    const char* other;
    Begin begin;
  };
  const std::vector<Case> cases = {
      {"allgather of int64[*, 2]", "allgather of float64[*, 2]",
       [](Member& t, uint32_t rank, uint32_t* call) {
         Table rows = Pairs("dtype", 2, 0);
         if (rank == 1) rows.dtype = BASIN_F64;
         return Allgather(t, rows, call);
       }},
      {"allgather of int64[*, 2]", "allgather of int64[*, 1]",
       [](Member& t, uint32_t rank, uint32_t* call) {
         Table rows = Pairs("shape", 2, 0);
         if (rank == 1) rows.shape = {4, 1};
         return Allgather(t, rows, call);
       }},
      {"of int64[*, 2]", "of int64[*, 2, 1]",
       [](Member& t, uint32_t rank, uint32_t* call) {
         Table rows = Pairs("sent", 3, 0);
         if (rank == 1) rows.shape = {3, 2, 1};
         return AllToAll(t, rows, {1, 1, 1}, call);
       }},
      {"SUM of int64[3, 2]", "MAX of int64[3, 2]",
       [](Member& t, uint32_t rank, uint32_t* call) {
         return ReduceScatter(t, Pairs("op", 3, 0), rank == 1 ? BASIN_MAX : BASIN_SUM, call);
       }},
      {"broadcast from rank 0 (worker w0) of int64[1, 2]",
       "broadcast from rank 1 (worker w1) of int64[1, 2]",
       [](Member& t, uint32_t rank, uint32_t* call) {
         return Broadcast(t, Pairs("root", 1, 0), rank == 1 ? 1 : 0, call);
       }},
  };
  Launch(3);
  for (const Case& each : cases) {
    for (const Got& got : All(each.begin)) {
      EXPECT_EQ(got.code, BASIN_MISMATCH) << each.other;
      EXPECT_THAT(got.message, AllOf(HasSubstr("worker w0 calls "), HasSubstr("worker w1 calls "),
                                     HasSubstr(each.one), HasSubstr(each.other)));
    }
  }
  // The next calls are as before.
  const auto next = All([](Member& t, uint32_t rank, uint32_t* call) {
    return Allgather(t, Pairs("dtype", 1, rank), call);
  });
  for (const Got& got : next) {
    EXPECT_THAT(got.numbers, ElementsAre(0, 0, 1, 1, 2, 2)) << got.message;
  }
}

TEST_F(Rows, WrongArgumentsAreErrorsBeforeAnythingIsSent) {
  Launch(1);
  Member& t = *trainers[0];
  Failure& failure = t.failure;
  uint32_t call = 77;
  const Table three = {"x", {3}, {1, 2, 3}};
  for (const auto& [splits, text] : std::vector<std::pair<std::vector<uint64_t>, const char*>>{
           {{1},
            "The all-to-all x has 3 rows and 1 splits of 1. Give each of the 1 ranks a number"},
           {{1, 2}, "3 rows and 2 splits of 3"},
           {{}, "3 rows and 0 splits of 0"},
           {{UINT64_MAX}, "3 rows and 1 splits"}}) {
    EXPECT_EQ(AllToAll(t, three, splits, &call), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(), HasSubstr(text));
  }
  EXPECT_EQ(Broadcast(t, three, 4, &call), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("there is no rank 4"));
  EXPECT_EQ(ReduceScatter(t, {"x", {}, {1}}, BASIN_SUM, &call), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("which has no rows to share"));
  EXPECT_EQ(ReduceScatter(t, three, static_cast<basin_op>(0), &call), BASIN_INVALID_ARGUMENT);
  // Memory of another size, or none.
  for (const Numbers& numbers : {Numbers{1, 2}, Numbers{}}) {
    const Table other = {"x", {3}, numbers};
    EXPECT_EQ(Allgather(t, other, &call), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(), HasSubstr("Pass the address of its 24 bytes"));
    EXPECT_EQ(AllToAll(t, other, {3}, &call), BASIN_INVALID_ARGUMENT);
    EXPECT_EQ(ReduceScatter(t, other, BASIN_SUM, &call), BASIN_INVALID_ARGUMENT);
    EXPECT_EQ(Broadcast(t, other, 0, &call), BASIN_INVALID_ARGUMENT);
  }
  Table strange = three;
  strange.dtype = BASIN_SAME_DTYPE;
  EXPECT_EQ(Allgather(t, strange, &call), BASIN_INVALID_ARGUMENT);
  strange = {"x", {uint64_t{1} << 62, 8}, {}};
  EXPECT_EQ(Allgather(t, strange, &call), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("no usable size"));
  const basin_tensor c = three.c();
  EXPECT_EQ(basin_allgather(t.worker, nullptr, nullptr, 0, &call, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_allgather(t.worker, &c, three.numbers.data(), 24, nullptr, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_allgather(nullptr, &c, three.numbers.data(), 24, &call, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(
      basin_alltoall(t.worker, &c, three.numbers.data(), 24, nullptr, 1, &call, failure.out()),
      BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(
      basin_reducescatter(t.worker, &c, nullptr, three.numbers.data(), 24, &call, failure.out()),
      BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(call, 77u);
  EXPECT_EQ(Wait(t, 77).code, BASIN_NOT_FOUND);
  EXPECT_THAT(failure.message(), HasSubstr("No call on rows with the handle 77"));
  EXPECT_EQ(basin_wait_rows(t.worker, 77, 0, nullptr, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_received_data(nullptr, 0, nullptr), nullptr);
  // The name was not used up.
  ASSERT_EQ(AllToAll(t, three, {3}, &call), BASIN_OK) << failure.message();
  EXPECT_THAT(Wait(t, call).numbers, ElementsAre(1, 2, 3));
}

TEST_F(Rows, AWorkerOfSeveralRanksHasNoRowsOfOne) {
  Launch(1, {{"ranks", "2"}});
  Member& t = *trainers[0];
  uint32_t call = 0;
  EXPECT_EQ(AllToAll(t, {"x", {2}, {1, 2}}, {1, 1}, &call), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), HasSubstr("worker w0 stands for 2 of them"));
  EXPECT_EQ(ReduceScatter(t, {"x", {2}, {1, 2}}, BASIN_SUM, &call), BASIN_FAILED_PRECONDITION);
  ASSERT_EQ(Allgather(t, {"x", {2}, {1, 2}}, &call), BASIN_OK) << t.failure.message();
  EXPECT_THAT(Wait(t, call).numbers, ElementsAre(1, 2));
}

TEST_F(Rows, ACallGoesOnAfterATimeoutAndIsBegunOnce) {
  Launch(2);
  Member& t = *trainers[0];
  const Table first = {"x", {1}, {5}};
  uint32_t call = 0;
  ASSERT_EQ(Allgather(t, first, &call), BASIN_OK) << t.failure.message();
  EXPECT_EQ(Wait(t, call, 0).code, BASIN_OUTCOME_UNKNOWN);
  uint32_t same = 99;
  EXPECT_EQ(Allgather(t, {"x", {1}, {6}}, &same), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), HasSubstr("The allgather x was begun before"));
  EXPECT_EQ(same, call);
  auto other = std::async(std::launch::async, [&] {
    uint32_t theirs = 0;
    EXPECT_EQ(Allgather(*trainers[1], {"x", {1}, {7}}, &theirs), BASIN_OK);
    return Wait(*trainers[1], theirs);
  });
  EXPECT_THAT(Wait(t, call).numbers, ElementsAre(5, 7));
  EXPECT_THAT(other.get().numbers, ElementsAre(5, 7));
  EXPECT_EQ(Wait(t, call).code, BASIN_NOT_FOUND);  // The outcome is there once.
}

TEST_F(Rows, ALossBetweenTheRoundsIsAnErrorOfTheOthersThatNamesTheWorker) {
  Launch(3, {{"min_workers", "1"}});
  const auto all = All([](Member& t, uint32_t rank, uint32_t* call) {
    const Table rows = Pairs("x", 1, rank);
    const basin_code code = Allgather(t, rows, call);
    if (rank != 2) return code;
    // The handle is that of the first round. Without its outcome the second one is not begun.
    basin_result* result = nullptr;
    EXPECT_EQ(basin_wait(t.worker, *call, kPatience, &result, t.failure.out()), BASIN_OK)
        << t.failure.message();
    basin_result_free(result);
    t.Close();
    return BASIN_OK;
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(all[rank].code, BASIN_UNAVAILABLE) << all[rank].message;
    EXPECT_THAT(all[rank].message, HasSubstr("Worker w2 was lost before it had sent its part of "
                                             "the allgather x. Call it again, on all workers."));
  }
  trainers.pop_back();
  const auto next = All([](Member& t, uint32_t rank, uint32_t* call) {
    return Allgather(t, Pairs("x", 1, rank), call);
  });
  for (const Got& got : next) {
    EXPECT_THAT(got.numbers, ElementsAre(0, 0, 1, 1)) << got.message;
  }
}

TEST_F(Rows, ALossBeforeACallOfRanksIsAnErrorOfTheOthers) {
  Launch(3, {{"min_workers", "1"}});
  // They begin while all are members.
  std::vector<uint32_t> sent(2);
  std::vector<uint32_t> sum(2);
  const Table rows = {"x", {3}, {1, 2, 3}};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Member& t = *trainers[rank];
    ASSERT_EQ(AllToAll(t, rows, {1, 1, 1}, &sent[rank]), BASIN_OK) << t.failure.message();
    ASSERT_EQ(ReduceScatter(t, rows, BASIN_SUM, &sum[rank]), BASIN_OK) << t.failure.message();
  }
  trainers[2]->Close();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const uint32_t call : {sent[rank], sum[rank]}) {
      const Got got = Wait(*trainers[rank], call);
      EXPECT_EQ(got.code, BASIN_UNAVAILABLE) << got.message;
      EXPECT_THAT(got.message, HasSubstr("was begun for 3 workers, and 2 t"));
    }
  }
}

// Begins a round of one tensor by hand, as another client would.
void BeginByHand(Member& t, const char* lane, const char* name, basin_dtype dtype, basin_op op,
                 const char* text, const void* data, size_t bytes, uint32_t* handle) {
  const uint64_t one = 1;
  const basin_tensor tensor = {name, dtype, 1, &one};
  uint32_t of_tensor = 0;
  ASSERT_EQ(
      basin_register(t.worker, lane, BASIN_CALL, &tensor, 1, handle, &of_tensor, t.failure.out()),
      BASIN_OK)
      << t.failure.message();
  basin_round_spec spec = Trainer::Spec(op);
  spec.call = text;
  ASSERT_EQ(basin_begin(t.worker, *handle, &spec, t.failure.out()), BASIN_OK)
      << t.failure.message();
  ASSERT_EQ(basin_push(t.worker, *handle, of_tensor, data, bytes, t.failure.out()), BASIN_OK);
  ASSERT_EQ(basin_commit(t.worker, *handle, nullptr, nullptr, t.failure.out()), BASIN_OK);
}

void WaitByHand(Member& t, uint32_t handle) {
  basin_result* result = nullptr;
  EXPECT_EQ(basin_wait(t.worker, handle, kPatience, &result, t.failure.out()), BASIN_OK)
      << t.failure.message();
  EXPECT_EQ(basin_result_rejection(result), nullptr);
  basin_result_free(result);
}

// The aggregator refuses the first contribution of w1 alone, because its rounds had another op
// before. The others go on to the second round, and would wait for w1 in it.
TEST_F(Rows, WhatFailsOnOneWorkerIsNoWaitForTheOthers) {
  Launch(2);
  const char* const lane = "call/allgather/x";
  const char* const text = "allgather of int64[*]";
  const float nothing = 0;
  const uint8_t byte = 1;
  uint32_t handles[2] = {};
  for (int i = 0; i < 2; ++i) {
    BeginByHand(*trainers[i], lane, "sizes", BASIN_F32, BASIN_SUM, text, &nothing, 4, &handles[i]);
  }
  for (int i = 0; i < 2; ++i) WaitByHand(*trainers[i], handles[i]);

  const Table rows = {"x", {1}, {5}};
  uint32_t call = 0;
  ASSERT_EQ(Allgather(*trainers[1], rows, &call), BASIN_OK) << trainers[1]->failure.message();
  auto refused = std::async(std::launch::async, [&] { return Wait(*trainers[1], call); });
  BeginByHand(*trainers[0], lane, "sizes", BASIN_F32, BASIN_SUM, text, &nothing, 4, &handles[0]);
  WaitByHand(*trainers[0], handles[0]);
  BeginByHand(*trainers[0], "call/contents/allgather/x", "u8/1/0", BASIN_U8, BASIN_MAX, "", &byte,
              1, &handles[0]);
  WaitByHand(*trainers[0], handles[0]);
  const Got got = refused.get();
  EXPECT_EQ(got.code, BASIN_MISMATCH) << got.message;
  EXPECT_THAT(got.message, AllOf(HasSubstr("worker w1"), HasSubstr("worker w0")));
}

TEST_F(Rows, AbandonGivesUpCallsAndTheirMemory) {
  Launch(2);
  Member& t = *trainers[0];
  uint32_t call = 0;
  ASSERT_EQ(Allgather(t, {"x", {1}, {5}}, &call), BASIN_OK) << t.failure.message();
  ASSERT_EQ(basin_abandon(t.worker, t.failure.out()), BASIN_OK) << t.failure.message();
  t.tables.clear();
  EXPECT_EQ(Wait(t, call).code, BASIN_NOT_FOUND);
}

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: rows_test PATH_OF_BASIND\n");
    return 2;
  }
  basin::program = argv[1];
  return RUN_ALL_TESTS();
}
