// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The registered states of a worker: what a member serves to workers that join, and what a joiner
// loads before its first round.
//
// The boundary. A member serves its states when it begins a round, because everything that the last
// outcome has changed is done by then; and during the wait for an outcome to workers that have
// joined meanwhile, because the job was paused. A worker that the verdict of this round admits
// needs the states after it, and is served at the next begin. No outcome can come before each
// joiner has begun, so the states of a boundary are served until then.
//
// The value. All states of a member are one value, so that a joiner gets those of one worker at one
// boundary, or none. Its version is the generation in which the joiners have joined. Its size is
// another value, for which a joiner looks first. Two members serve: the donor, and the first other
// member in case the donor dies.
//
// Ownership: what `get` returns is copied at once. Thread contract: safe from any thread; the
// functions of the states are called one at a time, within calls of this class, and must not call
// it. Failure: typed errors that name the state, the worker and the job.

#ifndef BASIN_CLIENT_TRANSPORT_STATES_H_
#define BASIN_CLIENT_TRANSPORT_STATES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/worker.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::client {

struct State {
  std::string model;  // Compared with that of the other workers.
  std::function<absl::StatusOr<std::string_view>()> get;
  std::function<absl::Status(std::string_view)> set;
};

class States {
 public:
  // REQUIRES: the worker and the clock outlive it.
  States(Worker& worker, const Clock& clock, WorkerId id, const std::string& job);

  // Failure: kInvalidArgument for a name or a model that is not 1 to 256 printable bytes;
  // kFailedPrecondition for a name that is registered, and once the worker has become a member.
  absl::Status Register(const std::string& name, State state);
  // Rounds of a gradient lane begin at a boundary, and those of a call lane anywhere.
  void AddLane(LaneHandle lane, LaneKind kind);
  // Whether there are states that are served in rounds of the lane.
  bool ServedIn(LaneHandle lane) const;

  // Declares that the worker is ready, as DeclareReady. Without a `state_hash` (0) it is that of
  // the states, so that workers that form a job with different ones load those of one of them.
  // Failure: also kFailedPrecondition if a state cannot be got.
  absl::Status Ready(uint64_t step, uint64_t state_hash);
  // As Worker::AwaitMember; the worker then has the states as well. Failure: also kMismatch if the
  // others have other states or models, and kFailedPrecondition if a state cannot be set; the
  // states are then as they were.
  absl::Status AwaitMember(absl::Duration timeout);

  // Before the begin of a round. Failure: kFailedPrecondition if the worker has not loaded the
  // states, has several gradient lanes, or a state could not be got. REQUIRES: ServedIn(lane), as
  // for the rest.
  absl::Status BeforeRound();
  // As Worker::Wait, and serves meanwhile. Failure: also as BeforeRound; the round then continues.
  RoundOutcome Wait(LaneHandle lane, absl::Duration timeout);

 private:
  // A state of another worker, in its value.
  struct Received {
    std::string name;
    std::string model;
    std::string_view content;
  };

  // Serves the states to those who have joined as of the view.
  absl::Status Serve(const JobView& view);
  absl::Status ServeLocked(const JobView& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopServing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsHolder(const JobView& view) const;
  absl::StatusOr<std::string> Pack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<Received>> Unpack(std::string_view packed) const;
  // kUnavailable, kDeadlineExceeded or kDataCorrupt: ask again.
  absl::StatusOr<std::string> Fetch(const JobView& view, absl::Time deadline, WorkerId* source);
  absl::Status Load(std::string_view packed, const WorkerId& source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSame(const std::vector<Received>& received, const WorkerId& source) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What it returns is valid until the next call of a function of the states.
  absl::StatusOr<std::string_view> Get(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Worker& worker_;
  const Clock& clock_;
  const WorkerId id_;
  const std::string who_;  // "Worker a of job j".

  mutable Mutex mutex_;
  std::map<std::string, State> states_ ABSL_GUARDED_BY(mutex_);  // By name.
  std::set<LaneHandle> lanes_ ABSL_GUARDED_BY(mutex_);           // Gradient lanes.
  uint64_t joined_ ABSL_GUARDED_BY(mutex_) = 0;  // The last membership for which it has the states.
  Generation served_ ABSL_GUARDED_BY(mutex_);    // The version that was served last.
  std::string lane_ ABSL_GUARDED_BY(mutex_);     // The lane of that value; empty: none is served.
  std::string value_ ABSL_GUARDED_BY(mutex_);    // The library reads it where it is.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_STATES_H_
