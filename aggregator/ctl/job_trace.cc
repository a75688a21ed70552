// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/job_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::aggregator {
namespace {

// The number of the process in this trace; several traces in one file get other numbers.
constexpr uint64_t kProcess = 1;

int64_t MicrosOf(uint64_t nanoseconds) { return static_cast<int64_t>(nanoseconds / 1000); }

// The events of one lane.
class LaneTrace {
 public:
  LaneTrace(const v1::LaneRounds& lane, const std::string& job, uint64_t now_ns, uint64_t& tracks,
            std::vector<TraceEvent>& events)
      : lane_(lane), job_(job), now_ns_(now_ns), tracks_(tracks), events_(events) {
    track_ = NewTrack(lane.lane());
  }

  void Add(const v1::RoundSummary& round) {
    // A damaged answer has no times before 1970.
    const uint64_t verdict = now_ns_ - std::min(now_ns_, round.age_ns());
    const uint64_t opened = verdict - std::min(verdict, round.duration_ns());
    TraceArgs args = IdentityOf(round);
    args.Add("outcome", round.outcome() == v1::OUTCOME_COMMITTED ? "COMMITTED" : "ABORTED")
        .Add("contributors", round.contributors())
        .Add("world_size", round.world_size())
        .Add("bytes", lane_.bytes())
        .Add("tensors", lane_.tensors());
    if (!round.late().empty()) args.Add("late", absl::StrJoin(round.late(), ", "));
    if (!round.deferred().empty()) args.Add("deferred", absl::StrJoin(round.deferred(), ", "));
    Slice(track_, absl::StrCat("round ", round.round()), opened, verdict, args);
    if (round.outcome() != v1::OUTCOME_COMMITTED) return;
    const uint64_t gathered = std::min(verdict, opened + round.gather_ns());
    const uint64_t waited = std::min(verdict, gathered + round.wait_ns());
    Slice(track_, "gathered", opened, gathered, TraceArgs());
    TraceArgs waited_for;
    waited_for.Add("worker", round.waited_for());
    Slice(track_, absl::StrCat("waited for ", round.waited_for()), gathered, waited, waited_for);
    Slice(track_, "reduced", waited, verdict, TraceArgs());
    for (const v1::Arrival& arrival : round.arrivals()) {
      AddArrival(round, arrival, opened, std::min(verdict, opened + arrival.after_ns()));
    }
  }

 private:
  uint64_t NewTrack(const std::string& name) {
    events_.push_back(TrackName(kProcess, ++tracks_, name));
    return tracks_;
  }

  TraceArgs IdentityOf(const v1::RoundSummary& round) const {
    TraceArgs args;
    args.Add("job", job_).Add("lane", lane_.lane()).Add("round", round.round());
    return args;
  }

  void Slice(uint64_t track, const std::string& name, uint64_t begin_ns, uint64_t end_ns,
             const TraceArgs& args) {
    TraceEvent event;
    event.name = name;
    event.process = kProcess;
    event.track = track;
    event.begin_us = MicrosOf(begin_ns);
    event.duration_us = MicrosOf(end_ns) - event.begin_us;
    event.args = args;
    if (event.duration_us > 0) events_.push_back(std::move(event));
  }

  void AddArrival(const v1::RoundSummary& round, const v1::Arrival& arrival, uint64_t opened,
                  uint64_t arrived) {
    uint64_t& track = workers_[arrival.worker()];
    if (track == 0) track = NewTrack(absl::StrCat(lane_.lane(), ": ", arrival.worker()));
    // An arrow needs a slice, so the first contribution has one too.
    const uint64_t end = std::max(arrived, opened + 1000);
    TraceArgs args = IdentityOf(round);
    args.Add("worker", arrival.worker());
    Slice(track, absl::StrCat("contribution to round ", round.round()), opened, end, args);
    TraceEvent flow;
    flow.phase = TracePhase::kFlowStep;
    flow.name = kFlowName;
    flow.process = kProcess;
    flow.track = track;
    // Within the slice, and after the worker has begun to push.
    flow.begin_us = MicrosOf(end) - 1;
    flow.flow = FlowOf(job_, lane_.lane(), round.round(), arrival.worker());
    events_.push_back(std::move(flow));
  }

  const v1::LaneRounds& lane_;
  const std::string& job_;
  const uint64_t now_ns_;
  uint64_t& tracks_;
  std::vector<TraceEvent>& events_;
  uint64_t track_ = 0;
  std::map<std::string, uint64_t> workers_;  // Tracks.
};

}  // namespace

std::vector<TraceEvent> EventsOf(const v1::ListRoundsResponse& rounds, const std::string& job,
                                 uint32_t most) {
  std::vector<TraceEvent> events = {ProcessName(kProcess, "aggregator of job " + job)};
  uint64_t tracks = 0;
  for (const v1::LaneRounds& lane : rounds.lanes()) {
    LaneTrace trace(lane, job, rounds.time_unix_ns(), tracks, events);
    // They are newest first.
    const int count = std::min(lane.recent_size(), static_cast<int>(most));
    for (int i = count - 1; i >= 0; --i) trace.Add(lane.recent(i));
  }
  return events;
}

}  // namespace basin::aggregator
