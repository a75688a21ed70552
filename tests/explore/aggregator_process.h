// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of the aggregator in an explored world: the core, delivery included, and the shell that
// holds what stands for bytes. What a real runner would take for a broken core (a reduction of
// bytes that are not held, say) is reported in `wrong`.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"
#include "tests/explore/item.h"

namespace basin::explore {

inline constexpr char kJob[] = "j";

struct AggregatorOutput {
  enum class Kind : uint8_t { kMessage, kFrame, kEnd };  // kEnd: the message is the session's last.
  Kind kind = Kind::kMessage;
  aggregator::SessionId session = 0;
  Item item;
};

class AggregatorProcess {
 public:
  AggregatorProcess(const aggregator::Config& config, absl::Time started, absl::Time now)
      : core_(config, started), started_(started), now_(now) {}

  void Open(aggregator::SessionId session);
  // Its only data stream, which has the number of the session.
  void OpenStream(aggregator::SessionId session);
  void Take(aggregator::SessionId session, const Item& item);
  // The session ends and settles.
  void Lose(aggregator::SessionId session);
  void Evict(const WorkerId& worker);
  // The oldest reduction that is under way ends. REQUIRES: Reducing().
  void FinishReduction();
  bool Reducing() const { return !reductions_.empty(); }

  // Whether the recovery window can pass (it is running, or nobody has said hello yet).
  bool WindowRuns() const;
  void PassWindow();
  // Whether the job waits for the start timeout.
  bool StartTimeoutRuns() const;
  void PassStartTimeout();

  const aggregator::Job* job() const { return core().FindJob(kJob); }
  Term term() const { return core().config().term; }
  absl::Time now() const { return now_; }

  std::vector<AggregatorOutput> TakeOutputs() { return std::exchange(outputs_, {}); }
  // What is wrong with the last step; empty when nothing is.
  const std::string& wrong() const { return wrong_; }

  auto Fields() const { return std::tie(core().config().term, core_, now_, shell_, reductions_); }

 private:
  using Shell = shell::AggregatorShell<Sums>;

  const aggregator::Coordinator& core() const { return core_.coordinator(); }
  void Step(const aggregator::Event& event, const PushFrame* arrived);
  void Do(aggregator::Action& action, const PushFrame* arrived);
  void Check(const absl::Status& status);

  aggregator::Aggregator core_;
  absl::Time started_;
  absl::Time now_;
  Shell shell_;
  std::vector<Shell::Reduction> reductions_;  // Under way, the oldest first.
  std::vector<AggregatorOutput> outputs_;
  std::string wrong_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_
