// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The client's decisions, all of them, as one pure state machine: events in, actions out. This is
// one worker: its session with the aggregator, its role in the job, its lanes and its blobs.
//
// Step has no side effect but its output: no clock, I/O, lock, thread, randomness or hash-order
// dependence (the jitter of reconnects comes from a generator whose seed is in the config and whose
// state is part of the state). The state is a value: it can be copied, compared and fingerprinted.
//
// How it fits together: session.h connects, sends the hello and reconnects; lane.h is the history
// and the round in flight of one lane, with round.h for the contribution, push.h for the order of
// frames, and settlement.h for results, staging and verdicts; blobs.h moves blobs. This
// class routes events to them and decides what concerns the worker as a whole: its identity,
// whether it is a member of the job, and when its incarnation ends.
//
//   role       when                                                 to         trainer is told
//   ---------  ---------------------------------------------------  ---------  ----------------
//   kJoiner    MembershipChanged: member, with start rounds         kMember    MembershipNow
//   kJoiner    MembershipChanged or Welcome: spare                  kSpare     MembershipNow
//   kSpare     MembershipChanged: member, with start rounds         kMember    MembershipNow
//   kMember    verdict whose next members do not list the worker    kJoiner    MembershipNow
//   any        evicted; welcomed as another incarnation; abandoned; kJoiner    FailRound for each
//              cannot keep level                                               round in flight,
//                                                                              and of a member each
//                                                                              fetch, MembershipNow
//
// Thread contract: none of its own; one thread calls it. It never blocks. Failure: a wrong call of
// the trainer is answered with Refused and changes nothing; a wrong message of the aggregator is
// ignored when it can only be late, else the session is opened anew.

#ifndef BASIN_CLIENT_CORE_CLIENT_H_
#define BASIN_CLIENT_CORE_CLIENT_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/blobs.h"
#include "client/core/config.h"
#include "client/core/event.h"
#include "client/core/lane.h"
#include "client/core/session.h"
#include "protocol/fingerprint.h"

namespace basin::client {

class Client {
 public:
  explicit Client(Config config);

  // Handles one event and appends the resulting actions to `actions`, in order. The first event of
  // any kind opens the session. REQUIRES: `now` does not decrease.
  void Step(const Event& event, absl::Time now, std::vector<Action>& actions);

  // When Step(Tick) must be called at the latest; InfiniteFuture when nothing waits, InfinitePast
  // before the first Step.
  absl::Time NextDeadline() const;

  // For status, tests and checkers.
  const Config& config() const { return config_; }
  const Session& session() const { return session_; }
  bool connected() const { return session_.welcomed(); }
  const std::vector<Lane>& lanes() const { return lanes_; }  // By handle.
  const Lane* FindLane(const std::string& name) const;
  const Blobs& blobs() const { return blobs_; }
  const RunId& run() const { return run_; }
  Incarnation incarnation() const { return incarnation_; }
  const Membership& membership() const { return membership_; }
  Role role() const { return role_; }
  std::optional<uint32_t> rank() const;
  // It was welcomed in this incarnation, or in one before that it has not lost.
  bool was_welcomed() const { return incarnation_ != Incarnation{}; }
  // The rank of a worker that is not a member, if it became one now. The members may change before
  // it does. Absent while the job waits for this worker, and unless it was welcomed.
  std::optional<ExpectedRank> expected() const;
  // It was a member in this incarnation, so its hello has a history.
  bool has_history() const { return has_history_; }
  // It was a member, and is not ready to be one again.
  bool evicted() const { return evicted_; }
  bool draining() const { return draining_; }
  bool finished() const { return finished_; }
  bool will_leave() const { return will_leave_; }
  bool left() const { return left_; }
  const std::optional<Error>& fatal() const { return fatal_; }
  // Why the worker is not in session, or was not the last time.
  const Error& trouble() const { return session_.trouble(); }

  // The whole state; the config is constant and not part of it.
  auto Fields() const {
    return std::tie(session_, lanes_, by_index_, starts_, blobs_, run_, term_, incarnation_,
                    from_start_, job_runs_, max_workers_, membership_, role_, donor_, has_history_,
                    lacks_state_, ready_, saw_members_, evicted_, busy_, draining_, pause_,
                    finished_, abandoned_, will_leave_, leave_by_, leave_forgets_, left_, fatal_,
                    answer_by_, ranks_, local_rank_, grouped_);
  }

 private:
  Scope MakeScope(absl::Time now, std::vector<Action>& actions) {
    return Scope{now,
                 config_,
                 incarnation_,
                 session_.welcomed(),
                 pause_,
                 {session_.frame_chunks(), session_.lists() ? config_.frame_tensors : 1},
                 session_.streams(),
                 actions};
  }

