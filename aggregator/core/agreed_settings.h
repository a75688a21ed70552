// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The settings of a job: as the first hello of a run declares them, and as an operator has changed
// them since. The workers know only what they declared, so a later hello may ask for either.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_AGREED_SETTINGS_H_
#define BASIN_AGGREGATOR_CORE_AGREED_SETTINGS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/core/config.h"
#include "aggregator/core/event.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class AgreedSettings {
 public:
  // A setting of a hello that is not the job's.
  struct Difference {
    const char* name = "";
    uint32_t theirs = 0;
    uint32_t ours = 0;
  };

  // With the defaults in place of what is not set.
  static JobSettings Resolve(JobSettings asked);

  // Whether a hello of the run has declared them.
  bool declared() const { return is_declared_; }
  const JobSettings& settings() const { return settings_; }
  // For how many workers memory is planned.
  uint32_t most_workers() const { return std::max<uint32_t>(settings_.max_workers, 1); }
  LossPolicy loss_policy(const Config& config) const {
    return loss_policy_.value_or(config.loss_policy);
  }
  LatePolicy late_policy(const Config& config) const {
    return late_policy_.value_or(config.late_policy);
  }

  // Why no round can go on without those who are late, although the late policy leaves them out,
  // and what to do, as sentences; empty if some can, if the policy is another one, or if the job
  // has one worker. `together`: how many workers have one contribution, at least 1.
  std::string WhyNobodyIsLeftOut(const Config& config, uint64_t together) const;

  // The first hello of the run declares them, which undoes what an operator has set.
  void Declare(const JobSettings& asked);
  // Another run begins, whose first hello declares them anew.
  void Reopen() { is_declared_ = false; }
  // What the hello asks for and the job does not have; nothing if they agree.
  std::optional<Difference> DiffersFrom(const JobSettings& asked) const;

  // ---- what an operator changes
  // With what the operator names in place of what the job has.
  JobSettings With(const SetJob& set) const;
  // Why that cannot be, as the end of a sentence about the job; empty when it can, if there is the
  // memory. `taken`: how many of max_workers places are taken.
  std::string WhyNotSet(const Config& config, uint32_t taken, const SetJob& set) const;
  // Returns what changes, as "min_workers = 2". REQUIRES: WhyNotSet() is empty.
  std::vector<std::string> Set(const Config& config, const SetJob& set);
  // What has to survive a restart; nothing if an operator has changed nothing.
  std::optional<ChangedSettings> changed() const;
  // Why what an operator had changed under another configuration cannot hold under this one; empty
  // when it can.
  static std::string WhyNotRestored(const Config& config, const ChangedSettings& changed);
  void Restore(const ChangedSettings& changed);

  auto Fields() const {
    return std::tie(is_declared_, declared_, settings_, loss_policy_, late_policy_);
  }

 private:
  bool is_declared_ = false;
  JobSettings declared_;
  JobSettings settings_;
  // Where an operator has set other ones than the configuration has.
  std::optional<LossPolicy> loss_policy_;
  std::optional<LatePolicy> late_policy_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_AGREED_SETTINGS_H_
