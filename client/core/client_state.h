// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the core knows of its worker: a record of its parts. The functions of
// client_calls.h, client_message.h, client_view.h and client_session.h change
// it.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_CLIENT_STATE_H_
#define BASIN_CLIENT_CORE_CLIENT_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/blobs.h"
#include "client/core/config.h"
#include "client/core/lanes.h"
#include "client/core/placements.h"
#include "client/core/session.h"

namespace basin::client {

// As which worker of which run it was welcomed.
struct Identity {
  RunId run;
  Term term = 0;  // The highest that welcomed this worker.
  Incarnation incarnation;
  bool from_start = false;  // It was welcomed before the run had any members.
  bool abandoned = false;   // The incarnation is to be given up with the next welcome.

  auto Fields() const { return std::tie(run, term, incarnation, from_start, abandoned); }
};

// The worker that serves the state to those that joined with a generation.
struct Serving {
  WorkerId donor;
  Generation since;
  auto Fields() const { return std::tie(donor, since); }
};

// What it is in its job.
struct InJob {
  Membership membership;
  Role role = Role::kJoiner;
  std::optional<WorkerId> donor;  // Came with it.
  // What its trainer is told only when it has taken the result of a round that went on without it:
  // what it holds until then is the state before that round. See client_view.h.
  std::optional<Serving> serves_later;
  bool has_history = false;  // It was a member in this incarnation.
  bool lacks_state = false;  // It joined with a donor, and its trainer has begun
                             // no round since.
  std::optional<Ready> ready;
  bool saw_members = false;  // Itself or others: the run is under way, whatever comes later.
  bool evicted = false;      // It was a member, and is not ready to be one again.
  bool draining = false;
  bool job_runs = false;     // As of the last welcome: the job goes on without this worker.
  uint32_t max_workers = 0;  // Likewise.

  auto Fields() const {
    return std::tie(membership, role, donor, serves_later, has_history, lacks_state, ready,
                    saw_members, evicted, draining, job_runs, max_workers);
  }
};

// The trainers that it stands for.
struct Ranks {
  uint32_t count = 1;
  uint32_t local = 0;    // The number of this process among them.
  bool grouped = false;  // They have been several, so an aggregator must know of that.

  auto Fields() const { return std::tie(count, local, grouped); }
};

// How it ends.
struct Departure {
  bool finished = false;  // Out of data.
  bool will_leave = false;
  std::optional<absl::Time> leave_by;
  bool forgets = false;  // See Leave.
  bool left = false;
  std::optional<Error> fatal;

  auto Fields() const { return std::tie(finished, will_leave, leave_by, forgets, left, fatal); }
};

struct ClientState {
  explicit ClientState(Config of)
      : config(std::move(of)),
        session(config),
        ranks{config.ranks, config.local_rank, config.ranks > 1} {
    identity.run = config.run;
  }

  Scope MakeScope(absl::Time now, std::vector<Action>& actions) {
    return Scope{now,
                 config,
                 identity.incarnation,
                 session.welcomed(),
                 session.knows_samples(),
                 session.knows_steps(),
                 pause,
                 {session.frame_chunks(), session.lists() ? config.frame_tensors : 1},
                 placements,
                 session.streams(),
                 actions};
  }

  Config config;
  Session session;
  Placements placements;
  Lanes lanes;
  Blobs blobs;
  Identity identity;
  InJob in_job;
  Ranks ranks;
  Departure departure;
  std::optional<Busy> busy;
  std::string pause;  // Why the job is paused, as received in this session.
  absl::Time answer_by = absl::InfiniteFuture();  // The first answer of an aggregator.

  auto Fields() const {
    return std::tie(session, placements, lanes, blobs, identity, in_job, ranks, departure, busy,
                    pause, answer_by);
  }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_STATE_H_
