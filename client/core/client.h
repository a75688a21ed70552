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
// frames, and settlement.h for results, staging and verdicts; blobs.h moves blobs.
// client_state.h has all of them, and what concerns the worker as a whole: its identity, what it is
// in the job, how it ends. client_calls.h, client_message.h, client_view.h and client_session.h
// decide about that. This class routes events.
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

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/blobs.h"
#include "client/core/client_state.h"
#include "client/core/client_view.h"
#include "client/core/config.h"
#include "client/core/event.h"
#include "client/core/lane.h"
#include "client/core/session.h"
#include "protocol/fingerprint.h"

namespace basin::client {

class Client {
 public:
  explicit Client(Config config) : state_(std::move(config)) {}

  // Handles one event and appends the resulting actions to `actions`, in order. The first event of
  // any kind opens the session. REQUIRES: `now` does not decrease.
  void Step(const Event& event, absl::Time now, std::vector<Action>& actions);

  // When Step(Tick) must be called at the latest; InfiniteFuture when nothing waits, InfinitePast
  // before the first Step.
  absl::Time NextDeadline() const;

  // For status, tests and checkers.
  const Config& config() const { return state_.config; }
  const Session& session() const { return state_.session; }
  bool connected() const { return state_.session.welcomed(); }
  const Placements& placements() const { return state_.placements; }
  const LaneMap& lanes() const { return state_.lanes.all(); }
  const Lane* FindLane(const std::string& name) const { return state_.lanes.Named(name); }
  const Blobs& blobs() const { return state_.blobs; }
  const RunId& run() const { return state_.identity.run; }
  Incarnation incarnation() const { return state_.identity.incarnation; }
  const Membership& membership() const { return state_.in_job.membership; }
  Role role() const { return state_.in_job.role; }
  std::optional<uint32_t> rank() const { return Rank(state_); }
  // It was welcomed in this incarnation, or in one before that it has not lost.
  bool was_welcomed() const { return WasWelcomed(state_); }
  // The rank of a worker that is not a member, if it became one now. The members may change before
  // it does. Absent while the job waits for this worker, and unless it was welcomed.
  std::optional<ExpectedRank> expected() const { return Expected(state_); }
  // It was a member in this incarnation, so its hello has a history.
  bool has_history() const { return state_.in_job.has_history; }
  // It was a member, and is not ready to be one again.
  bool evicted() const { return state_.in_job.evicted; }
  bool draining() const { return state_.in_job.draining; }
  bool finished() const { return state_.departure.finished; }
  bool will_leave() const { return state_.departure.will_leave; }
  bool left() const { return state_.departure.left; }
  const std::optional<Error>& fatal() const { return state_.departure.fatal; }
  // Why the worker is not in session, or was not the last time.
  const Error& trouble() const { return state_.session.trouble(); }

  // The whole state; the config is constant and not part of it.
  auto Fields() const { return std::tie(state_); }

 private:
  ClientState state_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_H_
