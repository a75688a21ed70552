// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/agreed_settings.h"

#include "absl/strings/str_cat.h"
#include "protocol/plural.h"

namespace basin::aggregator {

JobSettings AgreedSettings::Resolve(JobSettings asked) {
  if (asked.max_workers == 0) asked.max_workers = 1;
  if (asked.min_workers == 0) asked.min_workers = asked.max_workers;
  if (asked.start_workers == 0) asked.start_workers = asked.max_workers;
  return asked;
}

std::string AgreedSettings::WhyNobodyIsLeftOut(const Config& config, uint64_t together) const {
  const uint64_t all = most_workers();
  if (!LeavesOut(late_policy(config)) || all == 1) return "";
  const uint64_t contributions = (all + together - 1) / together;
  if (contributions == 1) {
    return absl::StrCat("its ", all,
                        " workers reduce among themselves, so a round has one contribution. Start "
                        "workers on other nodes too, or set BASIN_LOCAL_GROUP to off.");
  }
  // Without one contribution, so many workers are missing.
  if (settings_.min_workers > all - together) {
    return absl::StrCat(
        "no round goes on with fewer workers than min_workers, which is ", settings_.min_workers,
        together == 1
            ? ", and the job has no more"
            : absl::StrCat(", and without the contribution of a node the job has ", all - together),
        ". Start the workers with a lower min_workers "
        "(--min-workers, BASIN_MIN_WORKERS), or set it with `basinctl job set --min`.");
  }
  // A job with fewer workers has no smaller part that is a quorum.
  if (contributions * config.quorum_percent > (contributions - 1) * 100) {
    return absl::StrCat("a quorum of ", config.quorum_percent, " percent of its ", contributions,
                        together == 1 ? " workers" : " nodes",
                        " is all of them. Set round.quorum_percent to ",
                        (contributions - 1) * 100 / contributions, " or less.");
  }
  return "";
}

void AgreedSettings::Declare(const JobSettings& asked) {
  is_declared_ = true;
  settings_ = declared_ = Resolve(asked);
  loss_policy_.reset();
  late_policy_.reset();
}

std::optional<AgreedSettings::Difference> AgreedSettings::DiffersFrom(
    const JobSettings& asked) const {
  struct Setting {
    const char* name;
    uint32_t JobSettings::*value;
  };
  static constexpr Setting kSettings[] = {{"max_workers", &JobSettings::max_workers},
                                          {"min_workers", &JobSettings::min_workers},
                                          {"start_workers", &JobSettings::start_workers}};
  for (const Setting& setting : kSettings) {
    const uint32_t theirs = asked.*setting.value;
    if (theirs == 0 || theirs == declared_.*setting.value || theirs == settings_.*setting.value) {
      continue;
    }
    return Difference{setting.name, theirs, settings_.*setting.value};
  }
  return std::nullopt;
}

JobSettings AgreedSettings::With(const SetJob& set) const {
  JobSettings next = settings_;
  next.min_workers = set.min_workers.value_or(next.min_workers);
  next.max_workers = set.max_workers.value_or(next.max_workers);
  next.start_workers = std::max(next.min_workers, std::min(next.start_workers, next.max_workers));
  return next;
}

std::string AgreedSettings::WhyNotSet(const Config& config, uint32_t taken,
                                      const SetJob& set) const {
  const JobSettings next = With(set);
  if (!is_declared_) return "no worker has sent its settings yet; try again when one has";
  if (next.min_workers == 0 || next.min_workers > next.max_workers) {
    return absl::StrCat("min_workers would be ", next.min_workers, " and max_workers ",
                        next.max_workers, "; choose 1 <= min_workers <= max_workers");
  }
  if (next.max_workers > config.max_workers) {
    return absl::StrCat("max_workers would be ", next.max_workers, ", but this aggregator allows ",
                        config.max_workers, " (limits.workers)");
  }
  if (next.max_workers < settings_.max_workers && next.max_workers < taken) {
    return absl::StrCat("max_workers would be ", next.max_workers, ", but it has ",
                        CountOf(taken, "worker"), "; drain some of them first");
  }
  if (set.late_policy == LatePolicy::kEvict &&
      config.evict_late_after == absl::InfiniteDuration()) {
    return "late_policy evict needs round.evict_late_after, which is none; set it and restart the "
           "aggregator";
  }
  return "";
}

std::vector<std::string> AgreedSettings::Set(const Config& config, const SetJob& set) {
  const JobSettings next = With(set);
  std::vector<std::string> changes;
  const auto change = [&](const char* name, const auto& before, const auto& after) {
    if (before != after) changes.push_back(absl::StrCat(name, " = ", after));
  };
  change("min_workers", settings_.min_workers, next.min_workers);
  change("max_workers", settings_.max_workers, next.max_workers);
  if (set.loss_policy.has_value()) {
    change("loss_policy", std::string(NameOf(loss_policy(config))),
           std::string(NameOf(*set.loss_policy)));
    loss_policy_ = set.loss_policy;
  }
  if (set.late_policy.has_value()) {
    change("late_policy", std::string(NameOf(late_policy(config))),
           std::string(NameOf(*set.late_policy)));
    late_policy_ = set.late_policy;
  }
  if (!changes.empty()) settings_ = next;
  return changes;
}

std::optional<ChangedSettings> AgreedSettings::changed() const {
  const bool policies = loss_policy_.has_value() || late_policy_.has_value();
  if (settings_ == declared_ && !policies) return std::nullopt;
  return ChangedSettings{declared_, settings_, loss_policy_, late_policy_};
}

std::string AgreedSettings::WhyNotRestored(const Config& config, const ChangedSettings& changed) {
  if (changed.settings.max_workers > config.max_workers) {
    return absl::StrCat("max_workers was ", changed.settings.max_workers,
                        ", and this aggregator allows ", config.max_workers, " (limits.workers)");
  }
  if (changed.late_policy == LatePolicy::kEvict &&
      config.evict_late_after == absl::InfiniteDuration()) {
    return "late_policy was evict, and round.evict_late_after is none";
  }
  return "";
}

void AgreedSettings::Restore(const ChangedSettings& changed) {
  is_declared_ = true;
  declared_ = changed.declared;
  settings_ = changed.settings;
  loss_policy_ = changed.loss_policy;
  late_policy_ = changed.late_policy;
}

}  // namespace basin::aggregator
