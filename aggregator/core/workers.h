// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The workers of one job: their ids, their connections, and their states in the job.
//
// The table below has the states and the transitions between them; Job makes the decisions.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_WORKERS_H_
#define BASIN_AGGREGATOR_CORE_WORKERS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "aggregator/core/event.h"
#include "aggregator/core/join_guard.h"
#include "protocol/ids.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

// The position of a worker in its job's table; it does not change while anything refers to it.
using Slot = uint32_t;

enum class WorkerState : uint8_t {
  kAdmitted = 0,   // The job has accepted its hello.
  kCandidate = 1,  // It is ready and becomes a member at the next boundary.
  kSpare = 2,      // It is ready, but the job is full.
  kMember = 3,     // It is in the current generation.
  kFinished = 4,   // It has run out of data; it counts for min_workers.
  kLost = 5,
};

const char* WorkerStateName(WorkerState state);

enum class WorkerInput : uint8_t {
  kAdmit = 0,       // Its process sent a hello in a new life.
  kRecover = 1,     // The recovery found that it remembers the run and is current.
  kReady = 2,       // It is ready, and the job has room.
  kFindFull = 3,    // It is ready, but the job has max_workers.
  kChoose = 4,      // The next generation (genesis, a boundary, a pause) includes it.
  kLeaveOut = 5,    // The next generation leaves it out because it drains.
  kFinish = 6,      // The next generation leaves it out because it has run out of data.
  kNewLineage = 7,  // No worker that holds the state is left.
  kLose = 8,        // It was silent, evicted or superseded, or it left or exited.
};

struct WorkerTransition {
  WorkerState from;
  WorkerInput input;
  WorkerState to;
  const char* when;
};

inline constexpr WorkerTransition kWorkerTransitions[] = {
    // from                   input                   to
    {WorkerState::kLost, WorkerInput::kAdmit, WorkerState::kAdmitted,
     "a hello of a new worker or in a new life"},
    {WorkerState::kLost, WorkerInput::kRecover, WorkerState::kMember,
     "recovery finds that it remembers the run and is current"},

    {WorkerState::kAdmitted, WorkerInput::kAdmit, WorkerState::kAdmitted,
     "a hello in a new life before it was ready"},
    {WorkerState::kAdmitted, WorkerInput::kReady, WorkerState::kCandidate, "it is ready"},
    {WorkerState::kAdmitted, WorkerInput::kFindFull, WorkerState::kSpare,
     "it is ready, and the job has max_workers"},
    {WorkerState::kAdmitted, WorkerInput::kLose, WorkerState::kLost, "lost"},

    {WorkerState::kCandidate, WorkerInput::kChoose, WorkerState::kMember,
     "genesis, a verdict at a boundary, a pause"},
    {WorkerState::kCandidate, WorkerInput::kLose, WorkerState::kLost, "lost"},

    {WorkerState::kSpare, WorkerInput::kChoose, WorkerState::kMember,
     "the same, after another worker has gone"},
    {WorkerState::kSpare, WorkerInput::kLose, WorkerState::kLost, "lost"},

    {WorkerState::kMember, WorkerInput::kChoose, WorkerState::kMember, "the next generation"},
    {WorkerState::kMember, WorkerInput::kLeaveOut, WorkerState::kAdmitted,
     "the next generation leaves it out because it drains"},
    {WorkerState::kMember, WorkerInput::kFinish, WorkerState::kFinished,
     "the next generation leaves it out because it has run out of data"},
    {WorkerState::kMember, WorkerInput::kLose, WorkerState::kLost, "lost"},

    {WorkerState::kFinished, WorkerInput::kNewLineage, WorkerState::kAdmitted,
     "a new lineage begins"},
    {WorkerState::kFinished, WorkerInput::kLose, WorkerState::kLost, "lost"},
};
static_assert(IsUnambiguous(kWorkerTransitions));

// A shard that a worker cannot reach.
struct Unreachable {
  absl::Time since;
  std::string why;  // "it cannot reach shard b at host:29600: ..."
  auto Fields() const { return std::tie(since, why); }
};

