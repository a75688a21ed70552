// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of the aggregator in an explored world: the core, and a shell that holds what stands
// for bytes and does what the core's actions say. What a real runner would take for a broken core
// (a reduction of bytes that are not held, say) is reported in `wrong`.
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
#include "aggregator/core/coordinator.h"
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
  void Take(aggregator::SessionId session, const Item& item);
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

  const aggregator::Job* job() const { return core_.FindJob(kJob); }
  Term term() const { return core_.config().term; }
  absl::Time now() const { return now_; }

  std::vector<AggregatorOutput> TakeOutputs() { return std::move(outputs_); }
  // What is wrong with the last step; empty when nothing is.
  const std::string& wrong() const { return wrong_; }

  auto Fields() const {
    return std::tie(core_.config().term, core_, now_, kept_, attempts_, results_, reductions_);
  }

 private:
  using RoundKey = std::pair<LaneIndex, RoundNumber>;
  using ContributionKey = std::tuple<LaneIndex, RoundNumber, Incarnation>;
  using ResultKey = std::tuple<LaneIndex, RoundNumber, Ballot>;
  struct Attempt {
    Ballot ballot;
    std::vector<Contributor> contributors;
    auto Fields() const { return std::tie(ballot, contributors); }
  };
  struct Reduction {
    LaneIndex lane = 0;
    RoundNumber round = 0;
    Ballot ballot;
    ChunkRange range;
    Chunk result;
    auto Fields() const { return std::tie(lane, round, ballot, range, result); }
  };

  void Step(const aggregator::Event& event, const Chunk* chunk);
  void Do(aggregator::Action& action, const Chunk* chunk);
  void StartAttempt(const aggregator::StartAttempt& start);
  void Reduce(const aggregator::Reduce& reduce);
  void Publish(const aggregator::Publish& publish);
  void EndRound(const aggregator::EndRound& end);
  void SendFrame(aggregator::SessionId session, ResultFrame frame);

  aggregator::Coordinator core_;
  absl::Time started_;
  absl::Time now_;
  // Ordered by key; vectors, because there are few and they are copied often.
  std::vector<std::pair<ContributionKey, Chunk>> kept_;
  std::vector<std::pair<RoundKey, Attempt>> attempts_;
  std::vector<std::pair<ResultKey, Chunk>> results_;
  std::vector<Reduction> reductions_;
  std::vector<AggregatorOutput> outputs_;
  std::string wrong_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_
