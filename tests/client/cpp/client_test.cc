// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The C++ interface with a real aggregator. The promises of the C interface are tested there; these
// tests cover the additions of the headers.

#include <basin/client.h>
#include <basin/rows.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c/aggregator_process.h"

namespace basin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string program;  // The path of basind.

constexpr std::chrono::minutes kLong(1);
constexpr std::size_t kWeights = 200'000;
constexpr std::size_t kWeightBytes = kWeights * sizeof(float);

Worker Connected(const AggregatorProcess& aggregator, const std::string& id, int workers,
                 Options::Log log) {
  Options options(Options::Environment::kIgnore);
  if (log != nullptr) options.SetLog(std::move(log));
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"address", aggregator.address()},
        {"worker_id", id},
        {"max_workers", std::to_string(workers)},
        {"fresh", "true"}}) {
    const Status set = options.Set(key, value);
    EXPECT_TRUE(set.ok()) << set.message();
  }
  Result<Worker> worker = Worker::Connect(options);
  EXPECT_TRUE(worker.ok()) << worker.status().message();
  return *std::move(worker);
}

// Workers "w0", "w1", ... of one job, each with a lane of two tensors; the first one has the log.
struct Job {
  explicit Job(int count, Options::Log log = nullptr) : aggregator(program) {
    for (int i = 0; i < count; ++i) {
      workers.push_back(
          Connected(aggregator, "w" + std::to_string(i), count, std::exchange(log, nullptr)));
      Result<Lane> lane = workers.back().Register(
          "model", {{"weight", DType::kF32, {kWeights}}, {"bias", DType::kF32, {2, 3}}});
      EXPECT_TRUE(lane.ok()) << lane.status().message();
      lanes.push_back(*std::move(lane));
      EXPECT_TRUE(workers.back().Ready().ok());
    }
    for (Worker& worker : workers) {
      const Status member = worker.AwaitMember(kLong);
      EXPECT_TRUE(member.ok()) << member.message();
    }
  }

  AggregatorProcess aggregator;
  std::vector<Worker> workers;
  std::vector<Lane> lanes;
};

// Four rounds: equal numbers, another rate at one worker twice, and only one worker that gives any.
TEST(CppClient, OptimizersThatDifferAreRefusedWithBothValues) {
  const std::vector<std::vector<std::string>> rates = {
      {"lr=0.1\nmomentum=0.9", "lr=0.2\nmomentum=0.9"},
      {"lr=0.1\nmomentum=0.9", "lr=0.1\nmomentum=0.9"},
      {"lr=0.1\nmomentum=0.9", "lr=0.3\nmomentum=0.9"},
      {"lr=0.1\nmomentum=0.9", ""}};
  Job job(2);
  const std::vector<float> gradient(kWeights, 1);
  for (const std::vector<std::string>& of_each : rates) {
    for (std::size_t i = 0; i < 2; ++i) {
      RoundSpec spec(Op::kAverage);
      spec.optimizer = of_each[i];
      ASSERT_TRUE(job.lanes[i].Begin(spec).ok());
      ASSERT_TRUE(job.lanes[i].Push(0, gradient.data(), kWeightBytes).ok());
      ASSERT_TRUE(job.lanes[i].Commit().ok());
    }
    const bool differ = !of_each[1].empty() && of_each[0] != of_each[1];
    for (std::size_t i = 0; i < 2; ++i) {
      const Result<RoundResult> result = job.lanes[i].Wait(kLong);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(result->info().divisor, differ ? 1u : 2u);
      const Status rejection = result->rejection();
      EXPECT_EQ(rejection.code(), differ && i == 1 ? Code::kMismatch : Code::kOk);
      if (rejection.ok()) continue;
      EXPECT_NE(rejection.message().find("worker w1 has " + of_each[1].substr(0, 6) +
                                         ", and worker w0 has lr=0.1. "),
                std::string::npos)
          << rejection.message();
    }
  }
}

