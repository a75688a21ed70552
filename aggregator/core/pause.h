// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When a job is paused, and which messages its workers receive meanwhile. A pause that delays no
// worker is not reported.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_PAUSE_H_
#define BASIN_AGGREGATOR_CORE_PAUSE_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

enum class PauseState : uint8_t {
  kNone = 0,      // The job is not paused, or no worker waits for it.
  kNoted = 1,     // The log and the status show it.
  kNamed = 2,     // Every connected worker has received the reason.
  kReported = 3,  // Workers have received a typed error, so that a trainer may give up.
};

enum class PauseInput : uint8_t {
  kHoldUp = 0,  // The pause delays a worker.
  kDue = 1,     // The time of the next message has come.
  kEnd = 2,     // The job goes on, recovers, or begins anew.
};

struct PauseTransition {
  PauseState from;
  PauseInput input;
  PauseState to;
  const char* when;
};

inline constexpr PauseTransition kPauseTransitions[] = {
    // from               input                to
    {PauseState::kNone, PauseInput::kHoldUp, PauseState::kNoted, "the pause delays a worker"},
    {PauseState::kNoted, PauseInput::kDue, PauseState::kNamed, "late_warning has passed"},
    {PauseState::kNamed, PauseInput::kDue, PauseState::kReported, "pause_timeout has passed"},
    {PauseState::kNoted, PauseInput::kEnd, PauseState::kNone,
     "the job continues, recovers or begins anew"},
    {PauseState::kNamed, PauseInput::kEnd, PauseState::kNone,
     "the same; connected workers are informed"},
    {PauseState::kReported, PauseInput::kEnd, PauseState::kNone,
     "the same; connected workers are informed"},
};
static_assert(IsUnambiguous(kPauseTransitions));

class Pause {
 public:
  // Returns whether an operator has suspended the job.
  bool suspended() const { return suspended_; }
  void Suspend(bool suspended) { suspended_ = suspended; }
  // Returns whether a job with this many workers is paused.
  bool Holds(uint32_t present, uint32_t min_workers) const {
    return suspended_ || present < min_workers;
  }

  bool noted() const { return machine_.state() != PauseState::kNone; }
  bool named() const { return machine_.state() >= PauseState::kNamed; }

  // Each returns whether the table has the input in this state; if not, nothing changes.
  bool Begin(absl::Time now) {
    if (!machine_.Apply(PauseInput::kHoldUp)) return false;
    since_ = now;
    return true;
  }
  bool End() {
    if (!machine_.Apply(PauseInput::kEnd)) return false;
    since_ = absl::InfiniteFuture();
    return true;
  }
  // Returns when the next message is due; InfiniteFuture if none is.
  absl::Time Due(const Config& config) const {
    if (machine_.state() == PauseState::kNoted) {
      return since_ + std::min(config.late_warning, config.pause_timeout);
    }
    return machine_.state() == PauseState::kNamed ? since_ + config.pause_timeout
                                                  : absl::InfiniteFuture();
  }
  // Moves on to the message that is due. REQUIRES: Due() has come.
  PauseState OnDue() {
    machine_.Apply(PauseInput::kDue);
    return machine_.state();
  }

  const RowsTaken& taken() const { return machine_.taken(); }

  auto Fields() const { return std::tie(suspended_, machine_, since_); }

 private:
  bool suspended_ = false;
  StateMachine<kPauseTransitions> machine_;
  absl::Time since_ = absl::InfiniteFuture();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PAUSE_H_
