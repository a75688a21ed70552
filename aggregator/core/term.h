// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The terms in which aggregators rule. They only go up, by the wall clock, the state file and what
// workers remember, and are unique although no service assigns them: each step up is random, so
// that two processes that start in the same second, or step above the same term, get different ones
// (they collide once in a million times, which a worker that receives both detects).
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_TERM_H_
#define BASIN_AGGREGATOR_CORE_TERM_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "protocol/ids.h"
#include "protocol/round.h"

namespace basin::aggregator {

inline constexpr int kRandomTermBits = 20;

// Above `highest`, by 1 to 2^20. `random` is drawn once for each process. The step depends on
// `highest` too: if each process had a step of its own, two that step above each other's terms in
// opposite orders would arrive at the same sum.
inline Term TermAbove(Term highest, uint64_t random) {
  return highest + 1 + MixChain(random, highest) % (Term{1} << kRandomTermBits);
}

// The term of an aggregator that an authority made the leader: above every term of a leader with a
// lower fence, which is its upper part. A fence is at least the unix seconds of its time, so it is
// also above those of aggregators without an authority.
inline Term TermOfFence(uint64_t fence, uint64_t random) {
  return TermAbove(fence << kRandomTermBits, random);
}

// The term of a new process. `saved`: the highest term that was written down; 0 without a state
// file. A clock that was set back costs nothing then; without one, the workers know.
inline Term FirstTerm(absl::Time wall, Term saved, uint64_t random) {
  const Term seconds = static_cast<Term>(std::max<int64_t>(absl::ToUnixSeconds(wall), 0));
  return TermAbove(std::max(seconds << kRandomTermBits, saved), random);
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_TERM_H_