// The call that goes on is not checked against the arguments of another one.
TEST(CppClient, ACallOnRowsThatTimedOutIsTheSameWhenItIsMadeAgain) {
  Job job(2);
  const std::vector<std::int32_t> numbers = {1, 2, 3};
  const auto rows = [&](std::size_t count) { return Rows{DType::kI32, {}, numbers.data(), count}; };
  RowCalls first(job.workers[0]);
  EXPECT_EQ(first.AllToAll("sent", rows(3), {1, 2}, Duration::zero()).status().code(),
            Code::kOutcomeUnknown);
  auto other = std::async(std::launch::async, [&] {
    return RowCalls(job.workers[1]).AllToAll("sent", rows(2), {2, 0}, kLong);
  });
  const Result<std::vector<RowCalls::Bytes>> mine = first.AllToAll("sent", rows(0), {}, kLong);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  ASSERT_EQ(mine->size(), 2u);
  EXPECT_EQ((*mine)[0].size(), sizeof(std::int32_t));
  EXPECT_EQ((*mine)[1].size(), 2 * sizeof(std::int32_t));
  const Result<std::vector<RowCalls::Bytes>> theirs = other.get();
  ASSERT_TRUE(theirs.ok()) << theirs.status().message();
  EXPECT_EQ((*theirs)[0].size(), 2 * sizeof(std::int32_t));
  EXPECT_EQ((*theirs)[1].size(), 0u);
}

TEST(CppClient, RunsRounds) {
  Job job(2);
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < 2; ++i) {
    gradients.emplace_back(kWeights, static_cast<float>(i + 1));
    RoundSpec spec(Op::kAverage);
    spec.counts.samples = 10;
    spec.step = 7;
    if (i == 0) {
      spec.local_reduction = LocalReduction::kFast;
      spec.reduced_with = {"w7", "w8"};
    }
    ASSERT_TRUE(job.lanes[i].Begin(spec).ok());
    ASSERT_TRUE(
        job.lanes[i].Push(0, gradients[i].data(), gradients[i].size() * sizeof(float)).ok());
    ASSERT_TRUE(job.lanes[i].Skip(1).ok());
    ASSERT_TRUE(job.lanes[i].Commit().ok());
  }
  for (Lane& lane : job.lanes) {
    const Result<RoundResult> result = lane.Wait(kLong);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(result->rejection().ok());
    const RoundInfo info = result->info();
    EXPECT_EQ(info.spec.op, Op::kAverage);
    EXPECT_EQ(info.divisor, 2u);
    EXPECT_EQ(info.weights, 2u);
    EXPECT_EQ(info.spec.counts.samples, 20);
    EXPECT_FALSE(info.spec.counts.tokens.has_value());
    ASSERT_EQ(info.contributors.size(), 2u);
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(info.contributors[j].worker, j == 0 ? "w0" : "w1");
      const double value = gradients[j][0];
      EXPECT_EQ(info.contributors[j].squared_norm, kWeights * value * value);
    }
    EXPECT_EQ(info.contributors[0].local_reduction, LocalReduction::kFast);
    EXPECT_EQ(info.contributors[0].reduced_with, (std::vector<std::string>{"w7", "w8"}));
    EXPECT_EQ(info.contributors[1].local_reduction, LocalReduction::kNone);
    EXPECT_TRUE(info.contributors[1].reduced_with.empty());
    EXPECT_EQ(info.generation, job.workers[0].place()->generation);
    EXPECT_EQ(info.world_size, 2u);
    EXPECT_EQ(info.contract_version, 1u);
    EXPECT_EQ(result->SquaredNorm(0), kWeights * 1.5 * 1.5);
    EXPECT_EQ(info.squared_norm, result->SquaredNorm(0));
    EXPECT_EQ(result->SquaredNorm(1), std::nullopt) << "skipped by all";
    EXPECT_EQ(result->Divisor(0), 2u);
    EXPECT_EQ(result->Divisor(1), 0u);
    EXPECT_FALSE(info.nonfinite.has_value());
    EXPECT_TRUE(result->Has(0));
    EXPECT_FALSE(result->Has(1));
    EXPECT_FALSE(result->Has(2));
    std::vector<float> copied(kWeights);
    ASSERT_TRUE(result->Copy(0, copied.data(), kWeightBytes).ok());
    EXPECT_TRUE(copied == std::vector<float>(kWeights, 1.5f));
    std::string pieces;
    result->ForEachPiece(0, [&](const void* data, std::size_t bytes) {
      pieces.append(static_cast<const char*>(data), bytes);
    });
    EXPECT_TRUE(pieces == std::string(reinterpret_cast<const char*>(copied.data()), kWeightBytes));
    EXPECT_EQ(result->Copy(1, copied.data(), 24).code(), Code::kNotFound);
    EXPECT_EQ(result->Copy(9, copied.data(), 24).code(), Code::kNotFound);
  }
}

