// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether this process reduces in a local group, by its environment.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_ACCELERATOR_NODE_CORE_SETTINGS_H_
#define BASIN_ACCELERATOR_NODE_CORE_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace basin::accelerator::node {

// The most ranks of a node.
constexpr int kMostRanks = 64;

// What a group may do to the order of additions.
enum class GroupMode : uint8_t {
  kDeterministic,  // The bits of the plan.
  kFast,           // NCCL's own order.
};

// Variables of the environment. Absent: not set, or empty.
struct LocalEnvironment {
  std::optional<std::string> local_group;       // BASIN_LOCAL_GROUP
  std::optional<std::string> local_rank;        // LOCAL_RANK, or that of another launcher.
  std::optional<std::string> local_world_size;  // LOCAL_WORLD_SIZE, or that of another launcher.
  // The variables that the two are from, for errors.
  const char* rank_variable = "LOCAL_RANK";
  const char* size_variable = "LOCAL_WORLD_SIZE";
};

struct LocalSettings {
  bool grouped = false;
  // A group that cannot be is an error. If not, each rank is a worker of its own.
  bool required = false;
  GroupMode mode = GroupMode::kDeterministic;
  int rank = 0;
  int size = 1;
};

// BASIN_LOCAL_GROUP is
//   off            (default) every rank is a worker of its own
//   auto           a deterministic group where the launcher says that the node has several ranks
//   deterministic  a group; an error where the launcher does not say which rank this is
//   fast           the same, in fast mode
// Failure: INVALID_ARGUMENT, with the variable, its value, and what is allowed.
absl::StatusOr<LocalSettings> DecideLocalGroup(const LocalEnvironment& environment);

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_CORE_SETTINGS_H_
