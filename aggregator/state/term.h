// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The term of a new process. It is higher than that of any process before it, by the wall clock and
// by the state file. It is unique although no service assigns terms: its low bits are random, so
// that two processes that start in the same second, or step above the same term, get different ones
// (they collide once in a million times, which a worker that receives both detects).
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_STATE_TERM_H_
#define BASIN_AGGREGATOR_STATE_TERM_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/vocabulary/ids.h"

namespace basin::aggregator {

inline constexpr int kRandomTermBits = 20;

// The step by which a process raises its term above the highest one that it receives: 1 to 2^20.
inline Term TermStep(uint32_t random) { return 1 + (random & ((Term{1} << kRandomTermBits) - 1)); }

// `saved`: the highest term that was written down; 0 without a state file. A clock that was set
// back costs nothing then; without one, the workers know.
inline Term FirstTerm(absl::Time wall, Term saved, Term step) {
  const Term seconds = static_cast<Term>(std::max<int64_t>(absl::ToUnixSeconds(wall), 0));
  return std::max(seconds << kRandomTermBits, saved) + step;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATE_TERM_H_
