// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What an operator changes of a job that runs, and what a job may take of the service: its share of
// the memory, and its rounds per second.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// A job that was quiet may make this many seconds' rounds at once.
constexpr absl::Duration kPaceBurst = absl::Seconds(1);

const char* PolicyName(LossPolicy policy) {
  return policy == LossPolicy::kAbort ? "abort" : "shrink";
}
const char* PolicyName(LatePolicy policy) {
  return policy == LatePolicy::kEvict ? "evict" : "wait";
}

// With what the operator names in place of what the job has.
JobSettings Changed(JobSettings settings, const SetJob& set) {
  settings.min_workers = set.min_workers.value_or(settings.min_workers);
  settings.max_workers = set.max_workers.value_or(settings.max_workers);
  settings.start_workers =
      std::max(settings.min_workers, std::min(settings.start_workers, settings.max_workers));
  return settings;
}

}  // namespace

// ---- settings

std::string Job::WhyNotSet(const Config& config, uint64_t free, const SetJob& set) const {
  const JobSettings next = Changed(settings_, set);
  if (!settled_in_) return "no worker has sent its settings yet; try again when one has";
  if (next.min_workers == 0 || next.min_workers > next.max_workers) {
    return absl::StrCat("min_workers would be ", next.min_workers, " and max_workers ",
                        next.max_workers, "; choose 1 <= min_workers <= max_workers");
  }
  if (next.max_workers > config.max_workers) {
    return absl::StrCat("max_workers would be ", next.max_workers, ", but this aggregator allows ",
                        config.max_workers, " (limits.workers)");
  }
  const uint32_t taken =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kCandidate);
  if (next.max_workers < settings_.max_workers && next.max_workers < taken) {
    return absl::StrCat("max_workers would be ", next.max_workers, ", but it has ",
                        CountOf(taken, "worker"), "; drain some of them first");
  }
  if (set.late_policy == LatePolicy::kEvict &&
      config.evict_late_after == absl::InfiniteDuration()) {
    return "late_policy evict needs round.evict_late_after, which is none; set it and restart the "
           "aggregator";
  }
  if (next.max_workers <= settings_.max_workers) return "";
  const uint64_t need = ReservedFor(next.max_workers) - ReservedFor(settings_.max_workers);
  const uint64_t room = std::min(free, RoomInQuota(config));
  if (need > room) {
    return absl::StrCat("max_workers = ", next.max_workers, " needs ", need,
                        " more bytes for its lanes, but ", room,
                        " are free (memory.budget, limits.job_memory)");
  }
  return WhyNotRemembered(config, next.max_workers);
}

void Job::Set(const JobScope& scope, const SetJob& set) {
  if (!WhyNotSet(scope.config, scope.memory.free(), set).empty()) return;  // The caller looks too.
  const JobSettings next = Changed(settings_, set);
  std::vector<std::string> changes;
  const auto change = [&](const char* name, const auto& before, const auto& after) {
    if (before != after) changes.push_back(absl::StrCat(name, " = ", after));
  };
  change("min_workers", settings_.min_workers, next.min_workers);
  change("max_workers", settings_.max_workers, next.max_workers);
  if (set.loss_policy.has_value()) {
    change("loss_policy", std::string(PolicyName(loss_policy(scope.config))),
           std::string(PolicyName(*set.loss_policy)));
    loss_policy_ = set.loss_policy;
  }
  if (set.late_policy.has_value()) {
    change("late_policy", std::string(PolicyName(late_policy(scope.config))),
           std::string(PolicyName(*set.late_policy)));
    late_policy_ = set.late_policy;
  }
  if (changes.empty()) return;
  for (Lane& lane : lanes_) Recharge(scope, lane, next.max_workers);
  settings_ = next;
  changed_ = true;
  AddNote(scope, NoteKind::kJobSet, "",
          absl::StrCat("An operator has set ", absl::StrJoin(changes, ", "),
                       "; this holds until the aggregator restarts or another run begins."));
}

// ---- its share of the memory

// What the lanes hold of the budget if the job had this many workers.
uint64_t Job::ReservedFor(uint64_t workers) const {
  uint64_t bytes = 0;
  const uint64_t now = std::max<uint32_t>(settings_.max_workers, 1);
  for (const Lane& lane : lanes_) {
    bytes += lane.layout.memory_bytes();
    if (lane.expired) continue;
    bytes += TrackingBytes(workers, lane.layout.chunks()) + lane.memory.reserved;
    bytes += (workers - now) * lane.memory.window;  // Modulo 2^64, which is right for fewer too.
  }
  return bytes;
}

void Job::Recharge(const JobScope& scope, Lane& lane, uint64_t workers) {
  if (lane.expired) return;
  const uint64_t now = std::max<uint32_t>(settings_.max_workers, 1);
  const uint64_t before = lane.tracking + lane.memory.reserved;
  lane.tracking = TrackingBytes(workers, lane.layout.chunks());
  lane.memory.reserved += (workers - now) * lane.memory.window;
  scope.memory.reserved += lane.tracking + lane.memory.reserved - before;
}

uint64_t Job::RoomInQuota(const Config& config) const {
  if (config.max_job_bytes == 0) return config.memory_bytes;
  uint64_t held = 0;
  for (const Lane& lane : lanes_) {
    held += lane.layout.memory_bytes() + lane.tracking + lane.memory.reserved;
  }
  return config.max_job_bytes - std::min(config.max_job_bytes, held);
}

uint64_t Job::Room(const JobScope& scope) const {
  return std::min(scope.memory.free(), RoomInQuota(scope.config));
}

// "1000 of 4096 bytes are free", and which option bounds it.
std::string Job::DescribeRoom(const JobScope& scope) const {
  const uint64_t quota = RoomInQuota(scope.config);
  const bool by_quota = quota < scope.memory.free();
  return absl::StrCat(std::min(quota, scope.memory.free()), " of ",
                      by_quota ? scope.config.max_job_bytes : scope.memory.total,
                      by_quota ? " bytes (limits.job_memory) are free" : " bytes are free");
}

// ---- its pace

// The earliest time of the next verdict.
absl::Time Job::PaceEnd(const Config& config) const {
  return config.max_job_rounds == 0 ? absl::InfinitePast() : paced_ - kPaceBurst;
}

void Job::CountVerdict(const JobScope& scope) {
  if (scope.config.max_job_rounds == 0) return;
  paced_ = std::max(paced_, scope.now) + absl::Seconds(1) / scope.config.max_job_rounds;
}

absl::Time Job::PaceDue(const Config& config) const {
  if (config.max_job_rounds == 0 || state() != JobState::kRunning) return absl::InfiniteFuture();
  const bool waits = std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.round.has_value() && lane.paced;
  });
  return waits ? PaceEnd(config) : absl::InfiniteFuture();
}

void Job::TellPaced(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!std::exchange(lanes_[i].paced, false) || !lanes_[i].round.has_value()) continue;
    AdvanceLane(scope, i);
  }
}

}  // namespace basin::aggregator
