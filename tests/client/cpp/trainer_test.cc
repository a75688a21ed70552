// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basin::Trainer with a real aggregator: how a run ends, and how it is resumed. Workers that come
// and go are tested with the examples.

#include <basin/trainer.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c/aggregator_process.h"

namespace basin {
namespace {

using ::testing::_;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

std::string program;  // The path of basind.

constexpr std::uint64_t kSamples = 90;

// How often each sample was trained in an epoch, on all workers.
class Trained {
 public:
  void Add(const Batch& batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::uint64_t sample : batch.samples) ++epochs_[batch.epoch][sample];
  }
  std::map<std::uint64_t, int> In(std::uint64_t epoch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return epochs_[epoch];
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::map<std::uint64_t, int>> epochs_;
};

// A worker whose model is the sum of averages of 1, so the number of steps.
struct Model {
  Model(const AggregatorProcess& aggregator, const std::string& id, int workers) {
    Options options(Options::Environment::kIgnore);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"address", aggregator.address()},
          {"worker_id", id},
          {"max_workers", std::to_string(workers)},
          {"min_workers", "1"},
          {"start_workers", std::to_string(workers)},
          {"fresh", "true"}}) {
      const Status set = options.Set(key, value);
      EXPECT_TRUE(set.ok()) << set.message();
    }
    Result<Trainer> created =
        Trainer::Create(options, {{{"gradient", DType::kF64, {1}}, &gradient}});
    EXPECT_TRUE(created.ok()) << created.status().message();
    trainer = std::make_unique<Trainer>(*std::move(created));
    const Status registered = trainer->worker().RegisterState("value", &value, sizeof value);
    EXPECT_TRUE(registered.ok()) << registered.message();
  }

  // `compute` is called first, and ends the run with its error.
  Status Run(const Training& training, Trained& trained,
             const std::function<Status()>& compute = nullptr) {
    Batch batch;
    return trainer->Run(
        training,
        [&](const Batch& next) {
          gradient = 1;
          batch = next;
          return compute == nullptr ? Status() : compute();
        },
        [&](const RoundResult& result) {
          EXPECT_TRUE(result.rejection().ok()) << result.rejection().message();
          trained.Add(std::exchange(batch, {}));
          value += gradient;
          Result<SampleProgress> now = trainer->Progress();
          if (!now.ok()) return now.status();
          progress = *std::move(now);
          return Status();
        });
  }

  double gradient = 0;
  double value = 0;
  SampleProgress progress;
  std::unique_ptr<Trainer> trainer;
};

TEST(CppTrainer, AnErrorOfTheTrainerEndsItsRunAndTheOthersTrainItsSamples) {
  const AggregatorProcess aggregator(program);
  const Training training = {kSamples, 4, 7, 2};
  Trained trained;
  Model stays(aggregator, "w0", 2);
  Model fails(aggregator, "w1", 2);
  auto running = std::async(std::launch::async, [&] { return stays.Run(training, trained); });
  int steps = 0;
  const Status failed = fails.Run(training, trained, [&steps] {
    return ++steps < 3 ? Status() : Status(Code::kDataCorrupt, "a file cannot be read");
  });
  EXPECT_EQ(failed.code(), Code::kDataCorrupt);
  EXPECT_THAT(failed.message(), HasSubstr("a file cannot be read"));
  EXPECT_EQ(fails.trainer->step(), 2U);
  const Status ended = running.get();
  EXPECT_TRUE(ended.ok()) << ended.message();
  EXPECT_EQ(stays.trainer->epoch(), 2U);
  EXPECT_EQ(stays.value, static_cast<double>(stays.trainer->step()));
  for (const std::uint64_t epoch : {0, 1}) {
    EXPECT_THAT(trained.In(epoch), SizeIs(kSamples));
    EXPECT_THAT(trained.In(epoch), Each(Pair(_, 1)));
  }
}

