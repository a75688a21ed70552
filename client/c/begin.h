// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The specification of a round as basin.h has it.
//
// Thread contract: a pure function.

#ifndef BASIN_CLIENT_C_BEGIN_H_
#define BASIN_CLIENT_C_BEGIN_H_

#include "absl/status/statusor.h"
#include "client/c/include/basin/basin.h"
#include "client/core/event.h"

namespace basin::c {

// What the caller's structure says, which may be that of an older header; the lane is not set.
// Failure: INVALID_ARGUMENT names what is missing, or an enumerator that there is not.
absl::StatusOr<client::BeginRound> RoundOf(const basin_round_spec* given);

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_BEGIN_H_
