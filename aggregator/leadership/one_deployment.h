// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An authority for the aggregators of one deployment. Two deployments whose configurations name the
// same directory, Lease or key would otherwise stand by for each other, and the workers of one of
// them would find no leader.
//
// Thread contract: that of Authority.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_ONE_DEPLOYMENT_H_
#define BASIN_AGGREGATOR_LEADERSHIP_ONE_DEPLOYMENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/leadership/authority.h"

namespace basin::aggregator {

class OneDeployment : public Authority {
 public:
  // `place`: where the record is, for errors, as standby.authority names it.
  OneDeployment(std::unique_ptr<Authority> authority, std::string place, std::string deployment);

  // A record of another deployment is an error that names both, so this process neither takes the
  // lead nor keeps it. One that names no deployment is of an aggregator that was not told its own.
  absl::StatusOr<RecordState> Read(absl::Duration timeout) override;
  // The record gets the name of the deployment.
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration timeout) override;
  void Leave() override { authority_->Leave(); }

 private:
  const std::unique_ptr<Authority> authority_;
  const std::string place_;
  const std::string deployment_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_ONE_DEPLOYMENT_H_
