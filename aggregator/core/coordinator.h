// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The decisions of the aggregator, in terms of sessions, as one pure state machine: events in,
// actions out. Delivery (delivery.h) adds the data streams.
//
// Step has no side effect but its output: no clock, I/O, lock, thread, randomness or hash-order
// dependence, so that the same events at the same times give the same actions, in a server, in a
// simulation and in a replay. The state is a value: it can be copied, compared and fingerprinted.
//
// Thread contract: none of its own; one thread calls it. It never blocks. Failure: what a peer does
// wrong is answered to that peer (Rejected, EndSession) and noted; what only the runner can do
// wrong (an unknown session, a ReduceDone without its Reduce) is ignored.

#ifndef BASIN_AGGREGATOR_CORE_COORDINATOR_H_
#define BASIN_AGGREGATOR_CORE_COORDINATOR_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/deadlines.h"
#include "aggregator/core/event.h"
#include "aggregator/core/job.h"
#include "protocol/fingerprint.h"

namespace basin::aggregator {

class Coordinator {
 public:
  // REQUIRES: config.frame_bytes is a positive multiple of kChunkBytes.
  Coordinator(Config config, absl::Time start);

  // Takes one event. Appends what is to be done to `actions`, in order.
  // REQUIRES: `now` does not go back.
  void Step(const Event& event, absl::Time now, std::vector<Action>& actions);

  // When Step(Tick) must be called at the latest; InfiniteFuture when nothing waits.
  absl::Time NextDeadline() const;

  // The time as jobs, workers and rounds know it: without the gaps in which this process did not
  // run. Every absolute time below a job is of this clock.
  absl::Time Lived(absl::Time now) const { return std::max(lived_, now - stalled_); }

  // For status, tests and checkers.
  const Job* FindJob(const JobName& name) const;
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  // The job of an open session, once its hello has arrived.
  std::optional<JobId> JobOf(SessionId session) const;
  uint64_t reserved_bytes() const { return memory_.reserved; }
  const Config& config() const { return config_; }
  bool draining() const { return draining_; }

  // Everything that later steps depend on, except the constant config; and except deadlines_, which
  // follows from the jobs but for how early it wakes them, and waking early changes nothing.
  auto Fields() const {
    return std::tie(started_, lived_, stalled_, memory_, next_job_, jobs_, by_name_, saved_,
                    sessions_, draining_, drain_until_, drained_);
  }

 private:
  // The outcome of an event: the job that it is about, and whether it may start a wait that is
  // shorter than the usual ones.
  struct About {
    std::optional<JobId> job;
    bool hurries = true;
  };
  About Apply(const Event& event, const JobScope& scope);
  std::optional<JobId> OnHello(SessionId session, const Hello& hello, const JobScope& scope);
  void CheckDeadlines(const JobScope& scope);
  void Forget(const JobScope& scope, std::map<JobId, Job>::iterator entry, const std::string& why);
  bool ForgetUnstarted(const JobScope& scope);
  void DropCached(const JobScope& scope);
  void Drain(const JobScope& scope);
  void CheckDrained(const JobScope& scope);
  void Refuse(const JobScope& scope, SessionId session, const Hello& hello, ErrorCode code,
              const std::string& text);
  // Runs take(job, slot) for the worker that the session belongs to. Ignores what comes on a
  // session that has ended, or whose hello waits.
  template <typename F>
  std::optional<JobId> WithWorker(const JobScope& scope, SessionId session, F&& take);
  void SetDeadline(const Job& job, absl::Time now);

  template <typename F>
  std::optional<JobId> WithJob(const JobScope& scope, const JobName& name, F&& take);
  template <typename F>
  std::optional<JobId> WithJob(const JobScope& scope, JobId id, F&& take);

  // Constant after construction.
  Config config_;
  absl::Time started_;
  absl::Duration shortest_wait_;  // The shortest that a message or frame can start.

  absl::Time lived_;        // At the last step.
  absl::Duration stalled_;  // In all.
  Deadlines deadlines_;
  MemoryBudget memory_;
  JobId next_job_ = 0;
  std::map<JobId, Job> jobs_;
  std::map<JobName, JobId> by_name_;
  // The lists in the state file of jobs that no worker has joined yet; each job takes its own once.
  std::map<JobName, SavedState> saved_;
  Sessions sessions_;
  bool draining_ = false;
  bool drained_ = false;
  absl::Time drain_until_ = absl::InfiniteFuture();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_COORDINATOR_H_
