// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/core/settings.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace basin::accelerator::node {
namespace {

absl::StatusOr<int> Number(const char* name, const std::string& text, int least, int most) {
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", text, "\"; set it to a number from ", least, " to ", most));
}

}  // namespace

absl::StatusOr<LocalSettings> DecideLocalGroup(const LocalEnvironment& environment) {
  LocalSettings settings;
  const std::string wish = environment.local_group.value_or("off");
  if (wish == "off") return settings;
  settings.required = wish == "deterministic" || wish == "fast";
  if (wish == "fast") settings.mode = GroupMode::kFast;
  if (!settings.required && wish != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "BASIN_LOCAL_GROUP is \"", wish, "\"; set it to off, auto, deterministic or fast"));
  }
  const bool placed = environment.local_rank && environment.local_world_size;
  if (!placed && settings.required) {
    return absl::InvalidArgumentError(absl::StrCat(
        "BASIN_LOCAL_GROUP is \"", wish,
        "\", but LOCAL_RANK and LOCAL_WORLD_SIZE are not both set; start the ranks of "
        "a node with basin-run, torchrun, mpirun or srun, or set BASIN_LOCAL_GROUP to off"));
  }
  if (!placed) return settings;
  const auto size = Number(environment.size_variable, *environment.local_world_size, 1, kMostRanks);
  if (!size.ok()) return size.status();
  const auto rank = Number(environment.rank_variable, *environment.local_rank, 0, *size - 1);
  if (!rank.ok()) return rank.status();
  settings.rank = *rank;
  settings.size = *size;
  settings.grouped = *size > 1;
  return settings;
}

}  // namespace basin::accelerator::node
