// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The state of the core as basin/v1/admin.proto shows it.
//
// Thread contract: pure functions, called from the engine's loop.

#ifndef BASIN_AGGREGATOR_ADMIN_VIEW_H_
#define BASIN_AGGREGATOR_ADMIN_VIEW_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/job.h"
#include "aggregator/engine/runner.h"
#include "aggregator/observer/events.h"
#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

// When rounds began and got their verdicts, as far as events are remembered.
struct RoundTimes {
  using Key = std::pair<std::string, RoundNumber>;  // Lane and number.
  std::map<Key, absl::Time> opened;
  std::map<Key, absl::Time> settled;
  std::map<Key, std::pair<WorkerId, absl::Duration>>
      // The stragglers of rounds, and how long the rounds waited for them.
      stragglers;
};
RoundTimes TimesOf(const JobName& job, const std::vector<RememberedEvent>& events);

// How often each job got which verdict, as far as events are remembered.
struct RoundCounts {
  uint64_t committed = 0;
  uint64_t aborted = 0;
};
std::map<JobName, RoundCounts> CountsOf(const std::vector<RememberedEvent>& events);

v1::JobStatus ViewOf(const Job& job, const RoundCounts& counts, bool draining);

// The time, and the same without the gaps in which this process did not run, which is the clock of
// jobs and workers (Coordinator::Lived).
struct Clock {
  absl::Time now;
  absl::Time lived;
};

v1::ListMembersResponse MembersOf(const Job& job, const Clock& clock);

// All lanes when `lane` is empty; of each at most `last` past rounds.
v1::ListRoundsResponse RoundsOf(const Job& job, const std::string& lane, uint32_t last,
                                const RoundTimes& times, const Clock& clock);

v1::Event ViewOf(const RememberedEvent& event, Term term, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_VIEW_H_
