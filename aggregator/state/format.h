// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The content of the state file, as readable text with a checksum:
//
//   basin-state 2
//   checksum 5c1f0e8a7d3b9264
//   term 1842380321234567
//   job vision/resnet run 7f3c... term 1842380321234567 generation 1842380321234567.3 members 2
//   w-0
//   w-1 8
//   set min 2 start 2 max 2 to min 1 start 2 max 4 loss abort late -
//
// A number after a worker is that of its trainers, if it stands for several. The last line is there
// if an operator has changed settings of the job: what its workers declared, what it has, and the
// policies that were set. Without any of the two the file is version 1, which earlier programs read
// too.
//
// The checksum is XXH3 of everything below its line. A run without an id is "-".
//
// Thread contract: a plain value and pure functions. Failure: DATA_LOSS names the line and the
// mistake.

#ifndef BASIN_AGGREGATOR_STATE_FORMAT_H_
#define BASIN_AGGREGATOR_STATE_FORMAT_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "aggregator/core/config.h"
#include "protocol/ids.h"

namespace basin::aggregator {

// The most jobs with the most workers take less.
inline constexpr size_t kMaxStateBytes = size_t{64} << 20;

struct WrittenState {
  Term term = 0;  // The highest that was ever ruled in.
  std::map<JobName, SavedState> jobs;
};

std::string EncodeState(const WrittenState& state);
absl::StatusOr<WrittenState> DecodeState(std::string_view text);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATE_FORMAT_H_
