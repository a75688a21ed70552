// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/samples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/lane.h"

namespace basin::client {
namespace {

// The positions that the contribution to the round in flight was computed from.
IntervalSet InFlight(const Lane& lane) {
  if (!lane.round.has_value() || !lane.round->begin().sample_epoch.has_value()) return {};
  return IntervalSet(lane.round->begin().samples);
}

std::string Describe(const SampleEpoch& epoch) {
  return absl::StrCat(epoch.samples, " samples in order ", absl::Hex(epoch.order),
                      epoch.has_steps() ? absl::StrCat(" in steps of ", epoch.global_batch) : "");
}

// Gives up all positions but those of the round in flight.
void GiveUpOthers(Lane& lane) { lane.samples.held.Intersect(InFlight(lane)); }

}  // namespace

Error Take(Lane& lane, const Scope& scope, const TakeSamples& take) {
  Samples& samples = lane.samples;
  if (samples.request.has_value()) {
    return lane.RefuseCall(ErrorCode::kFailedPrecondition,
                           "another thread already waits for samples of this lane.");
  }
  if (samples.asked.exists() && take.epoch.number == samples.asked.number &&
      take.epoch != samples.asked) {
    return lane.RefuseCall(
        ErrorCode::kMismatch,
        absl::StrCat("epoch ", take.epoch.number, " had ", Describe(samples.asked),
                     " before, and has ", Describe(take.epoch),
                     " now. An epoch keeps its data set, seed, order and global batch."));
  }
  if (samples.held_of.exists() && take.epoch.number > samples.held_of.number) GiveUpOthers(lane);
  samples.asked = take.epoch;
  samples.request = Samples::Request{++samples.requests, take.count, false};
  AdvanceSamples(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const GiveBackSamples& back) {
  Samples& samples = lane.samples;
  const IntervalSet in_flight = InFlight(lane);
  for (const SampleRange& range : back.ranges) {
    const std::vector<Interval> begun = in_flight.Inside(range);
    if (begun.empty()) continue;
    return lane.RefuseCall(ErrorCode::kFailedPrecondition,
                           absl::StrCat("sample ", begun.front().begin,
                                        " was returned, but the round was begun with it; return it "
                                        "after the outcome of the round, if at all."));
  }
  if (back.epoch != samples.held_of.number) return {};
  for (const SampleRange& range : back.ranges) {
    for (const Interval& part : samples.held.Remove(range)) samples.returning.Add(part);
  }
  AdvanceSamples(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope&, const ResumeSamples& resume) {
  Samples& samples = lane.samples;
  const SampleEpoch& epoch = resume.committed.epoch;
  if (epoch.IsAfter(samples.committed.epoch) &&
      (!samples.asked.exists() || epoch.number > samples.asked.number)) {
    samples.resumed = resume.committed;
    return {};
  }
  // A worker that has joined may have loaded an older checkpoint than the job is at.
  const SampleProgress& now = samples.progress();
  if (epoch.number < now.epoch.number) return {};
  const IntervalSet known(now.ranges);
  const bool within = epoch.HasOrderOf(now.epoch) &&
                      std::all_of(resume.committed.ranges.begin(), resume.committed.ranges.end(),
                                  [&](const SampleRange& range) { return known.Contains(range); });
  if (within) return {};
  return lane.RefuseCall(
      ErrorCode::kFailedPrecondition,
      absl::StrCat("a checkpoint of epoch ", epoch.number, " with ",
                   IntervalSet(resume.committed.ranges).count(), " of ", epoch.samples,
                   " samples committed cannot be resumed, because the job is at epoch ",
                   std::max(now.epoch.number, samples.asked.number),
                   " already, or has leased samples of it. Resume before the first lease."));
}

Error WhyNotBegin(const Lane& lane, const BeginRound& begin) {
  // The aggregator knows what the others hold that this contribution was reduced with.
  if (!begin.sample_epoch.has_value() || !begin.reduced_with.empty()) return {};
  const Samples& samples = lane.samples;
  // Nobody holds samples of steps: the aggregator knows which step comes next.
  if (samples.asked.has_steps()) return {};
  for (const SampleRange& range : begin.samples) {
    const std::vector<Interval> outside = samples.held_of.number == *begin.sample_epoch
                                              ? samples.held.Outside(range)
                                              : std::vector<Interval>{range};
    if (outside.empty()) continue;
    return lane.RefuseCall(
        ErrorCode::kFailedPrecondition,
        absl::StrCat("it was begun with sample ", outside.front().begin, " of epoch ",
                     *begin.sample_epoch,
                     ", which is not leased to this worker. Begin with samples that it leased, and "
                     "that it has neither returned nor trained on; an eviction ends all leases."));
  }
  return {};
}

void AdvanceSamples(Lane& lane, const Scope& scope) {
  Samples& samples = lane.samples;
  if (!scope.welcomed || !lane.in_session) return;
  if (!samples.returning.empty()) {
    scope.Send(ReturnSamples{*lane.index, samples.held_of.number, samples.returning.Runs()});
    samples.returning.Clear();
  }
  if (!samples.request.has_value() || samples.request->sent) return;
  const bool in_steps = samples.asked.has_steps();
  if (in_steps ? !scope.knows_steps : !scope.knows_samples) {
    FailRequest(lane, scope,
                lane.RefuseCall(
                    ErrorCode::kVersionMismatch,
                    absl::StrCat("the aggregator is too old to lease samples",
                                 in_steps ? " in steps of a global batch" : "", ". Update it.")));
    return;
  }
  samples.request->sent = true;
  const bool follows = in_steps && !samples.held.empty() && samples.held_of == samples.asked;
  scope.Send(LeaseSamples{*lane.index, samples.request->number, samples.asked,
                          samples.request->count, samples.ResumedOf(samples.asked),
                          follows ? samples.held.Last().end : 0});
}

void OnLeased(Lane& lane, const Scope& scope, const SamplesLeased& leased) {
  Samples& samples = lane.samples;
  if (leased.request == 0) {  // It corrects the hello.
    if (leased.epoch != samples.held_of.number) samples.held.Clear();
    samples.held.Intersect(IntervalSet(leased.ranges));
    return;
  }
  if (!leased.ranges.empty() && samples.held_of != samples.asked) {
    samples.held.Clear();  // The lane has moved on: these were committed.
    samples.held_of = samples.asked;
  }
  if (!leased.resumed.empty()) samples.resumed = {samples.asked, leased.resumed};
  if (!samples.request.has_value() || samples.request->number != leased.request) {
    // The trainer has stopped waiting.
    samples.returning.Add(leased.ranges);
    AdvanceSamples(lane, scope);
    return;
  }
  samples.request.reset();
  samples.held.Add(leased.ranges);
  Error error;
  LeaseOutcome outcome = leased.outcome;
  if (outcome == LeaseOutcome::kRefused) {
    error = leased.error;
    samples.asked = samples.held_of;  // The trainer may ask for another one in its place.
  } else if (outcome == LeaseOutcome::kEnded && lane.undelivered.has_value()) {
    // The last round of the epoch went on without this worker. Its trainer takes the result of that
    // round before it takes the epoch for over.
    outcome = LeaseOutcome::kNoneNow;
  }
  scope.actions.push_back(SamplesAnswered{lane.handle, outcome, leased.ranges, std::move(error)});
}

void OnVerdictSamples(Samples& samples, const RoundValue& value) {
  if (value.outcome == Outcome::kCommitted && value.samples.has_value()) {
    samples.committed = After(samples.committed, *value.samples);
    if (samples.held_of.number == value.samples->epoch.number) {
      samples.held.Remove(value.samples->ranges);
    }
  }
  // The aggregator has freed what this worker had given up, and the round did not commit.
  if (samples.asked.number > samples.held_of.number) samples.held.Clear();
}

void StopLeasing(Lane& lane, const Scope& scope, const Error& error) {
  GiveUpOthers(lane);
  lane.samples.returning.Clear();
  FailRequest(lane, scope, error);
}

void FailRequest(Lane& lane, const Scope& scope, const Error& error) {
  FailReport(lane, scope, error);
  if (!lane.samples.request.has_value()) return;
  lane.samples.request.reset();
  scope.actions.push_back(SamplesAnswered{lane.handle, LeaseOutcome::kRefused, {}, error});
}

}  // namespace basin::client