TEST(CppTrainer, AnErrorOfTheTrainerEndsItsRunAlsoWithTheCodeOfARoundThatGoesOn) {
  for (const Code code : {Code::kRoundAborted, Code::kEvicted}) {
    const AggregatorProcess aggregator(program);
    Trained trained;
    Model fails(aggregator, "w0", 1);
    int steps = 0;
    const auto fail_once = [&] { return ++steps == 3 ? Status(code, "not again") : Status(); };
    Status ended = fails.Run({kSamples, 4, 7, 1}, trained, fail_once);
    EXPECT_EQ(ended.code(), code);
    EXPECT_THAT(ended.message(), HasSubstr("not again"));
    EXPECT_EQ(fails.trainer->step(), 2U);

    Model cannot_apply(aggregator, "w1", 1);
    ended = cannot_apply.trainer->Run(
        {kSamples, 4, 7, 1}, [](const Batch&) { return Status(); },
        [&](const RoundResult&) { return Status(code, "not applied"); });
    EXPECT_EQ(ended.code(), code);
    EXPECT_EQ(cannot_apply.trainer->step(), 1U);
  }
}

TEST(CppTrainer, AWorkerThatIsEvictedWhileItComputesJoinsAgain) {
  const AggregatorProcess aggregator(program);
  const Training training = {kSamples, 2, 7};
  Trained trained;
  Model stays(aggregator, "w0", 2);
  Model returns(aggregator, "w1", 2);
  std::promise<void> joined;
  std::shared_future<void> again = joined.get_future().share();
  // Both train until the second epoch has ended after the return, however long that takes.
  std::atomic<std::uint64_t> epochs{UINT64_MAX};
  int joins = 0;
  returns.trainer->OnResize([&](const Place& place) {
    if (place.joins != 2 || joins++ > 0) return;
    epochs = returns.trainer->epoch() + 2;
    joined.set_value();
  });
  for (Model* model : {&stays, &returns}) {
    model->trainer->LeaveIf([&, model] { return model->trainer->epoch() >= epochs; });
  }
  int steps = 0;
  auto running = std::async(std::launch::async, [&] {
    return returns.Run(training, trained, [&] {
      return ++steps == 3 ? returns.trainer->worker().Abandon() : Status();
    });
  });
  const Status ended = stays.Run(training, trained, [&] {
    // It goes on slowly until the other one is back, so that there is something to join.
    const bool waits = again.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    if (waits && stays.trainer->step() > 3) again.wait_for(std::chrono::milliseconds(100));
    return Status();
  });
  EXPECT_TRUE(ended.ok()) << ended.message();
  const Status other = running.get();
  EXPECT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(joins, 1);
  EXPECT_EQ(returns.value, stays.value);
  EXPECT_EQ(returns.trainer->step(), stays.trainer->step());
  EXPECT_EQ(stays.trainer->epoch(), epochs);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    EXPECT_THAT(trained.In(epoch), SizeIs(kSamples));
    EXPECT_THAT(trained.In(epoch), Each(Pair(_, 1)));
  }
}

TEST(CppTrainer, AWorkerAtAnotherStepThanTheOthersIsNotCountedAndEnds) {
  const AggregatorProcess aggregator(program);
  const Training training = {kSamples, 4, 7, 1};
  Trained trained;
  Model right(aggregator, "w0", 2);
  Model wrong(aggregator, "w1", 2);
  auto running = std::async(std::launch::async, [&] { return right.Run(training, trained); });
  Batch batch;
  const Status ended = wrong.trainer->Run(
      training,
      [&](const Batch& next) {
        wrong.gradient = 1;
        batch = next;
        return Status();
      },
      [&](const RoundResult&) {
        trained.Add(batch);
        return wrong.trainer->step() == 2 ? wrong.trainer->Resume(5, {}) : Status();
      });
  EXPECT_EQ(ended.code(), Code::kMismatch) << ended.message();
  EXPECT_THAT(ended.message(), HasSubstr("worker w1 is at step 5, but worker w0 is at step 2"));
  EXPECT_EQ(wrong.trainer->step(), 5U);
  const Status other = running.get();
  EXPECT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(right.value, static_cast<double>(right.trainer->step()));
  EXPECT_THAT(trained.In(0), SizeIs(kSamples));
  EXPECT_THAT(trained.In(0), Each(Pair(_, 1)));
}

