// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the decisions about a round see besides the round itself, and how they speak to its members.
//
// Thread contract: plain values. A function of a Round with a RoundScope changes the round, appends
// actions, and has no other effect.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_SCOPE_H_
#define BASIN_AGGREGATOR_CORE_ROUND_SCOPE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/lanes.h"
#include "aggregator/core/workers.h"

namespace basin::aggregator {

// A round sees this of its job.
struct JobContext {
  JobId id;
  const JobName& name;
  const Workers& workers;
  const Membership& membership;
  const Lanes& lanes;
  bool stands;  // The job's last recovery stands; see Standing.
  LossPolicy loss_policy;
  LatePolicy late_policy;
  uint32_t min_workers = 1;
};

// And this of its surroundings, during one Step.
struct RoundScope {
  absl::Time now;
  const Config& config;
  std::vector<Action>& actions;
  JobContext job;
  LaneIndex index;
  const Lane& lane;
  bool paused;  // A pause of the job holds back this round.
};

// The caller may complete the note before it adds another action.
Note& AddNote(const Round& round, const RoundScope& scope, NoteKind kind, const WorkerId& worker,
              const std::string& text);
void SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message,
            bool can_wait = false);
// Refuses a part of a contribution.
void Reject(const Round& round, const RoundScope& scope, const RoundMember& member, ErrorCode code,
            const std::string& text);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_SCOPE_H_
