// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A job without members: how many ready workers begin it, since when it waits for them, and whether
// those before them ended well.
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
  // When min_workers become enough; InfiniteFuture when they are.
  absl::Time Due(const Config& config) const {
    return timed_out_ ? absl::InfiniteFuture() : since_ + config.start_timeout;
  }
  void TimeOut() { timed_out_ = true; }
  // How many ready workers begin the job.
  uint32_t Least(const JobSettings& settings) const {
    return timed_out_ ? settings.min_workers : settings.start_workers;
  }

  // ---- the members before
  // A member has gone, or all have: whether it had finished, drained, or left in good order.
  void NoteGone(bool well) { ended_well_ = well; }
  // Nobody with state is left. Returns whether the last members ended well; the job is over then,
  // unless somebody waits to begin anew.
  bool EndLineage(absl::Time now, bool somebody_waits) {
    const bool well = std::exchange(ended_well_, false);
    over_ = well && !somebody_waits;
    Begin(now);
    return well;
  }
  // Its workers have finished, and nobody has come since.
  bool over() const { return over_; }
  // Somebody has come. Returns whether the job was over.
  bool BeginAnew() { return std::exchange(over_, false); }

  // The job recovers: nothing is known of the members before.
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
