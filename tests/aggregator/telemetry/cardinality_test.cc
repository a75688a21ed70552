// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The number of series stays bounded while workers come and go, in front of a whole engine.

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/telemetry/snapshot.h"
#include "gtest/gtest.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

class Counting : public NoteSink {
 public:
  explicit Counting(Metrics& metrics) : metrics_(metrics) {}
  void OnNote(const Note& note, absl::Time now) override { metrics_.Count(note, now); }

 private:
  Metrics& metrics_;
};

class Observed : public EngineNetwork {
 public:
  Observed() : EngineNetwork(engine), engine(EngineOptions(), clock, *reducer, counting, nullptr) {
    engine.Start(transport);
  }
  ~Observed() override { engine.Stop(); }

  // The names and labels of all series.
  std::set<std::string> Series() {
    const Snapshot snapshot = LookAt<Snapshot>(engine, [](const Runner& runner) {
      return basin::aggregator::LookAt(runner, absl::UnixEpoch());
    });
    std::istringstream text(metrics.Text(snapshot, absl::ZeroDuration()));
    std::set<std::string> series;
    std::string line;
    while (std::getline(text, line)) {
      if (line[0] != '#') series.insert(line.substr(0, line.rfind(' ')));
    }
    return series;
  }

  Metrics metrics{"1"};
  ManualClock clock;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Counting counting{metrics};
  Engine engine;
};

Model Growing(uint32_t start) {
  Model model = AverageOf({F32("weight", kChunkFloats)}, 1);
  model.settings.min_workers = 1;
  model.settings.max_workers = 1000;
  model.settings.start_workers = start;
  return model;
}

// Waits until the worker has received a list of so many members.
void AwaitMembers(RigWorker& worker, size_t count) {
  while (worker.Await<MembershipChanged>().membership.members.size() != count) {
    if (::testing::Test::HasFailure()) return;
  }
}

size_t CountOfWorkers(const std::set<std::string>& series) {
  return static_cast<size_t>(std::count_if(series.begin(), series.end(), [](const auto& name) {
    return name.find("basin_worker_last_seen_seconds") == 0;
  }));
}

TEST(Cardinality, AThousandWorkersThatComeAndGoLeaveNoSeries) {
  constexpr size_t kWave = 40;
  Observed observed;
  const Model model = Growing(1);
  RigWorker steady(observed, "steady", model);
  steady.Connect();
  steady.Ready();
  AwaitMembers(steady, 1);
  std::set<std::string> before;
  for (int come = 0; come < 1000 + static_cast<int>(kWave);) {
    std::vector<std::unique_ptr<RigWorker>> wave;
    while (wave.size() < kWave) {
      wave.push_back(std::make_unique<RigWorker>(observed, absl::StrCat("w", come++), model));
      wave.back()->streams_wanted = 0;
      wave.back()->Connect();
      wave.back()->Ready();
    }
    AwaitMembers(steady, 1 + kWave);
    const std::set<std::string> during = observed.Series();
    EXPECT_EQ(1 + kWave, CountOfWorkers(during));
    for (const auto& worker : wave) worker->Send(Leave{});
    AwaitMembers(steady, 1);
    const std::set<std::string> after = observed.Series();
    if (before.empty()) {  // The first wave has caused each kind of event once.
      before = after;
      continue;
    }
    ASSERT_EQ(before, after) << "after " << come << " workers";
    EXPECT_EQ(before.size() + kWave, during.size()) << "one series for each that is there";
  }
}

TEST(Cardinality, AJobHasSeriesOfSoManyWorkersAtMost) {
  Observed observed;
  const Model model = Growing(kMostWorkerSeries + 50);
  std::vector<std::unique_ptr<RigWorker>> workers;
  while (workers.size() < model.settings.start_workers) {
    workers.push_back(
        std::make_unique<RigWorker>(observed, absl::StrCat("w", workers.size()), model));
    workers.back()->streams_wanted = 0;
    workers.back()->Connect();
    workers.back()->Ready();
  }
  AwaitMembers(*workers[0], workers.size());
  EXPECT_EQ(kMostWorkerSeries, CountOfWorkers(observed.Series()));
}

}  // namespace
}  // namespace basin::aggregator