TEST(CppClient, TellsACallbackOnce) {
  Job job(1);
  std::vector<float> gradient(kWeights, 3);
  for (int round = 0; round < 3; ++round) {
    std::promise<RoundResult> told;
    ASSERT_TRUE(job.lanes[0].Begin(RoundSpec(Op::kSum)).ok());
    ASSERT_TRUE(job.lanes[0].Push(0, gradient.data(), gradient.size() * sizeof(float)).ok());
    const Status committed = job.lanes[0].Commit([&](Result<RoundResult> outcome) {
      ASSERT_TRUE(outcome.ok()) << outcome.status().message();
      told.set_value(*std::move(outcome));
    });
    ASSERT_TRUE(committed.ok()) << committed.message();
    const RoundResult result = told.get_future().get();
    ASSERT_TRUE(result.Copy(0, gradient.data(), kWeightBytes).ok());
    EXPECT_EQ(gradient[kWeights - 1], 3);
  }
  // A commit that fails does not call the callback, and destroys it.
  auto alive = std::make_shared<int>();
  const std::weak_ptr<int> watched = alive;
  EXPECT_FALSE(job.lanes[0].Commit([alive = std::move(alive)](const auto&) { FAIL(); }).ok());
  EXPECT_TRUE(watched.expired());
}

TEST(CppClient, ACallbackIsToldWhenTheWorkerIsClosed) {
  Job job(2);
  const std::vector<float> gradient(kWeights, 3);
  std::promise<Code> told;
  ASSERT_TRUE(job.lanes[0].Begin(RoundSpec(Op::kSum)).ok());
  ASSERT_TRUE(job.lanes[0].Push(0, gradient.data(), gradient.size() * sizeof(float)).ok());
  ASSERT_TRUE(job.lanes[0]
                  .Commit([&](const Result<RoundResult>& outcome) {
                    told.set_value(outcome.status().code());
                  })
                  .ok());
  job.workers.clear();
  EXPECT_EQ(told.get_future().get(), Code::kUnavailable);
}

// The same happens when the callback holds the last reference to the owner of the worker.
TEST(CppClient, ACallbackMayCloseItsWorker) {
  Job job(2);
  Result<Lane> other = job.workers[0].Register("other", {{"weight", DType::kF32, {kWeights}}});
  ASSERT_TRUE(other.ok()) << other.status().message();
  const std::vector<float> gradient(kWeights, 3);
  std::promise<Code> told;
  ASSERT_TRUE(other->Begin(RoundSpec(Op::kSum)).ok());
  ASSERT_TRUE(other->Push(0, gradient.data(), gradient.size() * sizeof(float)).ok());
  ASSERT_TRUE(other
                  ->Commit([&](const Result<RoundResult>& outcome) {
                    told.set_value(outcome.status().code());
                  })
                  .ok());
  for (Lane& lane : job.lanes) {
    ASSERT_TRUE(lane.Begin(RoundSpec(Op::kSum)).ok());
    ASSERT_TRUE(lane.Push(0, gradient.data(), gradient.size() * sizeof(float)).ok());
  }
  auto owner = std::make_shared<Worker>(std::move(job.workers[0]));
  std::promise<Code> closed;
  ASSERT_TRUE(job.lanes[0]
                  .Commit([&closed, owner = std::move(owner)](const auto& outcome) mutable {
                    owner.reset();
                    closed.set_value(outcome.status().code());
                  })
                  .ok());
  ASSERT_TRUE(job.lanes[1].Commit().ok());
  EXPECT_EQ(closed.get_future().get(), Code::kOk);
  // The round that only this worker had committed ends with it.
  EXPECT_EQ(told.get_future().get(), Code::kUnavailable);
}

constexpr SampleEpoch kEpoch = {3, 100, 7};

// Begins a round with a gradient, or without one.
void Begin(Lane& lane, bool contributes) {
  static const float bias[6] = {1, 1, 1, 1, 1, 1};
  const Status begun = lane.Begin(RoundSpec(Op::kAverage));
  ASSERT_TRUE(begun.ok()) << begun.message();
  if (!contributes) {
    ASSERT_TRUE(lane.Withdraw("it has no samples").ok());
    return;
  }
  ASSERT_TRUE(lane.Push(1, bias, sizeof bias).ok());
  ASSERT_TRUE(lane.Commit().ok());
}

