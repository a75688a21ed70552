// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of the aggregator in a world without bytes: the core with delivery, the shell that holds
// what stands for bytes, and the model of what delivery owes. The simulator, the explorer and the
// scenarios derive from it: each decides when something happens, and what becomes of what leaves
// the process. That differs, because time and connections do: the simulator has a clock and faults
// between two actions, the explorer takes every order of steps from a copied process, and a script
// decides in the scenarios.
//
// The deriving class, `Host`, has
//
//   void Step(const aggregator::Event& event);  // Decide, and CarryOut of each action.
//   void SendOn(aggregator::StreamId stream, const Frame& frame);
//   void Started(Reduction reduction);  // It is under way until shell_.Finish.
//   void Require(const absl::Status& status);  // A bad one: core and shell disagree.
//   void Do(action);  // For each action that is not about bytes: messages, sessions, streams,
//                     // state files and notes.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_WORLD_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_WORLD_AGGREGATOR_PROCESS_H_

#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"
#include "tests/world/aggregator_shell.h"
#include "tests/world/delivery_model.h"

namespace basin::world {

template <typename Bytes>
class AggregatorProcess {
 public:
  using Shell = AggregatorShell<Bytes>;
  using Frame = typename Shell::Frame;
  using Reduction = typename Shell::Reduction;
  using Push = typename Shell::Push;

  const aggregator::Aggregator& aggregator() const { return core_; }
  const aggregator::Coordinator& core() const { return core_.coordinator(); }

 protected:
  AggregatorProcess(aggregator::Config config, absl::Time start)
      : core_(std::move(config), start) {}

  // A frame comes in: it is there until the actions of this Step are carried out.
  template <typename Host>
  void Arrive(aggregator::SessionId session, const Push& frame, Host& host) {
    arrived_ = {&frame, nullptr};
    host.Step(shell_.EventOf(session, frame));
    arrived_ = {};
  }
  template <typename Host>
  void Arrive(aggregator::SessionId session, const BlobFrame& frame, Host& host) {
    arrived_ = {nullptr, &frame};
    host.Step(shell_.EventOf(session, frame));
    arrived_ = {};
  }
  // Appends what the core asks for.
  void Decide(const aggregator::Event& event, absl::Time now,
              std::vector<aggregator::Action>& actions) {
    delivery_.Take(event, now, core());
    core_.Step(event, now, actions);
  }
  // Compares the actions with what delivery owes. Returns what is wrong; "" for nothing.
  std::string Wrong(const std::vector<aggregator::Action>& actions, absl::Time now) {
    return delivery_.Check(actions, now, core());
  }
  template <typename Host>
  void CarryOut(aggregator::Action& action, Host& host);

  aggregator::Aggregator core_;
  Shell shell_;
  typename Shell::Arrived arrived_;  // The frame of the Step in progress.

 private:
  DeliveryModel delivery_;  // Follows from the core.
};

template <typename Bytes>
template <typename Host>
void AggregatorProcess<Bytes>::CarryOut(aggregator::Action& action, Host& host) {
  std::visit(
      [&](auto& what) {
        if constexpr (Shell::template kTakes<std::decay_t<decltype(what)>>) {
          host.Require(shell_.CarryOut(what, arrived_, host));
        } else {
          host.Do(what);
        }
      },
      action);
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_AGGREGATOR_PROCESS_H_
