// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/status_view.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/admin/shards_view.h"
#include "aggregator/admin/view.h"
#include "aggregator/core/round_summary.h"
#include "aggregator/telemetry/ask.h"

namespace basin::aggregator {
namespace {

// Only events of known jobs, for which alone the metrics have series too: a peer that is refused
// can invent names.
std::vector<v1::Event> EventsOf(const EventHistory& history, const std::vector<v1::JobStatus>& jobs,
                                Term term, absl::Time now) {
  std::set<std::string> known;
  for (const v1::JobStatus& job : jobs) known.insert(job.job());
  std::vector<v1::Event> events;
  for (const RememberedEvent& event : history.Notable()) {
    if (event.note.job.empty() || known.count(event.note.job) > 0) {
      events.push_back(ViewOf(event, term, now));
    }
  }
  return events;
}

}  // namespace

bool IsHeldUp(v1::JobState state) {
  return state != v1::JOB_STATE_RUNNING && state != v1::JOB_STATE_DRAINING &&
         state != v1::JOB_STATE_FINISHED;
}

std::optional<StatusView> LookForStatus(Engine& engine, const EventHistory& events,
                                        std::chrono::milliseconds timeout) {
  struct Overview {
    v1::ServiceStatus service;
    v1::ListJobsResponse jobs;
    v1::ListShardsResponse shards;
    Term term = 0;
    absl::Time now;
  };
  std::optional<Overview> overview =
      Ask<Overview>(engine, timeout, [](const Runner& runner, absl::Time now) {
        const Coordinator& core = runner.core();
        return Overview{ViewOf(core), JobsOf(core, core.Lived(now)), ShardsOf(runner, now),
                        core.config().term, now};
      });
  if (!overview.has_value()) return std::nullopt;
  StatusView view;
  view.service = std::move(overview->service);
  view.jobs.assign(overview->jobs.jobs().begin(), overview->jobs.jobs().end());
  std::stable_partition(view.jobs.begin(), view.jobs.end(),
                        [](const v1::JobStatus& job) { return IsHeldUp(job.state()); });
  view.shards = std::move(overview->shards);
  view.events = EventsOf(events, view.jobs, overview->term, overview->now);
  // One question for each, so that none holds the loop for long.
  for (size_t i = 0; i < view.jobs.size() && i < kMostJobsInDetail; ++i) {
    const std::string name = view.jobs[i].job();
    std::optional<JobDetails> details =
        Ask<JobDetails>(engine, timeout, [name](const Runner& runner, absl::Time now) {
          JobDetails found;
          const Job* job = runner.core().FindJob(name);
          if (job == nullptr) return found;  // It has ended meanwhile.
          const absl::Time lived = runner.core().Lived(now);
          found.job = ViewOf(*job, runner.core(), lived);
          found.members = MembersOf(*job, lived);
          found.rounds = RoundsOf(*job, "", kRememberedRounds, lived);
          return found;
        });
    if (!details.has_value()) return std::nullopt;
    if (!details->job.job().empty()) view.details.push_back(*std::move(details));
  }
  return view;
}

}  // namespace basin::aggregator
