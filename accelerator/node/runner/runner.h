// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The local group of one process: its core, the connections with the other ranks of the node, and
// the communicator of the present group. The trainer asks for a TURN in each round: permission to
// reduce it in one communicator. The leader reports that it has the sums, and every rank waits for
// what becomes of the round.
//
// Failure: a group that ends by itself is the status of every later call; what the statuses mean is
// said in accelerator/node/core/local_group.h.
//
// Threads: one runs the core and the connections, and one makes communicators, which may take long,
// and ends them. Thread contract: safe from any thread; one thread at a time asks for turns.

#ifndef BASIN_ACCELERATOR_NODE_RUNNER_RUNNER_H_
#define BASIN_ACCELERATOR_NODE_RUNNER_RUNNER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "accelerator/node/core/local_group.h"
#include "accelerator/node/links/links.h"
#include "accelerator/node/nccl/communicator.h"
#include "runtime/mutex.h"

namespace basin::accelerator::node {

using SteadyTime = std::chrono::steady_clock::time_point;
using CommunicatorPtr = std::shared_ptr<nccl::Communicator>;

struct Turn {
  Epoch epoch;
  GroupRound round = 0;
  std::vector<GroupMember> members;  // In the order of their positions.
  LocalRank leader = 0;
  CommunicatorPtr communicator;  // Null: the round was over before, and there are no members.
};

struct RunnerOptions {
  GroupConfig config;
  std::string directory;  // For the sockets of the ranks.
  // The id of a new communicator; may wait, for a limited time.
  std::function<absl::StatusOr<std::string>()> make_id;
  // Starts a communicator, and does not wait until it has formed.
  std::function<absl::StatusOr<CommunicatorPtr>(const FormCommunicator&)> start;
};

class Runner {
 public:
  // Begins to gather the ranks of the node.
  static absl::StatusOr<std::unique_ptr<Runner>> Start(RunnerOptions options);
  // Leaves the group. REQUIRES: no call waits.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Begins a round, unless one is open, and waits for its turn. Returns nothing if there is none at
  // the time `until`. REQUIRES: the turn was not returned before.
  absl::StatusOr<std::optional<Turn>> NextTurn(SteadyTime until);
  absl::StatusOr<Turn> NextTurn();
  // Waits until the round of the open turn is over, which closes the turn: whether it was reduced.
  // If not, each rank contributes for itself. Returns nothing if that is not known at `until`.
  absl::StatusOr<std::optional<bool>> End(SteadyTime until);
  // At the leader of the open turn: the sums are here.
  void Reduced(const Turn& turn);
  // The turn's communicator has failed, ...
  void Fail(const Turn& turn, const absl::Status& why);
  // ... or this rank does not go on in it for a reason of its own. Also for a turn that is closed.
  void GiveUp(const Turn& turn, const std::string& why);

 private:
  // Something for the second thread.
  using Job = std::function<void()>;

  Runner(RunnerOptions options, std::unique_ptr<Links> links);

  void RunCore();
  void RunJobs();
  void Step(const Event& event);
  // Gives the core an event.
  void Post(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddJob(Job job) ABSL_LOCKS_EXCLUDED(mutex_);

  // One for each action.
  void Do(const Send& send);
  void Do(const Refuse& refuse);
  void Do(const MakeUniqueId& make);
  void Do(const FormCommunicator& form);
  void Do(const AbortCommunicator& abort);
  void Do(const GroupReady& ready);
  void Do(const ReduceRound& reduce);
  void Do(const RoundOver& over);
  void Do(const GroupFailed& failed);
  void Do(const LeftGroup& left);
  void Form(const FormCommunicator& form);
  void Finish(absl::Status status);

  const RunnerOptions options_;

  // For the thread that runs the core.
  std::unique_ptr<LocalGroup> core_;
  std::unique_ptr<Links> links_;  // Wake is called by others, with the mutex; null at the end.
  Turn ready_;                    // Members, leader and epoch of the last group that was ready.
  bool over_ = false;

  Mutex mutex_;
  Condition changed_;
  std::vector<Event> posted_ ABSL_GUARDED_BY(mutex_);
  GroupRound round_ ABSL_GUARDED_BY(mutex_) = 0;  // The last one that the trainer has begun.
  bool open_ ABSL_GUARDED_BY(mutex_) = false;     // No event has reported that it is over.
  // Those from `round_` on that are over: whether they were reduced. The trainer is behind by few,
  // because it contributes to the job in between.
  std::map<GroupRound, bool> over_rounds_ ABSL_GUARDED_BY(mutex_);
  std::optional<Turn> turn_ ABSL_GUARDED_BY(mutex_);            // That was not returned yet.
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // The group has ended.
  // The communicator of this epoch is wanted; it is null until it was started.
  std::optional<Epoch> wanted_ ABSL_GUARDED_BY(mutex_);
  CommunicatorPtr communicator_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread core_thread_;
  std::thread job_thread_;
};

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_RUNNER_RUNNER_H_
