// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A pause that delays workers, and what they are sent about it while it lasts. The job decides
// whether it is paused; a pause that delays no worker is not reported.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_PAUSE_H_
#define BASIN_AGGREGATOR_CORE_PAUSE_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/config.h"

namespace basin::aggregator {

enum class PauseState : uint8_t {
  kNone = 0,      // The job is not paused, or no worker waits for it.
  kNoted = 1,     // In the log and the status.
  kNamed = 2,     // Sent to all workers that are here, as late workers are.
  kReported = 3,  // Sent as a typed error, so that a trainer may give up.
};

struct PauseTransition {
  PauseState from;
  PauseState to;
  const char* when;
};

inline constexpr PauseTransition kPauseTransitions[] = {
    // from                   to
    {PauseState::kNone, PauseState::kNoted, "somebody is held up"},
    {PauseState::kNoted, PauseState::kNamed, "late_warning has passed"},
    {PauseState::kNamed, PauseState::kReported, "pause_timeout has passed"},
    {PauseState::kNoted, PauseState::kNone, "the job goes on, or is lost"},
    {PauseState::kNamed, PauseState::kNone, "the same; those to whom it was named hear so"},
    {PauseState::kReported, PauseState::kNone, "the same"},
};

constexpr bool MayFollow(PauseState from, PauseState to) {
  for (const PauseTransition& row : kPauseTransitions) {
    if (row.from == from && row.to == to) return true;
  }
  return false;
}

class Pause {
 public:
  bool noted() const { return state_ != PauseState::kNone; }
  bool named() const { return state_ >= PauseState::kNamed; }

  void Begin(absl::Time now) {
    SetState(PauseState::kNoted);
    since_ = now;
  }
  // REQUIRES: noted().
  void End() {
    SetState(PauseState::kNone);
    since_ = absl::InfiniteFuture();
  }
  // When the next step is due; InfiniteFuture when none is.
  absl::Time Due(const Config& config) const {
    if (state_ == PauseState::kNoted) {
      return since_ + std::min(config.late_warning, config.pause_timeout);
    }
    return state_ == PauseState::kNamed ? since_ + config.pause_timeout : absl::InfiniteFuture();
  }
  // The step that is due. REQUIRES: Due() has come.
  PauseState Tell() {
    SetState(state_ == PauseState::kNoted ? PauseState::kNamed : PauseState::kReported);
    return state_;
  }

  auto Fields() const { return std::tie(state_, since_); }

 private:
  // REQUIRES: MayFollow.
  void SetState(PauseState state) {
    assert(MayFollow(state_, state));
    state_ = state;
  }

  PauseState state_ = PauseState::kNone;
  absl::Time since_ = absl::InfiniteFuture();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PAUSE_H_
