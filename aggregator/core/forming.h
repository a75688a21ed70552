// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job without members starts: how many ready workers it needs, since when it waits for them,
// and whether its earlier members ended well.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_FORMING_H_
#define BASIN_AGGREGATOR_CORE_FORMING_H_

#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Forming {
 public:
  // The job waits for workers from now on.
  void Begin(absl::Time now) {
    since_ = now;
    timed_out_ = false;
  }
  // Returns when min_workers become enough; InfiniteFuture once they are.
  absl::Time Due(const Config& config) const {
    return timed_out_ ? absl::InfiniteFuture() : since_ + config.start_timeout;
  }
  void TimeOut() { timed_out_ = true; }
  // Returns how many ready workers the job needs to start.
  uint32_t Least(const JobSettings& settings) const {
    return timed_out_ ? settings.min_workers : settings.start_workers;
  }

  // ---- the earlier members
  // A member or all members are lost. `well`: they finished, drained, or left in good order.
  void NoteLoss(bool well) { ended_well_ = well; }
  // No worker that holds the state is left. Returns whether the last members ended well. The job is
  // then over, unless a worker waits to begin anew.
  bool EndLineage(absl::Time now, bool somebody_waits) {
    const bool well = std::exchange(ended_well_, false);
    over_ = well && !somebody_waits;
    Begin(now);
    return well;
  }
  // Its workers have finished, and no worker has come since.
  bool over() const { return over_; }
  // A worker has come. Returns whether the job was over.
  bool BeginAnew() { return std::exchange(over_, false); }

  // The job recovers, so nothing is known about earlier members.
  void Forget() { timed_out_ = over_ = ended_well_ = false; }

  auto Fields() const { return std::tie(since_, timed_out_, over_, ended_well_); }

 private:
  absl::Time since_ = absl::InfiniteFuture();
  bool timed_out_ = false;
  bool over_ = false;
  bool ended_well_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_FORMING_H_