struct Worker {
  WorkerId id;
  Nonce nonce = 0;
  Incarnation incarnation;
  WorkerState state = WorkerState::kLost;
  bool draining = false;     // No later generation includes this process.
  bool holds_state = false;  // It is a member that can send the job's state to another.
  // It joined members that go on, and has completed no round since, so its script may be elsewhere.
  bool out_of_step = false;
  bool finishing = false;     // It reported Finished; it takes part in no later round.
  bool still_counts = false;  // It was lost after it had finished; it still counts for min_workers.
  bool left = false;          // It left in good order, so nobody waits for it.
  Generation member_since;    // The generation in which this incarnation became a member, or zero.
  std::optional<SessionId> session;
  absl::Time last_message;  // While connected: when its last message arrived.
  // When the last long silence on this session ended. The silence was the worker's own, longer than
  // Config::silence, or came from a stall of this process.
  absl::Time silent_until = absl::InfinitePast();
  // When the aggregator last knew of a message of it that it had not handled yet.
  absl::Time unread_at = absl::InfinitePast();
  absl::Time lost_at;            // When it counts as lost, while it is disconnected.
  uint32_t frame_tensors = 1;    // The tensors that a frame from or to it may have.
  uint32_t ranks = 1;            // The trainers that it stands for, as it last reported.
  bool knows_ranks = false;      // Its client knows that workers may stand for several trainers.
  bool knows_samples = false;    // Its client knows samples that workers lease.
  bool knows_steps = false;      // Its client knows steps of a global batch.
  bool knows_placement = false;  // Its client knows chunks that are on several shards.
  JoinGroup group;               // The workers with which it joins.
  bool joins_alone = false;      // Some of them did not come in time.
  absl::Time ready_since;        // While it is a candidate or a spare.
  uint64_t ready_order = 0;      // Candidates join in this order.
  uint64_t step_label = 0;
  uint64_t state_hash = 0;
  uint64_t progress = 0;
  std::vector<RoundWait> waits;  // The rounds its trainer waits in, from the last heartbeat.
  absl::Time waits_since;        // When `waits` last changed.
  std::string busy;              // Why the trainer does something else; empty if it does not.
  absl::Time busy_until;
  JoinGuard joins;
  std::string software;  // The versions that it runs, as its hello named them.
  std::string misfit;    // How a registered tensor differs from the job's; empty if none does.
  std::vector<Nonce> superseded;  // Earlier processes with this id.
  bool lets_go = false;           // Its client answers LetGo.
  std::map<ShardId, Unreachable> unreachable;
  // A job has as many of these as it has workers times lanes, so they have no node for each.
  absl::btree_map<LaneIndex, uint32_t> layouts;  // Layout version seen; 0 if it is not here.
  absl::btree_set<LaneIndex> registered;         // Its client ignores other lanes.
  // By lane, the open round that it began before its hello: it may repeat that begin.
  std::map<LaneIndex, RoundNumber> repeats;

  bool connected() const { return session.has_value(); }
  // Returns when the worker counts as lost.
  absl::Time LeaseEnd(absl::Duration lease) const {
    if (state == WorkerState::kLost) return absl::InfiniteFuture();
    return connected() ? last_message + lease : lost_at;
  }
  uint32_t LayoutSeen(LaneIndex lane) const {
    const auto seen = layouts.find(lane);
    return seen == layouts.end() ? 0 : seen->second;
  }
  void SeeLayout(LaneIndex lane, uint32_t version) { layouts[lane] = version; }
  bool HasRegistered(LaneIndex lane) const { return registered.count(lane) > 0; }
  void NoteRegistered(LaneIndex lane) { registered.insert(lane); }
  // The lane is gone.
  void ForgetLane(LaneIndex lane) {
    layouts.erase(lane);
    registered.erase(lane);
    repeats.erase(lane);
  }
  auto Fields() const {
    return std::tie(id, nonce, incarnation, state, draining, holds_state, out_of_step, finishing,
                    still_counts, left, member_since, session, last_message, silent_until,
                    unread_at, lost_at, frame_tensors, ranks, knows_ranks, knows_samples,
                    knows_steps, knows_placement, group, joins_alone, ready_since, ready_order,
                    step_label, state_hash, progress, waits, waits_since, busy, busy_until, joins,
                    software, misfit, superseded, lets_go, unreachable, layouts, registered,
                    repeats);
  }
};

