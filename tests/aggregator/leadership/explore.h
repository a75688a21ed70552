// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Every state that two candidates for the lead and their authority can get into. Nothing bounds how
// often something happens, except where Bounds says so: the search ends because equal states are
// one, whenever they occur.
//
// Time passes in steps of a part of the lease. One clock is 1 % slow and the other one is 1 % fast;
// the lease of the fast one is a whole number of steps, so what follows from the end of a lease may
// happen in the very moment. What can happen between two steps of time, in any order:
//
//   - A candidate acts whose deadline has come, or does not: it may be paused for any time.
//   - A request reaches the authority, now or at any later time, also when its sender waits no more
//     (of each sender one such write; an older one is lost). The answer comes at any later time.
//   - A request fails for its sender, before or after it had its effect.
//   - The authority loses its record, or its last write (Restores).
//   - A candidate gives up the lead, or ends and starts again.
//
// What must hold: permissions to decide do not overlap in true time, where a decision at the last
// moment takes its effect after a pause that goes unnoticed.
//
// States are equal if they differ only in what no decision depends on: the time that has passed
// since something, beyond the leases that count; what the core overwrites before it uses it
// (VisitCandidate); and names. Versions have the lowest number that nobody knows; a fence is the
// wall clock's, which nobody had before, and is only compared with that of the holder's last write.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_EXPLORE_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_EXPLORE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace basin::aggregator {

// Rules without which the search must find a violation.
enum class BrokenRule : uint8_t {
  kNone,
  kNoMargin,             // A permission lasts as long as the lease.
  kCountsFromTheAnswer,  // It counts from the answer to the renewal, not from the request.
  kIgnoresVersions,      // The authority writes over whatever it has.
  kClocksDriftFurther,   // 5 % slow and fast.
  kActsAfterRelease,     // A decision takes its effect after its leader has given up the lead.
};

// Whether the authority may lose its last write, which it has answered, as when it is restored from
// a backup.
enum class Restores : uint8_t {
  kNever,
  kAfterALease,  // Since it was written. Until then, it is the authority's duty to keep it.
  kAtAnyTime,
};

struct LeadershipBounds {
  int steps = 4;        // Of time, in a lease.
  bool forgets = true;  // The authority loses its record.
  Restores restores = Restores::kNever;
  bool step_downs = true;
  bool stale_writes = true;   // Writes arrive when their sender waits no more.
  uint32_t restarts = 0;      // Of candidates, together.
  bool longer_lease = false;  // The slow candidate's lease is twice as long.
  BrokenRule broken = BrokenRule::kNone;
  uint64_t max_states = 20'000'000;
};

struct LeadershipSearch {
  std::string violation;           // Empty: none.
  std::vector<std::string> trail;  // To the violation, on a shortest way.
  bool complete = false;
  uint64_t states = 0;
  uint64_t steps = 0;
  uint64_t depth = 0;
  uint64_t begins = 0;   // Steps in which a lead began,
  uint64_t goes_on = 0;  // went on after its permission had ended,
  uint64_t ends = 0;     // or ended.
  double seconds = 0;    // CPU time.
  std::string Summary() const;
};

LeadershipSearch ExploreLeadership(const LeadershipBounds& bounds);

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_EXPLORE_H_
