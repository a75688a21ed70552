// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of a shard in an explored world, from its connection with the aggregator to the end of
// it: what it holds, and what it has reported that has not arrived. It decides nothing.
//
// What the aggregator asks of it happens at once: a later moment would look the same, because only
// a report or a frame shows what a shard has done, and both travel in queues of their own. So a
// frame is held until its report arrives, which answers it.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_EXPLORE_SHARD_PROCESS_H_
#define BASIN_TESTS_EXPLORE_SHARD_PROCESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "aggregator/core/action.h"
#include "tests/explore/aggregator_output.h"
#include "tests/explore/item.h"
#include "tests/world/aggregator_shell.h"

namespace basin::explore {

inline constexpr uint32_t kMaxShards = 2;

// A shard's place in the world, which has a name and an address. Each of its lives has a number of
// its own at one life of the aggregator.
inline ShardId ShardIdOf(uint32_t slot, uint32_t life) { return 1 + slot + life * kMaxShards; }
inline uint32_t SlotOf(ShardId shard) { return (shard - 1) % kMaxShards; }
std::string EndpointOf(uint32_t slot);
uint32_t SlotOf(const std::string& endpoint);

class ShardProcess {
 public:
  using Shell = world::AggregatorShell<Sums>;
  using Reduction = Shell::Reduction;

  // What it reports, in order.
  struct Opened {
    aggregator::StreamId stream = 0;
    SessionToken token = 0;
    auto Fields() const { return std::tie(stream, token); }
  };
  struct Lost {
    aggregator::StreamId stream = 0;
    auto Fields() const { return std::tie(stream); }
  };
  struct Arrived {
    aggregator::SessionId session = 0;
    PushFrame frame;
    auto Fields() const { return std::tie(session, frame); }
  };
  struct Draining {
    auto Fields() const { return std::tie(); }
  };
  using Report = std::variant<Opened, Lost, Arrived, Reduction, Draining>;

  explicit ShardProcess(ShardId id) : id_(id) {}

  // ---- data streams of workers
  void Open(aggregator::StreamId stream, SessionToken token);
  bool Has(aggregator::StreamId stream) const { return streams_.count(stream) > 0; }
  // REQUIRES: Has(stream), here and below.
  void Close(aggregator::StreamId stream);
  // REQUIRES: the aggregator has accepted the stream.
  void Take(aggregator::StreamId stream, const PushFrame& frame);

  // It is asked to end.
  void Drain();
  // The process ends, with all that it held.
  void Die();
  // The oldest reduction in progress ends. REQUIRES: Reducing().
  void FinishReduction();

  // REQUIRES: it has one.
  Report TakeReport();
  // A reduction whose report arrives.
  aggregator::ReduceDone Finish(const Reduction& reduction);
  // `arrived`: the frame whose report is answered; null for none.
  absl::Status CarryOut(aggregator::Action& action, const PushFrame* arrived,
                        std::vector<AggregatorOutput>& outputs);
  // The actions of one step have been carried out.
  void EndStep();

  ShardId id() const { return id_; }
  bool alive() const { return alive_; }
  bool draining() const { return draining_; }
  bool Reducing() const { return !reductions_.empty(); }
  bool Reports() const { return !reports_.empty(); }
  uint64_t held_bytes() const { return shell_.parked_bytes() + shell_.result_bytes(); }

  auto Fields() const {
    return std::tie(id_, alive_, draining_, shell_, streams_, reductions_, reports_);
  }

 private:
  struct Host;

  ShardId id_;
  bool alive_ = true;
  bool draining_ = false;
  Shell shell_;
  // The sessions of those that are open, once they are accepted.
  std::map<aggregator::StreamId, std::optional<aggregator::SessionId>> streams_;
  std::vector<Reduction> reductions_;  // In progress, the oldest first.
  std::deque<Report> reports_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SHARD_PROCESS_H_
