// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The local group of one process: its core, the connections with the other ranks of the node, and
// the communicator of the present group. The trainer asks for TURNS: permission to reduce its next
// round in one communicator. When a rank is lost in the middle of a turn, the communicator fails,
// and the trainer asks for the next turn of the same round.
//
// Failure: a group that ends by itself is the status of every later call; what the statuses mean is
// said in client/group/core/local_group.h.
//
// Threads: one runs the core and the connections, and one makes communicators, which may take long,
// ends them, and waits for results that are supplied. Thread contract: safe from any thread; one
// thread at a time asks for turns.

#ifndef BASIN_CLIENT_GROUP_RUNNER_RUNNER_H_
#define BASIN_CLIENT_GROUP_RUNNER_RUNNER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/group/core/local_group.h"
#include "client/group/links/links.h"
#include "client/group/nccl/communicator.h"
#include "runtime/mutex.h"

namespace basin::client::group {

using SteadyTime = std::chrono::steady_clock::time_point;
using CommunicatorPtr = std::shared_ptr<nccl::Communicator>;

struct Turn {
  Epoch epoch;
  GroupRound round = 0;
  std::vector<GroupMember> members;  // In the order of their places.
  LocalRank leader = 0;
  // Absent: the round is to be reduced. Otherwise this rank has its result, and broadcasts it.
  std::optional<LocalRank> supplier;
  bool declined = false;  // With a supplier: the round has no result; see RoundEnded.
  CommunicatorPtr communicator;
};

struct RunnerOptions {
  GroupConfig config;
  std::string directory;  // For the sockets of the ranks.
  // The id of a new communicator; may wait, for a limited time.
  std::function<absl::StatusOr<std::string>()> make_id;
  // Starts a communicator, and does not wait until it has formed.
  std::function<absl::StatusOr<CommunicatorPtr>(const FormCommunicator&)> start;
  // Gives the turn's communicator the broadcast of its round's result by turn.supplier, and does
  // not wait for it. This rank has the result, or has joined since and drops what arrives.
  // REQUIRES: the memory stays until the work has ended. Called on the thread of the core, before a
  // turn of a later round is given; the result is where it is looked for before End is called for
  // its round.
  std::function<nccl::Communicator::Work(const Turn&)> supply;
};

class Runner {
 public:
  // Begins to gather the ranks of the node.
  static absl::StatusOr<std::unique_ptr<Runner>> Start(RunnerOptions options);
  // Leaves the group. REQUIRES: no call waits.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Begins a round, unless one is open, and waits for a turn that was not returned before. Returns
  // nothing if there is none at the time `until`.
  absl::StatusOr<std::optional<Turn>> NextTurn(SteadyTime until);
  absl::StatusOr<Turn> NextTurn();
  // The turn's result is here, or the round was declined and has none. Returns whether the round
  // has ended; if not, the group has lost a rank meanwhile, and there is another turn.
  bool End(const Turn& turn, bool declined = false);
  // The turn's communicator has failed.
  void Fail(const Turn& turn, const absl::Status& why);

 private:
  // Something for the second thread.
  using Job = std::function<void()>;

  Runner(RunnerOptions options, std::unique_ptr<Links> links);

  void RunCore();
  void RunJobs();
  void Step(const Event& event);
  // Gives the core an event. Returns its number.
  uint64_t Post(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddJob(Job job) ABSL_LOCKS_EXCLUDED(mutex_);

  // One for each action.
  void Carry(const Send& send);
  void Carry(const Refuse& refuse);
  void Carry(const MakeUniqueId& make);
  void Carry(const FormCommunicator& form);
  void Carry(const AbortCommunicator& abort);
  void Carry(const GroupReady& ready);
  void Carry(const ReduceRound& reduce);
  void Carry(const SupplyRound& supply);
  void Carry(const TakeRound& take);
  void Carry(const GroupFailed& failed);
  void Carry(const LeftGroup& left);
  void Form(const FormCommunicator& form);
  // A turn in the present communicator.
  Turn MakeTurn(GroupRound round, std::optional<LocalRank> supplier) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveTurn(Turn turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  uint64_t posts_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;  // How many posted events the core has taken.
  GroupRound ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
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

}  // namespace basin::client::group

#endif  // BASIN_CLIENT_GROUP_RUNNER_RUNNER_H_