SampleBatch Next(Lane& lane, std::size_t count, const SampleEpoch& epoch = kEpoch) {
  Result<SampleBatch> batch = lane.NextSamples(epoch, count);
  EXPECT_TRUE(batch.ok()) << batch.status().message();
  return batch.ok() ? *std::move(batch) : SampleBatch{LeaseOutcome::kEnded, {}};
}

TEST(CppClient, BatchesGiveEachSampleOnceAndEndAtTheSameRoundOnAllWorkers) {
  Job job(3);
  std::vector<std::vector<std::uint64_t>> trained(3);
  std::vector<std::uint64_t> rounds(3);
  std::vector<std::future<void>> running;
  for (std::size_t i = 0; i < 3; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      Lane& lane = job.lanes[i];
      for (;;) {
        const SampleBatch batch = Next(lane, 4 + i);
        if (batch.outcome == LeaseOutcome::kEnded) return;
        Begin(lane, !batch.positions.empty());
        const Result<RoundResult> result = lane.Wait(kLong);
        ASSERT_TRUE(result.ok()) << result.status().message();
        ASSERT_TRUE(result->rejection().ok()) << result->rejection().message();
        rounds[i] = result->info().round;
        trained[i].insert(trained[i].end(), batch.positions.begin(), batch.positions.end());
      }
    }));
  }
  for (auto& each : running) each.get();
  std::vector<std::uint64_t> all;
  for (const auto& positions : trained) {
    EXPECT_FALSE(positions.empty());
    for (const std::uint64_t position : positions) all.push_back(Shuffled(kEpoch, position));
  }
  std::sort(all.begin(), all.end());
  std::vector<std::uint64_t> expected(kEpoch.samples);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_THAT(rounds, ElementsAre(rounds[0], rounds[0], rounds[0]));
}

TEST(CppClient, ABatchComesAgainUntilARoundHasCommittedIt) {
  Job job(1);
  Lane& lane = job.lanes[0];
  EXPECT_THAT(Next(lane, 3).positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(Next(lane, 3).positions, ElementsAre(0, 1, 2));
  Begin(lane, false);
  const Result<SampleBatch> early = lane.NextSamples(kEpoch, 3);
  EXPECT_EQ(early.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(early.status().message(), HasSubstr("Lane model"));
  EXPECT_EQ(lane.Wait(kLong).status().code(), Code::kRoundAborted);
  // The call that was refused has changed nothing: a round that is begun again names the batch.
  Begin(lane, false);
  EXPECT_EQ(lane.Wait(kLong).status().code(), Code::kRoundAborted);
  EXPECT_THAT(Next(lane, 2).positions, ElementsAre(0, 1));
  Begin(lane, false);
  EXPECT_EQ(lane.Wait(kLong).status().code(), Code::kRoundAborted);
  Begin(lane, true);
  Result<RoundResult> result = lane.Wait(kLong);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->info().samples->committed, 2u);
  // That batch has been trained on, and there is no other one yet.
  const Status begun = lane.Begin(RoundSpec(Op::kAverage));
  EXPECT_EQ(begun.code(), Code::kFailedPrecondition);
  EXPECT_THAT(begun.message(), HasSubstr("sample 0 of epoch 3"));
  EXPECT_THAT(Next(lane, 2).positions, ElementsAre(2));
  // Samples that the round is given itself count in its place.
  RoundSpec spec(Op::kAverage);
  spec.samples = {{0, 1}};
  spec.sample_epoch = kEpoch.number;
  EXPECT_EQ(lane.Begin(spec).code(), Code::kFailedPrecondition);
  // A later epoch gives up what is held of this one.
  const SampleEpoch later = {4, 10, 7};
  EXPECT_EQ(Next(lane, 10, later).positions.size(), 10u);
  EXPECT_EQ(lane.NextSamples(later, 0).status().code(), Code::kInvalidArgument);
}

TEST(CppClient, CallsWithoutANameAreMatchedByTheirOrder) {
  constexpr std::size_t kWorkers = 3;
  constexpr std::uint64_t kCalls = 200;
  Job job(kWorkers);
  const auto run = [&](std::size_t me) {
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      std::vector<float> floats(call * 7 % 50, static_cast<float>(me + call));
      std::vector<std::int64_t> integers(call % 3, static_cast<std::int64_t>(me));
      const Result<RoundResult> result = job.workers[me].Allreduce(
          RoundSpec(Op::kSum),
          {{DType::kF32, {floats.size()}, floats.data(), floats.data()},
           {DType::kI64, {integers.size(), 1}, integers.data(), integers.data()}},
          kLong);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(floats, std::vector<float>(floats.size(), static_cast<float>(3 + 3 * call)));
      EXPECT_EQ(integers, std::vector<std::int64_t>(integers.size(), 3));
    }
    float number = 1;
    const DType dtype = me == 1 ? DType::kI32 : DType::kF32;
    const Result<RoundResult> result =
        job.workers[me].Allreduce(RoundSpec(Op::kSum), {{dtype, {}, &number, &number}}, kLong);
    EXPECT_EQ(result.status().code(), Code::kMismatch);
    EXPECT_THAT(result.status().message(),
                HasSubstr("worker w0 calls SUM of f32[], but worker w1 calls SUM of i32[]"));
  };
  std::vector<std::future<void>> running;
  for (std::size_t me = 0; me < kWorkers; ++me) {
    running.push_back(std::async(std::launch::async, run, me));
  }
  for (std::future<void>& worker : running) worker.get();
}

