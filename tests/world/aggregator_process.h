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
//   void Started(Reduction reduction);  // It is under way until shell().Finish.
//   void Require(const absl::Status& status);  // A bad one: core and shell disagree.
//   void Do(action);  // Of each action that is not about bytes: messages, sessions, streams,
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
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"
#include "protocol/overloaded.h"
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
    push_ = &frame;
    host.Step(shell_.EventOf(session, frame));
    push_ = nullptr;
  }
  template <typename Host>
  void Arrive(aggregator::SessionId session, const BlobFrame& frame, Host& host) {
    value_ = &frame;
    host.Step(shell_.EventOf(session, frame));
    value_ = nullptr;
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
  // The frame of the Step in progress; null when there is none.
  const Push* push_ = nullptr;
  const BlobFrame* value_ = nullptr;

 private:
  DeliveryModel delivery_;  // Follows from the core.
};

template <typename Bytes>
template <typename Host>
void AggregatorProcess<Bytes>::CarryOut(aggregator::Action& action, Host& host) {
  const auto send_on = [&](aggregator::StreamId stream, const Frame& frame) {
    host.SendOn(stream, frame);
  };
  host.Require(std::visit(
      Overloaded{
          [&](aggregator::KeepChunks& keep) { return shell_.Do(keep, push_); },
          [&](aggregator::Reduce& reduce) {
            absl::StatusOr<Reduction> reduction = shell_.Do(reduce);
            if (reduction.ok()) host.Started(*std::move(reduction));
            return reduction.status();
          },
          [&](aggregator::Publish& publish) { return shell_.Do(publish, send_on); },
          [&](aggregator::RelayResult& relay) { return shell_.Do(relay, push_, send_on); },
          [&](aggregator::RelayBlob& relay) { return shell_.Do(relay, value_, send_on); },
          [&](aggregator::SendBlob& send) { return shell_.Do(send, send_on); },
          [&](aggregator::SendFrame& send) { return shell_.Do(send, send_on); },
          [&](auto& other) {
            if constexpr (Shell::template kHolds<std::decay_t<decltype(other)>>) {
              return shell_.Do(other);
            } else {
              host.Do(other);
              return absl::OkStatus();
            }
          },
      },
      action));
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_AGGREGATOR_PROCESS_H_
