// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_settings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job_lanes.h"

namespace basin::aggregator {
namespace {

void WriteSettings(Job& job, const JobScope& scope, const std::string& report) {
  job.settings_writes.Begin(report, scope.now + scope.config.lease);
  scope.actions.push_back(SaveSettings{job.id, job.name, job.run, job.term, job.agreed.changed()});
}

void ReportSet(const Job& job, const JobScope& scope, const std::string& report) {
  if (report.empty()) return;
  AddNote(job, scope, NoteKind::kJobSet, "",
          absl::StrCat(report, "; this holds ", job.HowLongSet(), "."));
}

// The fewest workers that have one contribution together: those of a group reduce among themselves.
uint64_t WorkersOfAContribution(const Workers& workers) {
  uint64_t fewest = 0;
  for (Slot slot = 0; slot < workers.size(); ++slot) {
    const Worker& worker = workers[slot];
    if (worker.state == WorkerState::kLost) continue;
    const bool alone = worker.group.name.empty() || worker.joins_alone;
    const uint64_t size = alone ? 1 : std::max<uint64_t>(1, worker.group.size);
    fewest = fewest == 0 ? size : std::min(fewest, size);
  }
  return std::max<uint64_t>(1, fewest);
}

}  // namespace

std::string WhyNotSet(const Job& job, const Config& config, uint64_t free, const SetJob& set) {
  const uint32_t taken =
      job.workers.Count(WorkerState::kMember) + job.workers.Count(WorkerState::kCandidate);
  if (std::string why = job.agreed.WhyNotSet(config, taken, set); !why.empty()) return why;
  const JobSettings next = job.agreed.With(set);
  if (next.max_workers <= job.settings().max_workers) return "";
  const uint64_t now = job.agreed.most_workers();
  const uint64_t need = job.lanes.ReservedFor(next.max_workers, now) -
                        job.lanes.ReservedFor(job.settings().max_workers, now);
  const uint64_t room = std::min(free, job.lanes.RoomInQuota(config));
  if (need > room) {
    return absl::StrCat("max_workers = ", next.max_workers, " needs ", need,
                        " more bytes for its lanes, but ", room,
                        " are free (memory.budget, limits.job_memory)");
  }
  return job.lanes.WhyNotRemembered(config, next.max_workers);
}

void Take(Job& job, const JobScope& scope, const SetJob& set) {
  if (!WhyNotSet(job, scope.config, scope.memory.free(), set).empty())
    return;  // The caller checks too.
  const AgreedSettings before = job.agreed;
  const std::vector<std::string> changes = job.agreed.Set(scope.config, set);
  if (job.agreed == before) return;
  NoteLatePolicy(job, scope);
  job.lanes.Recharge(before.most_workers(), job.agreed.most_workers(), scope.memory);
  job.changed = true;
  job.evidence.ForgetSettings();
  const std::string report =
      changes.empty() ? "" : absl::StrCat("An operator has set ", absl::StrJoin(changes, ", "));
  if (scope.config.state_file) return WriteSettings(job, scope, report);
  ReportSet(job, scope, report);
}

void NoteLatePolicy(const Job& job, const JobScope& scope) {
  const std::string why =
      job.agreed.WhyNobodyIsLeftOut(scope.config, WorkersOfAContribution(job.workers));
  if (why.empty()) return;
  AddNote(job, scope, NoteKind::kLatePolicyIdle, "",
          absl::StrCat("The late policy ", NameOf(job.late_policy(scope.config)),
                       " leaves nobody out of the rounds of this job: ", why));
}

void Take(Job& job, const JobScope& scope, const SettingsSaved& saved) {
  if (!job.settings_writes.open()) return;
  ReportSet(job, scope, job.settings_writes.End(saved.ok));
}

void GiveUpSettingsWrites(Job& job, const JobScope& scope) {
  while (scope.now >= job.settings_writes.due()) {
    AddNote(job, scope, NoteKind::kStateFileFailed, "",
            absl::StrCat("What an operator has set is in force, but has not been written to the "
                         "state file in ",
                         absl::FormatDuration(scope.config.lease), "; its disk may hang."));
    ReportSet(job, scope, job.settings_writes.GiveUp());
  }
}

void RestoreSettings(Job& job, const JobScope& scope, const Hello& hello) {
  if (!job.saved().has_value() || !job.saved()->settings.has_value() || job.saved()->run != job.run)
    return;
  if (job.agreed.changed().has_value()) return;  // It holds already.
  const ChangedSettings& changed = *job.saved()->settings;
  AgreedSettings restored;
  restored.Restore(changed);
  std::string why = AgreedSettings::WhyNotRestored(scope.config, changed);
  std::string needs;
  if (why.empty() && !Fits(scope, changed.settings, needs)) {
    why = absl::StrCat("max_workers was ", changed.settings.max_workers, ", and the job ", needs);
  }
  if (const auto differs = restored.DiffersFrom(hello.settings); differs.has_value()) {
    why = absl::StrCat("worker ", hello.worker, " asks for ", differs->name, " = ", differs->theirs,
                       ", and the job had ", differs->ours);
  }
  if (!why.empty()) {
    AddNote(job, scope, NoteKind::kJobSet, "",
            absl::StrCat(
                "What an operator had set before the restart does not hold any more: ", why, "."));
    job.evidence.ForgetSettings();
    return;
  }
  job.agreed = restored;
  job.settings_writes.NoteRestored();
  AddNote(job, scope, NoteKind::kJobSet, "",
          absl::StrCat("What an operator had set before the restart holds again: min_workers = ",
                       job.settings().min_workers, ", max_workers = ", job.settings().max_workers,
                       ", loss_policy = ", NameOf(job.loss_policy(scope.config)),
                       ", late_policy = ", NameOf(job.late_policy(scope.config)), "."));
}

void ForgetSettings(Job& job, const JobScope& scope) {
  if (job.saved().has_value() || !scope.config.state_file || !job.agreed.changed().has_value())
    return;
  job.agreed = AgreedSettings();
  WriteSettings(job, scope, "");
}

}  // namespace basin::aggregator
