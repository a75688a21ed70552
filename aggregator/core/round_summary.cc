// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_summary.h"

#include <algorithm>
#include <cmath>

namespace basin::aggregator {
namespace {

std::vector<Arrival> ArrivalsOf(const Round& round) {
  std::vector<Arrival> arrivals;
  for (const RoundMember& member : round.members()) {
    if (!member.contribution.effective()) continue;
    arrivals.push_back({member.id, member.contribution.arrived() - round.opened});
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.after < b.after; });
  if (arrivals.size() > kRememberedArrivals) {
    arrivals.erase(arrivals.begin(), arrivals.end() - kRememberedArrivals);
  }
  return arrivals;
}

// Infinite if this aggregator has received none, because it has adopted the value.
absl::Time FirstArrival(const Round& round) {
  absl::Time first = absl::InfiniteFuture();
  for (const RoundMember& member : round.members()) {
    if (member.contribution.effective()) first = std::min(first, member.contribution.arrived());
  }
  return first;
}

// Returns whether the member has a part in the committed work: its contribution, or that of its
// node. Where contributions name samples, one that names none adds no work.
bool HasPart(const RoundMember& member, const RoundValue& value) {
  if (value.outcome != Outcome::kCommitted) return false;
  if (member.carried) return true;
  return member.contribution.effective() &&
         (!value.samples.has_value() || member.contribution.begin().sample_epoch.has_value());
}

}  // namespace

RoundSummary Summarize(const Layout& layout, const Round& round, const VerdictRecord& record,
                       absl::Time now) {
  RoundSummary summary;
  summary.round = record.round;
  summary.outcome = record.value.outcome;
  summary.opened = round.opened;
  summary.took = now - round.opened;
  if (record.value.outcome != Outcome::kCommitted) return summary;
  summary.contributors = TrainersOf(record.value);
  summary.world_size = record.value.world_size;
  summary.norm = NormsOf(layout, record.value).all;
  summary.batch = record.value.facts.totals;
  summary.late = record.value.late;
  for (const Contributor& contributor : record.value.contributors) {
    if (contributor.deferred > 0) summary.deferred.push_back(contributor.worker);
  }
  summary.arrivals = ArrivalsOf(round);
  if (!summary.arrivals.empty()) summary.first = FirstArrival(round) - round.opened;
  const Straggler& last = round.straggler;
  if (last.waited()) {
    summary.gathered = last.since - round.opened;
    summary.waited_for = last.worker;
    summary.waited = last.until - last.since;
    summary.owed = round.last_owes;
  } else if (last.until != absl::InfinitePast()) {  // It was the only one.
    summary.gathered = last.until - round.opened;
  }
  return summary;
}

RoundTimes TimesOf(const Round& round, const VerdictRecord& record, absl::Time now) {
  RoundTimes times;
  times.verdict = now;
  times.parts.reserve(round.members().size());
  for (const RoundMember& member : round.members()) {
    times.parts.push_back({member.slot, member.alive(), HasPart(member, record.value),
                           member.contribution.first_arrived()});
    if (member.contribution.arrived() <= times.last_at) continue;
    times.last_at = member.contribution.arrived();
    times.last = member.id;
  }
  return times;
}

RoundTimes TimesSoFar(const Round& round, absl::Time now) {
  const bool prepared = round.phase() == RoundPhase::kPrepared;
  RoundTimes times;
  times.verdict = now;
  size_t awaited = 0;
  for (const RoundMember& member : round.members()) {
    const bool counted =
        prepared ? HasPart(member, round.value) : member.contribution.effective() || member.carried;
    if (counted) {
      times.parts.push_back(
          {member.slot, member.alive(), true, member.contribution.first_arrived()});
    }
    if (!prepared && member.contribution.incomplete()) {
      times.last_at = absl::InfiniteFuture();
      times.last = ++awaited == 1 ? member.id : "";
    } else if (member.contribution.arrived() > times.last_at) {
      times.last_at = member.contribution.arrived();
      times.last = member.id;
    }
  }
  return times;
}

ResultNorms NormsOf(const Layout& layout, const RoundValue& value) {
  ResultNorms norms;
  const std::vector<uint64_t> divisors = DivisorsOf(value);
  norms.tensors.resize(layout.version());
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    const bool exists = tensor < divisors.size() && divisors[tensor] != 0 &&
                        tensor < value.facts.tensor_squared_norms.size() &&
                        IsFloatingPoint(layout.tensors()[tensor].dtype);
    if (!exists) continue;
    norms.tensors[tensor] = std::sqrt(value.facts.tensor_squared_norms[tensor]);
    norms.all = std::sqrt(value.facts.squared_norm);
  }
  return norms;
}

}  // namespace basin::aggregator
