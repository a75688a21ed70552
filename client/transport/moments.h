// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a timeline records: the moments of a worker's rounds, and changes of its view of the job;
// and the events of a trace that they are.
//
// The trainer's side of a round is a row of slices without gaps:
//
//   compute  from the end of the lane's last round to the first push
//   push     to the commit
//   wait     to the first result
//   result   until all results are here and checked, so STAGED was sent
//   verdict  until the trainer has the outcome
//   copy     while the trainer copies results
//
// `round N` encloses all but compute. A moment that came earlier than the one before it counts as
// that one: a result that arrives while the trainer still pushes leaves no wait. Such results are
// visible on a track of their own, with their true times. A slice without duration is left out.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_CLIENT_TRANSPORT_MOMENTS_H_
#define BASIN_CLIENT_TRANSPORT_MOMENTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "client/core/event.h"
#include "client/transport/outcome.h"
#include "runtime/timeline/trace_event.h"

namespace basin::client {

// Moments are of the client's clock; one that did not come is InfinitePast.
inline bool Came(absl::Time moment) { return moment != absl::InfinitePast(); }

struct RoundMoments {
  std::string lane;
  LaneHandle handle = 0;
  LaneKind kind = LaneKind::kGradient;
  RoundNumber round = 0;  // 0: unknown, because it failed early.

  absl::Time idle_since = absl::InfinitePast();  // The lane's last round was over.
  absl::Time begun = absl::InfinitePast();
  absl::Time first_push = absl::InfinitePast();
  absl::Time committed = absl::InfinitePast();  // Or withdrawn.
  absl::Time first_result = absl::InfinitePast();
  absl::Time staged = absl::InfinitePast();
  absl::Time decided = absl::InfinitePast();
  absl::Time delivered = absl::InfinitePast();
  absl::Time first_copy = absl::InfinitePast();
  absl::Time last_copy = absl::InfinitePast();  // When it ended.

  absl::Duration pushing;  // In calls that push.
  absl::Duration copying;  // In calls that copy results.
  uint32_t tensors = 0;    // Pushed.
  uint64_t pushed_bytes = 0;
  uint64_t result_bytes = 0;  // Received, again included.
  uint32_t contributors = 0;
  uint32_t world_size = 0;
  std::string failure;  // Empty: it has a result.

  // The end of all that is known of it.
  absl::Time end() const;
};

// A change that concerns the worker as a whole.
struct JobMoment {
  absl::Time time;
  std::string what;  // "session lost"
  std::string text;
};

using TimelineRecord = std::variant<RoundMoments, JobMoment>;

// What changed from one view to the next.
std::vector<JobMoment> MomentsBetween(const JobView& before, const JobView& now, absl::Time time);

// The process in a trace.
struct TimelineProcess {
  uint64_t number = 0;
  std::string job;
  std::string worker;
  absl::Duration to_unix;  // From the client's clock to the wall clock.
};

inline constexpr uint64_t kConnectionTrack = 1;
inline uint64_t TrackOf(LaneHandle lane) { return 2 + 2 * uint64_t{lane}; }
inline uint64_t ResultsTrackOf(LaneHandle lane) { return TrackOf(lane) + 1; }

// Slices that enclose others come first.
std::vector<TraceEvent> EventsOf(const RoundMoments& moments, const TimelineProcess& process);
TraceEvent EventOf(const JobMoment& moment, const TimelineProcess& process);

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_MOMENTS_H_