  // client.cc: the trainer's side
  void OnCall(const Scope& scope, const DeclareReady& ready);
  void OnCall(const Scope& scope, const RegisterTensors& request);
  void OnCall(const Scope& scope, const BeginRound& begin);
  template <typename Call>
  void OnCall(const Scope& scope, const Call& call);
  void OnCall(const Scope& scope, const WaitRound& wait);
  void OnCall(const Scope& scope, const AbandonRounds& abandon);
  void OnCall(const Scope& scope, const SetBusy& busy);
  void OnCall(const Scope& scope, const SetRanks& set);
  void OnCall(const Scope& scope, const Progress& progress);
  void OnCall(const Scope& scope, const Finish& finish);
  void OnCall(const Scope& scope, const WillLeave& will);
  void OnCall(const Scope& scope, const LeaveJob& leave);
  void OnCall(const Scope& scope, const AnnounceBlob& announce);
  void OnCall(const Scope& scope, const StopServing& stop);
  void OnCall(const Scope& scope, const GetBlob& get);
  Error WhyNoRanks() const;
  void Refuse(const Scope& scope, Error error) const;
  void ReleaseFromPause(const Scope& scope);
  template <typename F>
  void WithLane(const Scope& scope, LaneHandle handle, F&& call);
  void Tick(const Scope& scope);
  std::vector<RoundWait> Waits(absl::Time now) const;

  // client_session.cc: the session as a whole. After EndSession and its callers, an older scope
  // must not be used to send.
  void OnSessionUp(const Scope& scope);
  void OnSessionDown(const Scope& scope, const std::string& reason);
  void OnStreamUp(const Scope& scope, uint32_t stream);
  void OnStreamDown(const Scope& scope, const StreamDown& down);
  Hello MakeHello() const;
  void OnWelcome(const Scope& scope, const Welcome& welcome);
  void Resume(const Scope& scope, const Welcome& welcome);
  void OnEnded(const Scope& scope, const Error& error);
  void EndSession(const Scope& scope, SessionInput input, Error error);
  // Returns whether the session continues.
  bool OnFinding(const Scope& scope, const Finding& finding);
  void GiveUp(const Scope& scope, const Error& error);
  void LoseIncarnation(const Scope& scope, const Error& error);
  void Stop(const Scope& scope, Error error);
  void FinishLeave(const Scope& scope);

  // client_message.cc: messages within a session
  void OnMessage(const Scope& scope, const ToWorker& message);
  bool OnLayout(const Scope& scope, const LaneLayout& layout);
  bool OnVerdict(const Scope& scope, LaneIndex index, const VerdictRecord& record,
                 const std::optional<WorkerId>& donor, bool late);
  void OnMembership(const Scope& scope, const MembershipChanged& changed);
  void OnRejected(const Scope& scope, const Rejected& rejected);
  void OnPause(const Scope& scope, const std::string& text);
  void SetMembership(const Scope& scope, const Membership& membership, Role role, bool joined,
                     const std::optional<WorkerId>& donor);
  Lane* Find(LaneIndex index);

  Config config_;
  Session session_;
  std::vector<Lane> lanes_;
  std::map<LaneIndex, LaneHandle> by_index_;
  std::map<std::string, StartRound> starts_;  // The starts of lanes that are not registered yet.
  Blobs blobs_;

  RunId run_;
  Term term_ = 0;  // The highest that welcomed this worker.
  Incarnation incarnation_;
  bool from_start_ = false;   // It was welcomed before the run had any members.
  bool job_runs_ = false;     // As of the last welcome: the job goes on without this worker.
  uint32_t max_workers_ = 0;  // Likewise.
  Membership membership_;
  Role role_ = Role::kJoiner;
  std::optional<WorkerId> donor_;  // Came with it.
  bool has_history_ = false;
  bool lacks_state_ = false;  // It joined with a donor, and its trainer has begun no round since.
  std::optional<Ready> ready_;
  bool saw_members_ = false;  // Itself or others: the run is under way, whatever comes later.
  bool evicted_ = false;      // It was a member, and is not ready to be one again.
  std::optional<Busy> busy_;
  bool draining_ = false;
  std::string pause_;  // Why the job is paused, as received in this session.
  bool finished_ = false;
  bool abandoned_ = false;  // incarnation_ is to be given up with the next welcome.
  bool will_leave_ = false;
  std::optional<absl::Time> leave_by_;
  bool leave_forgets_ = false;
  bool left_ = false;
  std::optional<Error> fatal_;
  absl::Time answer_by_ = absl::InfiniteFuture();  // The first answer of an aggregator.
  uint32_t ranks_;                                 // The trainers that it stands for,
  uint32_t local_rank_;                            // and the number of this process among them.
  bool grouped_;  // They have been several, so an aggregator must know of that.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_H_
