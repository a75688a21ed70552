// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of an aggregator: the core with delivery, and the shell that holds numbers instead of
// bytes. It does reductions and writes of the state file as soon as the core asks for them.
//
// Thread contract: one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "aggregator/core/aggregator.h"
#include "tests/scenarios/payload.h"

namespace basin::scenarios {

class World;

class AggregatorProcess {
 public:
  AggregatorProcess(World& world, std::string name, aggregator::Config config);

  void Step(const aggregator::Event& event);
  void OnFrame(aggregator::SessionId session, const PushFrame& frame);
  void OnValue(aggregator::SessionId session, const ValueFrame& frame);

  const std::string& name() const { return name_; }
  const aggregator::Aggregator& core() const { return core_; }

  bool alive = true;
  bool stopped = false;  // By SIGSTOP.

 private:
  using Shell = shell::AggregatorShell<Elements>;

  void CarryOut(const aggregator::Action& action);
  void Require(const absl::Status& status);
  void Send(const std::vector<aggregator::SessionId>& sessions, const ToWorker& message);
  void Save(const aggregator::SaveState& save);

  World& world_;
  const std::string name_;
  aggregator::Aggregator core_;
  Shell shell_;
  const PushFrame* frame_ = nullptr;  // The frame of the Step in progress.
  const ValueFrame* value_frame_ = nullptr;
  std::deque<aggregator::Event> follow_ups_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
