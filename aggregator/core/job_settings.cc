// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The settings that an operator can change while a job runs.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job.h"

namespace basin::aggregator {

std::string Job::WhyNotSet(const Config& config, uint64_t free, const SetJob& set) const {
  const uint32_t taken =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kCandidate);
  if (std::string why = settings_.WhyNotSet(config, taken, set); !why.empty()) return why;
  const JobSettings next = settings_.With(set);
  if (next.max_workers <= settings().max_workers) return "";
  const uint64_t now = settings_.most_workers();
  const uint64_t need =
      lanes_.ReservedFor(next.max_workers, now) - lanes_.ReservedFor(settings().max_workers, now);
  const uint64_t room = std::min(free, lanes_.RoomInQuota(config));
  if (need > room) {
    return absl::StrCat("max_workers = ", next.max_workers, " needs ", need,
                        " more bytes for its lanes, but ", room,
                        " are free (memory.budget, limits.job_memory)");
  }
  return lanes_.WhyNotRemembered(config, next.max_workers);
}

void Job::Set(const JobScope& scope, const SetJob& set) {
  if (!WhyNotSet(scope.config, scope.memory.free(), set).empty()) return;  // The caller checks too.
  const uint64_t before = settings_.most_workers();
  const std::vector<std::string> changes = settings_.Set(scope.config, set);
  if (changes.empty()) return;
  lanes_.Recharge(before, settings_.most_workers(), scope.memory);
  changed_ = true;
  AddNote(scope, NoteKind::kJobSet, "",
          absl::StrCat("An operator has set ", absl::StrJoin(changes, ", "),
                       "; this holds until the aggregator restarts or another run begins."));
}

}  // namespace basin::aggregator
