// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The timer of a process: it ticks at the next deadline of its core.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_TICKER_H_
#define BASIN_TESTS_SIMULATION_TICKER_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "tests/simulation/event_queue.h"

namespace basin::simulation {

class Ticker {
 public:
  // The timer comes as an event of this kind, for this process.
  Ticker(EventQueue& queue, Happening timer, uint32_t process)
      : queue_(queue), timer_(timer), process_(process) {}

  // Plans the timer for the deadline, unless it comes before that.
  void Plan(absl::Time deadline) {
    const SimTime next = FromAbsl(deadline);
    if (next >= at_ || next >= kNever) return;
    at_ = std::max(next, queue_.now());
    queue_.At(at_, timer_, process_);
  }

  // The timer has come. Returns whether the core ticks; otherwise the timer comes again.
  bool Comes(absl::Time deadline) {
    if (queue_.now() >= at_) at_ = kNever;
    if (FromAbsl(deadline) > queue_.now()) {
      Plan(deadline);
      return false;
    }
    ticks_ = last_ == queue_.now() ? ticks_ + 1 : 0;
    last_ = queue_.now();
    return true;
  }
  // The core asks for a tick at a time that has passed, again and again.
  bool spins() const { return ticks_ > 100; }

 private:
  EventQueue& queue_;
  const Happening timer_;
  const uint32_t process_;
  SimTime at_ = kNever;
  SimTime last_ = -1;
  uint32_t ticks_ = 0;  // In a row at one time.
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_TICKER_H_
