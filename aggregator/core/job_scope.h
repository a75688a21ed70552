// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the decisions of a job see besides the job itself, and how they speak to its workers.
//
// Thread contract: plain values. A function of a Job with a JobScope changes the job, appends
// actions, and has no other effect.

#ifndef BASIN_AGGREGATOR_CORE_JOB_SCOPE_H_
#define BASIN_AGGREGATOR_CORE_JOB_SCOPE_H_

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/event.h"
#include "aggregator/core/job.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/round_scope.h"
#include "aggregator/core/shards.h"

namespace basin::aggregator {

// An open session, and the job and worker that it belongs to.
struct Session {
  SessionToken token = 0;
  std::optional<JobId> job;  // Known once the hello has arrived.
  std::optional<Slot> slot;  // Known once the job has welcomed it.
  // The lanes of which the session has received the whole layout in answer to a registration. From
  // then on it receives every addition, so no later answer repeats the layout.
  absl::btree_set<LaneIndex> laid_out;
  std::string address;  // See SessionOpened.
  auto Fields() const { return std::tie(token, job, slot, laid_out, address); }
};

// Every frame looks its session up, and a B-tree has few, wide nodes. The order is that of the ids.
using Sessions = absl::btree_map<SessionId, Session>;

// A job sees this of its surroundings during one Step.
struct JobScope {
  absl::Time now;
  const Config& config;
  MemoryBudget& memory;
  std::vector<Action>& actions;
  Sessions& sessions;
  const Shards& shards;
  absl::Time started;  // When this aggregator began to listen.
  bool draining;       // The service drains: it opens no round and admits nobody.
};

// What a round of the job sees, and what its blobs see.
RoundScope ScopeOf(const Job& job, const JobScope& scope, LaneIndex index);
BlobScope BlobScopeOf(const Job& job, const JobScope& scope);

// Runs take(round, scope of the round) for every open round in which the worker is a live member.
template <typename F>
void ForRoundsOf(Job& job, const JobScope& scope, Slot slot, F&& take) {
  for (Lane& lane : job.lanes) {
    std::optional<Round>& round = lane.round;
    if (round.has_value() && round->Has(slot)) take(*round, ScopeOf(job, scope, lane.index));
  }
}

// The caller may complete the note before it adds another action.
Note& AddNote(const Job& job, const JobScope& scope, NoteKind kind, const WorkerId& worker,
              const std::string& text);
void SendTo(const Job& job, const JobScope& scope, Slot slot, ToWorker message);
// Sends to all connected workers except one. The message is serialized once.
void SendToAll(const Job& job, const JobScope& scope, ToWorker message,
               std::optional<Slot> except = std::nullopt);
// Refuses what a worker sent.
void Reject(const Job& job, const JobScope& scope, Slot slot, Rejected rejected);
void RejectMessage(const Job& job, const JobScope& scope, Slot slot, ErrorCode code,
                   const std::string& text, std::optional<LaneIndex> lane = std::nullopt,
                   RoundNumber round = 0);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_SCOPE_H_