TEST(CppClient, AllreducesInPlaceAndMeetsAtABarrier) {
  Job job(2);
  std::vector<std::future<void>> running;
  std::vector<std::vector<float>> numbers(2, std::vector<float>(6, 2));
  for (std::size_t i = 0; i < 2; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      const Result<RoundResult> result = job.lanes[i].Allreduce(
          RoundSpec(Op::kProduct),
          {{1, numbers[i].data(), numbers[i].data(), numbers[i].size() * sizeof(float)}}, kLong);
      EXPECT_TRUE(result.ok()) << result.status().message();
      const Status met = job.workers[i].Barrier("end", kLong);
      EXPECT_TRUE(met.ok()) << met.message();
    }));
  }
  for (auto& each : running) each.get();
  EXPECT_EQ(numbers[0], std::vector<float>(6, 4));
  EXPECT_EQ(numbers[1], numbers[0]);
}

TEST(CppClient, AllreducesFromMemoryThatItAllocates) {
  Job job(2);
  std::vector<std::future<void>> running;
  for (std::size_t i = 0; i < 2; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      const Result<void*> memory = job.workers[i].Allocate(6 * sizeof(float));
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      auto* const numbers = static_cast<float*>(*memory);
      EXPECT_EQ(numbers[5], 0);
      std::fill_n(numbers, 6, 2.0F);
      const Result<RoundResult> result = job.lanes[i].Allreduce(
          RoundSpec(Op::kProduct), {{1, numbers, numbers, 6 * sizeof(float)}}, kLong);
      EXPECT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(numbers[0], 4);
      EXPECT_TRUE(job.workers[i].Free(numbers).ok());
      EXPECT_EQ(job.workers[i].Free(numbers).code(), Code::kInvalidArgument);
    }));
  }
  for (auto& each : running) each.get();
}