TEST(CppTrainer, AWorkerWithAnotherLearningRateIsNotCountedAndEndsWithBothValues) {
  const AggregatorProcess aggregator(program);
  const Training training = {kSamples, 4, 7, 1};
  Trained trained;
  Model right(aggregator, "w0", 2);
  Model wrong(aggregator, "w1", 2);
  right.trainer->CheckOptimizer([] { return OptimizerNumbers{{"lr", 0.1}, {"momentum", 0.9}}; });
  // Only this one steps its schedule.
  wrong.trainer->CheckOptimizer([&wrong] {
    return OptimizerNumbers{{"lr", wrong.trainer->step() < 2 ? 0.1 : 0.05}, {"momentum", 0.9}};
  });
  auto running = std::async(std::launch::async, [&] { return right.Run(training, trained); });
  const Status ended = wrong.Run(training, trained);
  EXPECT_EQ(ended.code(), Code::kMismatch) << ended.message();
  EXPECT_THAT(ended.message(), HasSubstr("worker w1 has lr=0.05, and worker w0 has lr=0.1. "));
  EXPECT_EQ(wrong.trainer->step(), 2U);
  EXPECT_EQ(wrong.value, 2);
  const Status other = running.get();
  EXPECT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(right.value, static_cast<double>(right.trainer->step()));
  EXPECT_THAT(trained.In(0), SizeIs(kSamples));
  EXPECT_THAT(trained.In(0), Each(Pair(_, 1)));
}

class Comma : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
};

TEST(OptimizerText, IsEqualWhereOnlyTheLastBitsOrTheLocaleDiffer) {
  const double rate = 1e-3 / 3;
  const OptimizerNumbers numbers = {{"momentum", 0.9}, {"lr", rate}};
  const std::string text = "lr=0.000333333\nmomentum=0.9\n";
  EXPECT_EQ(OptimizerText(numbers), text);
  EXPECT_EQ(OptimizerText({{"lr", std::nextafter(rate, 1)}, {"momentum", 0.9}}), text);
  EXPECT_NE(OptimizerText({{"lr", 1e-3 / 4}, {"momentum", 0.9}}), text);
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  EXPECT_EQ(OptimizerText(numbers), text);
  std::locale::global(before);
  EXPECT_EQ(OptimizerText({}), "");
}

TEST(CppTrainer, AResumedRunTrainsTheRestOfTheEpochOnAnotherNumberOfWorkers) {
  Training training = {kSamples, 4, 7, 1, 5};
  Trained trained;
  SampleProgress progress;
  {
    const AggregatorProcess aggregator(program);
    Model model(aggregator, "w0", 1);
    const Status ended = model.Run(training, trained);
    EXPECT_TRUE(ended.ok()) << ended.message();
    EXPECT_EQ(model.trainer->step(), 5U);
    progress = model.progress;
  }
  EXPECT_THAT(trained.In(0), SizeIs(20));
  const AggregatorProcess aggregator(program);
  training.steps = UINT64_MAX;
  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::future<Status>> running;
  for (const char* id : {"w0", "w1", "w2"}) {
    Model& model = *models.emplace_back(std::make_unique<Model>(aggregator, id, 3));
    model.value = 5;
    const Status resumed = model.trainer->Resume(5, progress);
    EXPECT_TRUE(resumed.ok()) << resumed.message();
    running.push_back(std::async(std::launch::async, [&] { return model.Run(training, trained); }));
  }
  for (auto& each : running) {
    const Status ended = each.get();
    EXPECT_TRUE(ended.ok()) << ended.message();
  }
  EXPECT_THAT(trained.In(0), SizeIs(kSamples));
  EXPECT_THAT(trained.In(0), Each(Pair(_, 1)));
  for (const auto& model : models) {
    EXPECT_EQ(model->trainer->epoch(), 1U);
    EXPECT_EQ(model->value, static_cast<double>(model->trainer->step()));
    EXPECT_EQ(model->value, models[0]->value);
  }
}

TEST(CppTrainer, OneThatIsToLeaveBeforeItsFirstStepLeaves) {
  const AggregatorProcess aggregator(program);
  Trained trained;
  Model model(aggregator, "w0", 2);  // The other one never comes.
  model.trainer->LeaveIf([calls = 0]() mutable { return ++calls > 2; });
  const Status ended = model.Run({kSamples, 4, 7, 1}, trained);
  EXPECT_TRUE(ended.ok()) << ended.message();
  EXPECT_EQ(model.trainer->step(), 0U);
  EXPECT_TRUE(model.trainer->worker().place()->left);
}

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  basin::program = argv[1];
  return RUN_ALL_TESTS();
}
