// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The third party that keeps the record of the leader, and lets only one of two writers succeed.
//
// It may lose the record at any time. Once it has answered a write, it must not return to an
// earlier state of the record until the lease of that write is over: no candidate could see that.
//
// Thread contract: one thread. Calls may block for as long as `timeout` says, and not much longer.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_AUTHORITY_H_
#define BASIN_AGGREGATOR_LEADERSHIP_AUTHORITY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/leadership/core/record.h"

namespace basin::aggregator {

class Authority {
 public:
  virtual ~Authority() = default;

  // The record as it is now, not as it was before the call. Failure: a status that names the
  // authority, what failed and what to do, without a period at its end.
  virtual absl::StatusOr<RecordState> Read(absl::Duration timeout) = 0;

  // Replaces the record if it still has this version (empty: if there is none), and returns its new
  // version. Failure: ABORTED if it has another version, and nothing was written; any other code if
  // it is not known whether it was.
  virtual absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                            absl::Duration timeout) = 0;

  // This process takes part no more.
  virtual void Leave() {}
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_AUTHORITY_H_
