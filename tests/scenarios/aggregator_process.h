// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of an aggregator: its process (tests/world), which does reductions and writes of the
// state file as soon as the core asks for them.
//
// Thread contract: one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/scenarios/payload.h"
#include "tests/world/aggregator_process.h"

namespace basin::scenarios {

class World;

class AggregatorProcess : public world::AggregatorProcess<Elements> {
 public:
  AggregatorProcess(World& world, std::string name, aggregator::Config config);

  void Step(const aggregator::Event& event);
  template <typename Frame>
  void OnFrame(aggregator::SessionId session, const Frame& frame) {
    Base::Arrive(session, frame, *this);
  }

  const std::string& name() const { return name_; }

  bool alive = true;
  bool stopped = false;  // By SIGSTOP.

 private:
  using Base = world::AggregatorProcess<Elements>;
  friend Base;
  friend Base::Shell;

  void SendOn(aggregator::StreamId stream, const Frame& frame);
  void Started(const Reduction& reduction) { follow_ups_.push_back(shell_.Finish(reduction)); }
  void Require(const absl::Status& status);
  void Do(const aggregator::Send& send) { Send({send.session}, send.message); }
  void Do(const aggregator::SendAll& send) { Send(send.sessions, send.message); }
  void Do(const aggregator::EndSession& end);
  void Do(const aggregator::ResultsTaken&) {}
  void Do(const aggregator::AcceptStream& accept);
  void Do(const aggregator::CloseStream& close);
  void Do(const aggregator::SaveState& save);
  void Do(const aggregator::SaveSettings&) {}  // No operator sets anything here.
  void Do(const aggregator::Note& note);
  void Do(const aggregator::ReleaseShard&) {}  // No scenario has shards.
  void Do(const aggregator::Drained&);
  void Send(const std::vector<aggregator::SessionId>& sessions, const ToWorker& message);

  World& world_;
  const std::string name_;
  std::deque<aggregator::Event> follow_ups_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_AGGREGATOR_PROCESS_H_