class Workers {
 public:
  Worker& operator[](Slot slot) { return slots_[slot]; }
  const Worker& operator[](Slot slot) const { return slots_[slot]; }
  Slot size() const { return static_cast<Slot>(slots_.size()); }

  std::optional<Slot> Find(const WorkerId& id) const {
    const auto it = by_id_.find(id);
    if (it == by_id_.end()) return std::nullopt;
    return it->second;
  }

  // The new worker is kLost until Apply. REQUIRES: Find(id) has no value.
  Slot Add(const WorkerId& id) {
    const Slot slot = size();
    slots_.emplace_back();
    slots_.back().id = id;
    ++counts_[static_cast<size_t>(slots_.back().state)];
    by_id_.emplace(id, slot);
    return slot;
  }

  // Gives the slot of a lost worker to another id. REQUIRES: nothing refers to the slot any more,
  // and Find(id) has no value.
  void Reuse(Slot slot, const WorkerId& id) {
    by_id_.erase(slots_[slot].id);
    slots_[slot] = Worker{};
    slots_[slot].id = id;
    by_id_.emplace(id, slot);
  }

  // All changes of a state go through here. Returns whether the table has the input in this state;
  // if not, nothing changes.
  bool Apply(Slot slot, WorkerInput input) {
    WorkerState& state = slots_[slot].state;
    const WorkerState before = state;
    if (!ApplyRow(kWorkerTransitions, state, input, taken_)) return false;
    --counts_[static_cast<size_t>(before)];
    ++counts_[static_cast<size_t>(state)];
    return true;
  }
  const RowsTaken& taken() const { return taken_; }
  uint32_t Count(WorkerState state) const { return counts_[static_cast<size_t>(state)]; }

  // The number that min_workers is compared with: living members, and workers that have finished.
  uint32_t Present() const {
    return Count(WorkerState::kMember) + Count(WorkerState::kFinished) + still_counting_;
  }
  // Workers that have finished, including lost ones that still count.
  uint32_t Finished() const { return Count(WorkerState::kFinished) + still_counting_; }
  // Sets whether the worker still counts for min_workers, although it was lost.
  void SetStillCounts(Slot slot, bool counts) {
    still_counting_ += counts;
    still_counting_ -= std::exchange(slots_[slot].still_counts, counts);
  }
  // Lost workers count only as far as min_workers needs them. A joiner may replace a worker that
  // finished and left; if both counted, each such exchange would let the job shrink by one.
  void LimitStillCounting(uint32_t min_workers) {
    const uint32_t here = Count(WorkerState::kMember) + Count(WorkerState::kFinished);
    const uint32_t lacking = min_workers - std::min(min_workers, here);
    for (Slot slot = 0; slot < size() && still_counting_ > lacking; ++slot) {
      SetStillCounts(slot, false);
    }
  }

  // Returns when the next worker counts as lost.
  absl::Time LeaseDue(absl::Duration lease) const {
    absl::Time next = absl::InfiniteFuture();
    for (const Worker& worker : slots_) next = std::min(next, worker.LeaseEnd(lease));
    return next;
  }

  // No two workers of a job get the same incarnation or the same place in the ready order.
  Incarnation NextIncarnation(Term term) { return {term, ++last_incarnation_}; }
  uint64_t NextReadyOrder() { return ++last_ready_order_; }

  // In byte order of the id, which is the order of reduction.
  const std::map<WorkerId, Slot>& by_id() const { return by_id_; }

  // Keeps the counters, so that no number is given twice.
  void Clear() {
    slots_.clear();
    by_id_.clear();
    counts_ = {};
    still_counting_ = 0;
  }

  auto Fields() const { return std::tie(slots_, last_incarnation_, last_ready_order_); }

 private:
  std::vector<Worker> slots_;
  std::array<uint32_t, 6> counts_{};  // By state; derived from slots_.
  uint32_t still_counting_ = 0;       // Workers that still count; derived from slots_.
  uint64_t last_incarnation_ = 0;
  uint64_t last_ready_order_ = 0;
  std::map<WorkerId, Slot> by_id_;
  RowsTaken taken_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_WORKERS_H_
