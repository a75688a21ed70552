// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Answers of the admin service as text for people. Durations and sizes are rounded.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CTL_SHOW_H_
#define BASIN_AGGREGATOR_CTL_SHOW_H_

#include <string>

#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

std::string Show(const v1::ServiceStatus& status);
std::string Show(const v1::ListJobsResponse& jobs);
std::string Show(const v1::LimitsResponse& limits);
std::string Show(const v1::ListMembersResponse& members);
std::string Show(const v1::Goodput& goodput);
std::string Show(const v1::ListRoundsResponse& rounds);
std::string Show(const v1::ListShardsResponse& shards);
// With its line end.
std::string Show(const v1::Event& event);
std::string Show(const v1::ChangeResponse& change);
std::string Show(const v1::DumpResponse& dump);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_SHOW_H_
