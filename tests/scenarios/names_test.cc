// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls with many names, with both cores: workers make them in orders of their own, what is on its
// way arrives in many orders, connections break and the aggregator is replaced. Every call of every
// worker has its result, and the job holds a bounded number of names.

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

constexpr uint32_t kNames = 30;      // That the workers use.
constexpr uint32_t kMostNames = 16;  // That the job may hold, with its gradient lane.
constexpr uint32_t kInFlight = 4;
constexpr uint32_t kBlocks = 15;
constexpr uint32_t kSeeds = 60;

// What was seen in all runs.
struct Sights {
  int forgotten = 0;     // A worker forgot a call that was gone.
  int again = 0;         // A name was used again after that.
  int begun_anew = 0;    // A call was begun while its lane went.
  int disconnected = 0;  // A connection broke meanwhile.
  int restarted = 0;     // The aggregator was replaced meanwhile.
};

class Calls {
 public:
  Calls(uint32_t seed, Sights& sights) : random_(seed), sights_(sights) {
    Run("log messages");
    Run(absl::StrCat("aggregator start names=", kMostNames));
    Run("worker start w1 w2 w3 fresh max=3");
    Run("register w1 w2 w3 a");
    Run("ready w1 w2 w3");
    Run("stabilize");
  }

  // Each worker makes some calls, which are all in flight at once, and gets all results.
  void MakeCalls() {
    text_.clear();
    std::vector<uint32_t> names(kNames);
    for (uint32_t i = 0; i < kNames; ++i) names[i] = i;
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(kInFlight);
    std::vector<std::pair<std::string, std::vector<uint32_t>>> left;
    for (const std::string& worker : workers_) {
      left.emplace_back(worker, names);
      std::shuffle(left.back().second.begin(), left.back().second.end(), random_);
    }
    while (!left.empty()) {
      const size_t at = Below(static_cast<uint32_t>(left.size()));
      auto& [worker, calls] = left[at];
      const std::string lane = absl::StrCat(" lane=call/", calls.back());
      Run(absl::StrCat("register ", worker, " x", lane, " call"));
      Run(absl::StrCat("backward ", worker, lane, " op=SUM"));
      calls.pop_back();
      if (calls.empty()) left.erase(left.begin() + static_cast<ptrdiff_t>(at));
      DeliverSome();
      Break();
    }
    Run("sleep 20s");  // Everybody connects again, and everything arrives.
    for (const uint32_t name : names) {
      for (const std::string& worker : workers_) ExpectResult(worker, absl::StrCat("call/", name));
    }
    for (const char* wrong : {"FATAL", "ends with", "refused: ", "is not counted"}) {
      EXPECT_FALSE(absl::StrContains(text_, wrong)) << wrong << " in\n" << text_;
    }
    EXPECT_FALSE(world_.violated()) << text_;
    const aggregator::Job& job = *world_.FindAggregator("aggregator")->core().FindJob(kJob);
    // Those that were in flight, or away, when the last name came go with the next one, so that
    // there may be as many as a job can have.
    EXPECT_LE(job.lanes.size(), kMostNames);
    for (const std::string& worker : workers_) {
      EXPECT_LE(world_.FindWorker(worker)->core().lanes().size(), kMostNames) << worker;
    }
  }

 private:
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  void Run(const std::string& line) {
    std::string error;
    absl::StrAppend(&text_, RunCommand(world_, line, error));
    EXPECT_EQ(error, "") << line;
  }
  // Some of what is on its way, from or to a worker or anybody.
  void DeliverSome() {
    Choice choice;
    const uint32_t who = Below(5);
    if (who < workers_.size()) (Below(2) == 0 ? choice.from : choice.to) = workers_[who];
    if (Below(3) == 0) choice.hold = {"LaneGone"};
    for (uint32_t i = Below(40); i > 0; --i) world_.DeliverOne(choice);
    absl::StrAppend(&text_, world_.TakeOutput());
  }
  void Break() {
    if (Below(30) == 0) {
      Run(absl::StrCat("disconnect ", workers_[Below(3)]));
      ++sights_.disconnected;
    } else if (Below(60) == 0) {
      Run(absl::StrCat("aggregator restart names=", kMostNames, " term=", ++term_));
      ++sights_.restarted;
    }
  }
  // The worker got the result of the call once, and it is that of all workers.
  void ExpectResult(const std::string& worker, const std::string& lane) {
    const std::vector<std::string> lines = absl::StrSplit(text_, '\n');
    std::vector<std::string> results;
    for (const std::string& line : lines) {
      if (absl::StartsWith(line, absl::StrCat("  ", worker, ": ", lane, " round "))) {
        results.push_back(line);
      }
    }
    ASSERT_EQ(results.size(), 1u) << worker << " " << lane << "\n" << text_;
    EXPECT_TRUE(absl::StrContains(results[0], " COMMITTED sum of {w1,w2,w3}")) << results[0];
    const bool first = absl::StrContains(results[0], " round 1 ");
    if (first && ++first_rounds_[worker + lane] > 1) ++sights_.again;
    for (const std::string& line : lines) {
      if (absl::StartsWith(line, absl::StrCat("  ", worker, ": forgets"))) ++sights_.forgotten;
    }
    const std::string begin = absl::StrCat(worker, " -> aggregator  Begin lane=", lane, " round=");
    const size_t once = text_.find(begin);
    if (first && once != std::string::npos && text_.compare(once + begin.size(), 2, "1 ") != 0) {
      ++sights_.begun_anew;
    }
  }

  const std::vector<std::string> workers_ = {"w1", "w2", "w3"};
  std::minstd_rand random_;
  Sights& sights_;
  World world_;
  std::string text_;
  Term term_ = 1;
  std::map<std::string, int> first_rounds_;
};

TEST(Names, Fault_A1_CallsWithManyNamesEndWhateverHappens) {
  Sights sights;
  for (uint32_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Calls calls(seed, sights);
    for (uint32_t block = 0; block < kBlocks && !testing::Test::HasFailure(); ++block) {
      calls.MakeCalls();
    }
  }
  EXPECT_GT(sights.forgotten, 0);
  EXPECT_GT(sights.again, 0);
  EXPECT_GT(sights.begun_anew, 0);
  EXPECT_GT(sights.disconnected, 0);
  EXPECT_GT(sights.restarted, 0);
}

}  // namespace
}  // namespace basin::scenarios
