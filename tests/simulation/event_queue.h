// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Virtual time, and the events in it. Events of the same time happen in the order in which they
// were added, so a run is a function of its seed alone.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_SIMULATION_EVENT_QUEUE_H_
#define BASIN_TESTS_SIMULATION_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace basin::simulation {

// Microseconds since the run began.
using SimTime = int64_t;

inline constexpr SimTime kMillisecond = 1000;
inline constexpr SimTime kSecond = 1000 * kMillisecond;
// Later than every event.
inline constexpr SimTime kNever = int64_t{1} << 60;

// The time that the cores see. It starts at an arbitrary unix second, because terms are unix
// seconds.
inline absl::Time ToAbsl(SimTime time) {
  return absl::FromUnixSeconds(1'000'000'000) + absl::Microseconds(time);
}

// Rounds up, so that a deadline has passed when its event comes. Infinity stays far away.
inline SimTime FromAbsl(absl::Time time) {
  if (time == absl::InfiniteFuture()) return kNever;
  const absl::Duration since = time - absl::FromUnixSeconds(1'000'000'000);
  return std::min(kNever, absl::ToInt64Microseconds(absl::Ceil(since, absl::Microseconds(1))));
}

enum class Happening : uint8_t {
  kArriveUp,             // a: connection. Its next item reaches the aggregator.
  kArriveDown,           // a: connection. Its next item reaches the worker.
  kWorkerSeesClose,      // a: connection.
  kAggregatorSeesClose,  // a: connection.
  kLook,                 // a: connection, b: milliseconds for which nothing came over the network.
  kConnect,              // a: worker process, b: stream + 1, or 0 for the session.
  kWorkerTimer,          // a: worker process.
  kTrainer,              // a: worker process.
  kAggregatorTimer,      // a: aggregator process.
  kReduced,              // a: aggregator process, b: reduction.
  kSaved,                // a: aggregator process, b: save.
  kStartWorker,          // a: worker number.
  kStartAggregator,
  kContinueWorker,      // a: worker process. SIGCONT.
  kContinueAggregator,  // a: aggregator process. SIGCONT.
  kFault,               // a: fault.
  kFlip,                // a: aggregator process. Workers of two aggregators change sides.
  kCommand,             // a: command. Reaches the aggregator that serves.
  kOperator,            // An operator looks at the job.
  kHeal,                // Faults stop.
  kShardDials,          // a: shard.
  kShardReports,    // a: shard, b: generation of its link. Its next event reaches the aggregator.
  kShardHears,      // The same. Its next actions reach it.
  kShardLinkLost,   // The same. It notices that the link is lost.
  kShardIsLost,     // The same. The aggregator notices it.
  kShardReduced,    // a: shard, b: reduction.
  kShardDrainEnds,  // a: shard, b: drain. The time of the drain is over.
  kStartShard,      // a: shard.
  kContinueShard,   // a: shard. SIGCONT.
};

struct Scheduled {
  SimTime time = 0;
  uint64_t sequence = 0;
  Happening what = Happening::kOperator;
  uint32_t a = 0;
  uint32_t b = 0;
};

class EventQueue {
 public:
  SimTime now() const { return now_; }
  bool empty() const { return heap_.empty(); }

  void At(SimTime time, Happening what, uint32_t a = 0, uint32_t b = 0) {
    heap_.push_back({std::max(time, now_), ++sequence_, what, a, b});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  void After(SimTime delay, Happening what, uint32_t a = 0, uint32_t b = 0) {
    At(now_ + delay, what, a, b);
  }

  // REQUIRES: !empty().
  Scheduled Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const Scheduled next = heap_.back();
    heap_.pop_back();
    now_ = next.time;
    return next;
  }

 private:
  static bool Later(const Scheduled& a, const Scheduled& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  SimTime now_ = 0;
  uint64_t sequence_ = 0;
  std::vector<Scheduled> heap_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_EVENT_QUEUE_H_
