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
  const AgreedSettings before = settings_;
  const std::vector<std::string> changes = settings_.Set(scope.config, set);
  if (settings_ == before) return;
  lanes_.Recharge(before.most_workers(), settings_.most_workers(), scope.memory);
  changed_ = true;
  evidence_.ForgetSettings();
  const std::string report =
      changes.empty() ? "" : absl::StrCat("An operator has set ", absl::StrJoin(changes, ", "));
  if (scope.config.state_file) return SaveSettings(scope, report);
  ReportSet(scope, report);
}

void Job::SaveSettings(const JobScope& scope, const std::string& report) {
  settings_writes_.Begin(report, scope.now + scope.config.lease);
  scope.actions.push_back(aggregator::SaveSettings{id_, name_, run_, term_, settings_.changed()});
}

void Job::OnSettingsSaved(const JobScope& scope, const SettingsSaved& saved) {
  if (!settings_writes_.open()) return;
  ReportSet(scope, settings_writes_.End(saved.ok));
}

// The disk hangs, so an operator is told what holds without it.
void Job::GiveUpSettingsWrites(const JobScope& scope) {
  while (scope.now >= settings_writes_.due()) {
    AddNote(scope, NoteKind::kStateFileFailed, "",
            absl::StrCat("What an operator has set is in force, but has not been written to the "
                         "state file in ",
                         absl::FormatDuration(scope.config.lease), "; its disk may hang."));
    ReportSet(scope, settings_writes_.GiveUp());
  }
}

std::string Job::HowLongSet() const {
  return settings_writes_.is_saved() ? "until another run begins"
                                     : "until the aggregator restarts or another run begins";
}

void Job::ReportSet(const JobScope& scope, const std::string& report) const {
  if (report.empty()) return;
  AddNote(scope, NoteKind::kJobSet, "", absl::StrCat(report, "; this holds ", HowLongSet(), "."));
}

// What an operator had changed before the aggregator was restarted holds again in the same run. A
// run without a name is the same if its workers ask for what that run had.
void Job::RestoreSettings(const JobScope& scope, const Hello& hello) {
  if (!saved().has_value() || !saved()->settings.has_value() || saved()->run != run_) return;
  if (settings_.changed().has_value()) return;  // It holds already.
  const ChangedSettings& changed = *saved()->settings;
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
    AddNote(scope, NoteKind::kJobSet, "",
            absl::StrCat(
                "What an operator had set before the restart does not hold any more: ", why, "."));
    evidence_.ForgetSettings();
    return;
  }
  settings_ = restored;
  settings_writes_.NoteRestored();
  AddNote(scope, NoteKind::kJobSet, "",
          absl::StrCat("What an operator had set before the restart holds again: min_workers = ",
                       settings().min_workers, ", max_workers = ", settings().max_workers,
                       ", loss_policy = ", NameOf(loss_policy(scope.config)),
                       ", late_policy = ", NameOf(late_policy(scope.config)), "."));
}

// The job is forgotten, and with it what an operator has set, unless the next job of this name is
// to get what the state file has.
void Job::ForgetSettings(const JobScope& scope) {
  if (saved().has_value() || !scope.config.state_file || !settings_.changed().has_value()) return;
  settings_ = AgreedSettings();
  SaveSettings(scope, "");
}

}  // namespace basin::aggregator
