// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/moments.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/plural.h"

namespace basin::client {
namespace {

uint64_t Micros(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

// The events of one round.
class RoundTrace {
 public:
  RoundTrace(const RoundMoments& moments, const TimelineProcess& process)
      : moments_(moments), process_(process), track_(TrackOf(moments.handle)) {}

  int64_t At(absl::Time moment) const { return absl::ToUnixMicros(moment + process_.to_unix); }

  TraceArgs Identity() const {
    TraceArgs args;
    args.Add("job", process_.job).Add("worker", process_.worker).Add("lane", moments_.lane);
    args.Add("round", moments_.round);
    return args;
  }

  void Slice(uint64_t track, const std::string& name, absl::Time begin, absl::Time end,
             const TraceArgs& args) {
    if (At(end) <= At(begin)) return;
    TraceEvent event = New(TracePhase::kSlice, name, track, begin);
    event.duration_us = At(end) - At(begin);
    event.args = args;
    events_.push_back(std::move(event));
  }

  void Flow(TracePhase phase, absl::Time moment) {
    TraceEvent event = New(phase, kFlowName, track_, moment);
    event.flow = FlowOf(process_.job, moments_.lane, moments_.round, process_.worker);
    events_.push_back(std::move(event));
  }

  void Instant(const std::string& name, absl::Time moment, const TraceArgs& args) {
    TraceEvent event = New(TracePhase::kInstant, name, track_, moment);
    event.args = args;
    events_.push_back(std::move(event));
  }

  uint64_t track() const { return track_; }
  std::vector<TraceEvent> Take() { return std::move(events_); }

 private:
  TraceEvent New(TracePhase phase, const std::string& name, uint64_t track,
                 absl::Time begin) const {
    TraceEvent event;
    event.phase = phase;
    event.name = name;
    event.process = process_.number;
    event.track = track;
    event.begin_us = At(begin);
    return event;
  }

  const RoundMoments& moments_;
  const TimelineProcess& process_;
  const uint64_t track_;
  std::vector<TraceEvent> events_;
};

}  // namespace

absl::Time RoundMoments::end() const {
  return std::max(
      {begun, first_push, committed, first_result, staged, decided, delivered, last_copy});
}

std::vector<TraceEvent> EventsOf(const RoundMoments& m, const TimelineProcess& process) {
  RoundTrace trace(m, process);
  const absl::Time begin = Came(m.first_push) ? m.first_push : std::max(m.begun, m.idle_since);
  const absl::Time end = std::max(begin, m.end());
  // In order, each within the round. A phase that was not reached has no slice: the one in which
  // the round ended lasts until its end.
  const absl::Time over = Came(m.delivered) ? std::max(begin, m.delivered) : end;
  const auto next = [&](absl::Time before, absl::Time moment) {
    return Came(moment) ? std::clamp(moment, before, over) : over;
  };
  const absl::Time committed = next(begin, m.committed);
  const absl::Time staged_at = next(committed, Came(m.staged) ? m.staged : m.decided);
  const absl::Time first_result =
      Came(m.first_result) ? std::clamp(m.first_result, committed, staged_at) : staged_at;

  // A call is made when its result is needed, so the time between two calls says nothing.
  if (m.kind == LaneKind::kGradient && Came(m.idle_since)) {
    trace.Slice(trace.track(), "compute", m.idle_since, begin, trace.Identity());
  }
  TraceArgs round = trace.Identity();
  round.Add("outcome", m.failure.empty() ? "COMMITTED" : m.failure)
      .Add("contributors", m.contributors)
      .Add("world_size", m.world_size);
  trace.Slice(trace.track(), absl::StrCat("round ", m.round), begin, end, round);
  TraceArgs push;
  push.Add("round", m.round).Add("bytes", m.pushed_bytes).Add("tensors", m.tensors);
  push.Add("in_calls_us", Micros(m.pushing));
  trace.Slice(trace.track(), "push", begin, committed, push);
  TraceArgs plain;
  plain.Add("round", m.round);
  trace.Slice(trace.track(), "wait", committed, first_result, plain);
  TraceArgs result = plain;
  result.Add("bytes", m.result_bytes);
  trace.Slice(trace.track(), "result", first_result, staged_at, result);
  trace.Slice(trace.track(), "verdict", staged_at, over, plain);
  if (Came(m.first_copy)) {
    TraceArgs copy = plain;
    copy.Add("in_calls_us", Micros(m.copying));
    trace.Slice(trace.track(), "copy", std::max(over, m.first_copy), m.last_copy, copy);
  }
  if (Came(m.first_result) && Came(m.staged)) {
    trace.Slice(ResultsTrackOf(m.handle), absl::StrCat("results of round ", m.round),
                m.first_result, m.staged, result);
  }
  if (!m.failure.empty()) {
    TraceArgs failure = trace.Identity();
    failure.Add("text", m.failure);
    trace.Instant("round failed", over, failure);
  }
  // An arrow needs slices at both of its ends. The last bytes of a contribution can come back as a
  // result before the aggregator notes that it is complete, and only the verdict comes after that.
  if (m.round != 0 && m.tensors > 0 && m.failure.empty() && trace.At(begin) < trace.At(end)) {
    trace.Flow(TracePhase::kFlowBegin, begin);
    trace.Flow(TracePhase::kFlowEnd, std::max(begin, over - absl::Microseconds(1)));
  }
  return trace.Take();
}

TraceEvent EventOf(const JobMoment& moment, const TimelineProcess& process) {
  TraceEvent event;
  event.phase = TracePhase::kInstant;
  event.name = moment.what;
  event.process = process.number;
  event.track = kConnectionTrack;
  event.begin_us = absl::ToUnixMicros(moment.time + process.to_unix);
  if (!moment.text.empty()) event.args.Add("text", moment.text);
  return event;
}

std::vector<JobMoment> MomentsBetween(const JobView& before, const JobView& now, absl::Time time) {
  std::vector<JobMoment> moments;
  const bool was_in_trouble = before.trouble.code != ErrorCode::kOk;
  const bool in_trouble = now.trouble.code != ErrorCode::kOk;
  if (in_trouble && now.trouble != before.trouble) {
    moments.push_back(
        {time, was_in_trouble ? "session still lost" : "session lost", now.trouble.text});
  } else if (!in_trouble && was_in_trouble) {
    moments.push_back({time, "session reconnected", ""});
  }
  if (!now.stream_trouble.empty() && before.stream_trouble.empty()) {
    moments.push_back({time, "data streams lost", now.stream_trouble});
  } else if (now.stream_trouble.empty() && !before.stream_trouble.empty()) {
    moments.push_back({time, "data stream reconnected", ""});
  }
  if (now.membership.generation != before.membership.generation) {
    const Generation& generation = now.membership.generation;
    moments.push_back({time, absl::StrCat("generation ", generation.term, ".", generation.counter),
                       CountOf(now.membership.members.size(), "member")});
  }
  if (now.held_up != before.held_up && !now.held_up.empty()) {
    moments.push_back({time, "round held up", now.held_up});
  }
  if (now.paused != before.paused) {
    moments.push_back({time, now.paused.empty() ? "job continues" : "job paused", now.paused});
  }
  if (now.fatal.has_value() && now.fatal != before.fatal) {
    moments.push_back({time, "worker ended", now.fatal->text});
  }
  if (now.left && !before.left) moments.push_back({time, "worker left", ""});
  return moments;
}

}  // namespace basin::client
