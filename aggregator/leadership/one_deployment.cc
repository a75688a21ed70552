// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/one_deployment.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {

OneDeployment::OneDeployment(std::unique_ptr<Authority> authority, std::string place,
                             std::string deployment)
    : authority_(std::move(authority)),
      place_(std::move(place)),
      deployment_(std::move(deployment)) {}

absl::StatusOr<RecordState> OneDeployment::Read(absl::Duration timeout) {
  absl::StatusOr<RecordState> state = authority_->Read(timeout);
  if (!state.ok() || !state->record.has_value()) return state;
  const std::string& other = state->record->deployment;
  if (other.empty() || other == deployment_) return state;
  return absl::UnavailableError(absl::StrCat(
      "The record of the leader at standby.authority ", place_, " is of the deployment ", other,
      deployment_.empty() ? ", and this aggregator has no standby.deployment"
                          : absl::StrCat(", and this aggregator is of ", deployment_),
      ". Give each deployment a standby.authority of its own; if this is the same one with another "
      "name, end its aggregators and remove the record"));
}

absl::StatusOr<std::string> OneDeployment::Write(const LeaderRecord& record,
                                                 const std::string& version,
                                                 absl::Duration timeout) {
  LeaderRecord named = record;
  named.deployment = deployment_;
  return authority_->Write(named, version, timeout);
}

}  // namespace basin::aggregator
