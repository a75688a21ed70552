// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The decisions of the aggregator about sessions and jobs, as one pure state machine: it takes
// events and returns actions. Delivery (delivery.h) adds the data streams.
//
// Step depends on nothing but its input: no clock, I/O, lock, thread, randomness or hash order. The
// same events at the same times therefore give the same actions in a server, a simulation and a
// replay. The state is a value: it can be copied, compared and fingerprinted.
//
// Thread contract: one thread calls it, and it never blocks. Failures: a peer that makes a mistake
// receives the answer (Rejected, EndSession), and a note records it. The coordinator ignores
// mistakes that only the runner can make (an unknown session, a ReduceDone without its Reduce).

#ifndef BASIN_AGGREGATOR_CORE_COORDINATOR_H_
#define BASIN_AGGREGATOR_CORE_COORDINATOR_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/deadlines.h"
#include "aggregator/core/event.h"
#include "aggregator/core/job_scope.h"
#include "aggregator/core/shards.h"
#include "protocol/fingerprint.h"

namespace basin::aggregator {

// "vision" of the job "vision/resnet": by their names, jobs belong to teams. Empty: to none.
std::string_view TeamOf(std::string_view job);

class Coordinator {
 public:
  // REQUIRES: config.frame_bytes is a positive multiple of kChunkBytes.
  Coordinator(Config config, absl::Time start);

  // Takes one input and appends the resulting actions to `actions`, in order.
  // REQUIRES: `now` does not go back.
  void Step(const Input& input, absl::Time now, std::vector<Action>& actions);
  void Step(const SessionLost& lost, absl::Time now, std::vector<Action>& actions);

  // Returns when Step(Tick) must be called at the latest; InfiniteFuture if nothing waits.
  absl::Time NextDeadline() const;

  // The time as jobs, workers and rounds count it, without the gaps in which this process did not
  // run. Every absolute time in a job is of this clock.
  absl::Time Lived(absl::Time now) const { return std::max(lived_, now - stalled_); }

  // For status, tests and checkers.
  const Job* FindJob(const JobName& name) const;
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  // REQUIRES: `team` is not empty.
  size_t JobsOfTeam(std::string_view team) const;
  // The job of an open session; known once its hello has arrived.
  std::optional<JobId> JobOf(SessionId session) const;
  uint64_t reserved_bytes() const { return memory_.reserved; }
  // What lanes may use at most at each shard.
  uint64_t window_bytes() const { return memory_.windows; }
  const Config& config() const { return config_; }
  bool draining() const { return draining_; }
  const Shards& shards() const { return shards_; }

  // Everything that later steps depend on, except the constant config and deadlines_. The latter
  // follows from the jobs, apart from how early it wakes them, and waking early changes nothing.
  auto Fields() const {
    return std::tie(started_, lived_, stalled_, memory_, next_job_, jobs_, by_name_, saved_,
                    sessions_, shards_, shards_draining_, shards_due_, draining_, keeps_sessions_,
                    drain_until_, drained_);
  }

 private:
  // Apply reports the job of an input, and whether the input may start a wait that is shorter than
  // ShortestWait().
  struct About {
    std::optional<JobId> job;
    bool hurries = true;
  };
  About Apply(const Input& input, const JobScope& scope);
  About Apply(const SessionLost& lost, const JobScope& scope);
  template <typename In>
  void Take(const In& input, absl::Time now, std::vector<Action>& actions);
  std::optional<JobId> OnHello(SessionId session, const Hello& hello, const JobScope& scope);
  void CheckDeadlines(const JobScope& scope);
  void Forget(const JobScope& scope, std::map<JobId, Job>::iterator entry, const std::string& why);
  // Whether there is room for a job of this name, made if need be; if not, `why` is a sentence.
  bool HasRoom(const JobScope& scope, const JobName& name, std::string& why);
  // `team`: removes only a job of this team; empty: of any. `bound`: why, for the text.
  bool MakeRoom(const JobScope& scope, std::string_view team, const std::string& bound);
  void DropCached(const JobScope& scope);
  void Drain(const DrainService& drain, const JobScope& scope);
  void CheckDrained(const JobScope& scope);
  About DrainShard(ShardId shard, const JobScope& scope);
  About LoseShard(const ShardLost& lost, const JobScope& scope);
  // Jobs go on without the shards that are too small for the windows of all lanes, and use them
  // again when the windows take half of that.
  void ReviewShardMemory(const JobScope& scope);
  // Why the shard is too small for what lanes may need there; empty: it is not.
  std::string WhyTooSmall(const Shard& shard) const;
  // Releases those that drain and that no round needs any more.
  void CheckShardsThatDrain(const JobScope& scope);
  // Whether this many other sessions from the address of `session` have sent a hello.
  bool IsCrowded(SessionId session) const;
  void Refuse(const JobScope& scope, NoteKind kind, SessionId session, const Hello& hello,
              ErrorCode code, const std::string& text);
  // Runs take(job, slot) for the worker of the session. Ignores events of a session that has ended
  // or whose hello the job holds.
  template <typename F>
  std::optional<JobId> WithWorker(const JobScope& scope, SessionId session, F&& take);
  void SetDeadline(const Job& job, absl::Time now);
  // The shortest wait that a frame or ordinary message may start in the job.
  absl::Duration ShortestWait(const Job& job) const;

  template <typename F>
  std::optional<JobId> WithJob(const JobScope& scope, const JobName& name, F&& take);
  template <typename F>
  std::optional<JobId> WithJob(const JobScope& scope, JobId id, F&& take);
  template <typename F>
  void WithAllJobs(const JobScope& scope, F&& take);

  // Constant after construction.
  Config config_;
  absl::Time started_;
  absl::Duration shortest_wait_;  // Likewise, in a job that leaves out nobody who is late.

  absl::Time lived_;        // The lived time of the last step.
  absl::Duration stalled_;  // The sum of all stalls.
  Deadlines deadlines_;
  MemoryBudget memory_;
  JobId next_job_ = 0;
  std::map<JobId, Job> jobs_;
  std::map<JobName, JobId> by_name_;
  // The lists in the state file of jobs that have not come yet; each job takes its own once.
  std::map<JobName, SavedState> saved_;
  Sessions sessions_;
  Shards shards_;
  uint32_t shards_draining_ = 0;                    // How many of them drain.
  absl::Time shards_due_ = absl::InfiniteFuture();  // Then lanes that rest leave these.
  bool draining_ = false;
  bool keeps_sessions_ = false;  // After the drain.
  bool drained_ = false;
  absl::Time drain_until_ = absl::InfiniteFuture();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_COORDINATOR_H_
