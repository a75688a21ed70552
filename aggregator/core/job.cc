// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kRecovering:
      return "RECOVERING";
    case JobState::kHalted:
      return "HALTED";
    case JobState::kForming:
      return "FORMING";
    case JobState::kRunning:
      return "RUNNING";
  }
  return "UNKNOWN";
}

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kAdmitted:
      return "ADMITTED";
    case WorkerState::kCandidate:
      return "READY";
    case WorkerState::kSpare:
      return "SPARE";
    case WorkerState::kMember:
      return "MEMBER";
    case WorkerState::kFinished:
      return "FINISHED";
    case WorkerState::kLost:
      return "LOST";
  }
  return "UNKNOWN";
}

Job::Job(JobId id, JobName name, Term least, std::optional<SavedState> state, absl::Time now)
    : id(id), name(std::move(name)), term(least), evidence(std::move(state)), idle_since(now) {
  if (saved().has_value()) term = std::max(term, saved()->term + 1);
}

bool Job::Unstarted() const {
  return state() == JobState::kForming && membership().generation == Generation{} &&
         workers.Count(WorkerState::kCandidate) == 0;
}

bool Job::Idle() const {
  if (!waiting().empty()) return false;
  return workers.Count(WorkerState::kLost) == workers.size();
}

std::vector<RoundMember> Job::RoundMembers(LaneKind kind) const {
  std::vector<RoundMember> members;
  for (const auto& [id, slot] : workers.by_id()) {
    const Worker& worker = workers[slot];
    if (worker.state != WorkerState::kMember || worker.finishing) continue;
    RoundMember member;
    member.slot = slot;
    member.id = id;
    member.incarnation = worker.incarnation;
    // A round waits for every member. A call may go on without one that is out of step; see
    // LeaveOut.
    const bool may_be_elsewhere = kind == LaneKind::kCall && worker.out_of_step;
    if (may_be_elsewhere)
      member.presence = StateMachine<kPresenceTransitions>(Presence::kUndecided);
    members.push_back(std::move(member));
  }
  return members;
}

bool Job::Knows(const Hello& hello) const {
  const std::optional<Slot> slot = workers.Find(hello.worker);
  return slot.has_value() && workers[*slot].nonce == hello.nonce &&
         workers[*slot].state != WorkerState::kLost;
}

uint64_t Job::description_bytes() const {
  uint64_t room = blobs.cached_bytes();
  for (const Lane& lane : lanes) room += lane.memory.reserved;
  return reserved_bytes() - room;
}

void Job::BeginAnew() {
  const bool was_over = over();
  forming.BeginAnew();
  if (was_over) reason = "waits for workers that can start from their own state";
}

Membership Job::NextMembership(bool admit, bool keep_all) const {
  return generations.Choose(workers, {admit, keep_all, settings().max_workers}, term);
}

std::optional<WorkerId> Job::DonorFor(const Membership& next) const {
  return generations.DonorFor(next, workers, lanes.AnyRoundEver());
}

void Job::Suspend(bool suspends) {
  pause.Suspend(suspends);
  changed = true;
}

bool Job::PausedIn(const Lane& lane) const {
  if (!Paused() || suspended() || !lane.round.has_value()) return Paused();
  uint32_t present = Present();
  for (const RoundMember& member : lane.round->members()) {
    const WorkerState state = workers[member.slot].state;
    const bool counted = state == WorkerState::kMember || state == WorkerState::kFinished;
    present += member.alive() && !counted;
  }
  return present < settings().min_workers;
}

std::string Job::HowLongSet() const {
  return settings_writes.is_saved() ? "until another run begins"
                                    : "until the aggregator restarts or another run begins";
}

void Job::NoteStall(absl::Duration gap, const Config& config, absl::Time now) {
  if (gap <= config.silence()) return;
  for (Slot slot = 0; slot < workers.size(); ++slot) workers[slot].silent_until = now;
}

absl::Time Job::IdleDue(const Config& config) const {
  if (!Idle()) return absl::InfiniteFuture();
  return forget_when_idle ? idle_since : idle_since + config.idle_job_timeout;
}

}  // namespace basin::aggregator
