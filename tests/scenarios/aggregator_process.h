// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of an aggregator: a Coordinator, and the bytes it decides about. Reductions and writes
// of the state file are done as soon as they are asked for.
//
// Thread contract: one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/core/coordinator.h"
#include "tests/scenarios/payload.h"

namespace basin::scenarios {

class World;

class AggregatorProcess {
 public:
  AggregatorProcess(World& world, std::string name, aggregator::Config config);

  void Step(const aggregator::Event& event);
  void TakeFrame(aggregator::SessionId session, const Frame& frame);
  void TakeValue(aggregator::SessionId session, const ValueFrame& frame);

  const std::string& name() const { return name_; }
  aggregator::Coordinator& core() { return core_; }

  bool alive = true;
  bool stopped = false;  // By SIGSTOP.

 private:
  using ChunkId = std::pair<TensorIndex, uint32_t>;
  struct RoundBytes {
    std::map<Incarnation, std::map<ChunkId, double>> contributions;
    std::map<Ballot, aggregator::StartAttempt> attempts;
    std::map<std::pair<Ballot, ChunkId>, double> results;
  };
  using RoundId = std::tuple<aggregator::JobId, LaneIndex, RoundNumber>;

  void CarryOut(const aggregator::Action& action);
  void Send(const std::vector<aggregator::SessionId>& sessions, const ToWorker& message);
  void Reduce(const aggregator::Reduce& reduce);
  void Publish(const aggregator::Publish& publish);
  void Save(const aggregator::SaveState& save);
  const TensorSpec& Spec(aggregator::JobId job, LaneIndex lane, TensorIndex tensor) const;

  World& world_;
  const std::string name_;
  aggregator::Coordinator core_;
  std::map<RoundId, RoundBytes> rounds_;
  std::map<std::tuple<std::string, std::string, uint64_t>, uint64_t> values_;
  const Frame* frame_ = nullptr;  // That the Step in progress was given.
  const ValueFrame* value_frame_ = nullptr;
  std::deque<aggregator::Event> follow_ups_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