TEST(CppClient, CopiesValues) {
  Job job(2);
  const Tensor tensor = {"parameters", DType::kF32, {kWeights}};
  std::vector<float> from(kWeights);
  std::iota(from.begin(), from.end(), 1.0f);
  ASSERT_TRUE(
      job.workers[0]
          .Announce("model", tensor, 1, from.data(), from.size() * sizeof(float), Hold::kInPlace)
          .ok());
  std::vector<float> to(kWeights);
  const Status got = job.workers[1].Get("model", tensor, 1, "w0", kLong, to.data(), kWeightBytes);
  EXPECT_TRUE(got.ok()) << got.message();
  EXPECT_TRUE(to == from);
  {
    const Step step(job.workers[0]);
    from[0] = 0;
  }
  EXPECT_TRUE(job.workers[0].StopServing("model", "parameters").ok());

  std::vector<std::vector<float>> models = {from, to};
  std::vector<std::future<Status>> running;
  for (std::size_t i = 0; i < 2; ++i) {
    running.push_back(std::async(std::launch::async, [&, i] {
      return job.workers[i].Broadcast("model", tensor, 2, 0, models[i].data(), kWeightBytes, kLong);
    }));
  }
  for (auto& each : running) {
    const Status status = each.get();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(models[1] == from);
}

TEST(CppClient, SaysWhereItStands) {
  Job job(2);
  const Result<Place> place = job.workers[1].place();
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->role, Role::kMember);
  EXPECT_EQ(place->world_size, 2u);
  EXPECT_EQ(place->joins, 1u);
  EXPECT_EQ(place->donor, std::nullopt);
  EXPECT_EQ(place->donor_since, Generation());
  EXPECT_EQ(job.workers[1].id(), "w1");
  EXPECT_EQ(job.workers[0].MemberId(place->rank), "w1");
  EXPECT_EQ(job.workers[0].MemberId(2), "");

  const Result<int> events = job.workers[1].EventFd();
  ASSERT_TRUE(events.ok());
  pollfd readable = {*events, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 60'000), 1);
  EXPECT_TRUE(job.workers[1].Busy("evaluation", std::chrono::seconds(3)).ok());
  EXPECT_TRUE(job.workers[1].Finished().ok());
  EXPECT_TRUE(job.workers[0].Leave().ok());
  EXPECT_TRUE(job.workers[0].place()->left);
}

TEST(CppClient, ErrorsAreTypedAndSayWhatToDo) {
  Options options(Options::Environment::kIgnore);
  const Status unknown = options.Set("adress", "here:1");
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_THAT(unknown.message(), HasSubstr("adress"));
  EXPECT_FALSE(options.Set("max_workers", "many").ok());
  ASSERT_TRUE(options.Set("max_workers", "3").ok());
  EXPECT_EQ(options.Get("max_workers"), "3");
  EXPECT_EQ(options.Get("nothing"), std::nullopt);
  EXPECT_STREQ(CodeName(Code::kOutcomeUnknown), "OUTCOME_UNKNOWN");

  Job job(1);
  const Result<RoundResult> none = job.lanes[0].Wait(std::chrono::seconds(1));
  EXPECT_EQ(none.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(none.status().message(), HasSubstr("begin"));
  EXPECT_FALSE(none.status().fatal());
  EXPECT_EQ(job.lanes[0].Push(5, &job, sizeof(job)).code(), Code::kNotFound);
  EXPECT_EQ(job.workers[0].AwaitMember(kLong).code(), Code::kOk);
}

TEST(CppClient, TheEnvironmentIsReadOnlyIfAskedTo) {
  setenv("BASIN_JOB", "from-environment", 1);
  EXPECT_EQ(Options(Options::Environment::kRead).Get("job"), "from-environment");
  EXPECT_EQ(Options(Options::Environment::kIgnore).Get("job"), "default");
  unsetenv("BASIN_JOB");
}

TEST(CppClient, TheLogOutlivesTheOptions) {
  std::promise<std::string> said;
  Result<Worker> worker = [&] {
    Options options(Options::Environment::kIgnore);
    options.Set("address", "127.0.0.1:1").IgnoreError();
    bool first = true;
    options.SetLog([&said, first](LogLevel, const std::string& message) mutable {
      if (std::exchange(first, false)) said.set_value(message);
    });
    return Worker::Connect(options);
  }();
  ASSERT_TRUE(worker.ok());
  // Asked for by the first call.
  const Status member = worker->AwaitMember(std::chrono::milliseconds(1));
  EXPECT_EQ(member.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(worker->Ready().ok());
  EXPECT_THAT(said.get_future().get(), HasSubstr("127.0.0.1:1"));
}

TEST(CppClient, AWorkerThatIsReplacedIsClosedBeforeItsLogGoes) {
  std::vector<std::string> order;
  std::shared_ptr<void> token(nullptr, [&](void*) { order.emplace_back("the log goes"); });
  Job job(2, [token = std::move(token)](LogLevel, const std::string&) {});
  const std::vector<float> gradient(kWeights, 3);
  ASSERT_TRUE(job.lanes[0].Begin(RoundSpec(Op::kSum)).ok());
  ASSERT_TRUE(job.lanes[0].Push(0, gradient.data(), gradient.size() * sizeof(float)).ok());
  ASSERT_TRUE(job.lanes[0].Commit([&](const auto&) { order.emplace_back("the round ends"); }).ok());
  EXPECT_THAT(order, ElementsAre());
  job.workers[0] = std::move(job.workers[1]);
  EXPECT_THAT(order, ElementsAre("the round ends", "the log goes"));

  Worker& itself = job.workers[0];
  job.workers[0] = std::move(itself);
  EXPECT_EQ(job.workers[0].id(), "w1");
}

static_assert(std::is_nothrow_move_assignable_v<Worker>);
static_assert(std::is_nothrow_move_constructible_v<Worker> &&
              !std::is_copy_constructible_v<Worker>);
static_assert(std::is_nothrow_move_constructible_v<RoundResult>);

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  basin::program = argv[1];
  return RUN_ALL_TESTS();
}
