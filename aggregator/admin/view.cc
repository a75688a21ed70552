// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/view.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "aggregator/core/job_goodput.h"
#include "aggregator/core/round_summary.h"
#include "aggregator/core/round_waits.h"
#include "aggregator/core/status.h"
#include "proto/wire/session_types.h"
#include "proto/wire/types.h"

namespace basin::aggregator {
namespace {

v1::JobState StateOf(JobStatus status) {
  switch (status) {
    case JobStatus::kStarting:
      return v1::JOB_STATE_STARTING;
    case JobStatus::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobStatus::kPaused:
      return v1::JOB_STATE_PAUSED;
    case JobStatus::kSuspended:
      return v1::JOB_STATE_SUSPENDED;
    case JobStatus::kDraining:
      return v1::JOB_STATE_DRAINING;
    case JobStatus::kRecovering:
      return v1::JOB_STATE_RECOVERING;
    case JobStatus::kHalted:
      return v1::JOB_STATE_HALTED;
    case JobStatus::kFinished:
      return v1::JOB_STATE_FINISHED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::Role RoleOf(WorkerState state) {
  switch (state) {
    case WorkerState::kMember:
    case WorkerState::kFinished:
      return v1::ROLE_MEMBER;
    case WorkerState::kSpare:
      return v1::ROLE_SPARE;
    default:
      return v1::ROLE_JOINER;
  }
}

v1::MemberStatus MemberOf(const Worker& worker, absl::Time lived) {
  v1::MemberStatus status;
  status.set_worker(worker.id);
  status.set_role(RoleOf(worker.state));
  wire::Encode(worker.incarnation, status.mutable_incarnation());
  status.set_last_seen_ns(Nanoseconds(lived - worker.last_message));
  status.set_progress(worker.progress);
  status.set_connected(worker.connected());
  status.set_ready(worker.state != WorkerState::kAdmitted);
  status.set_finished(worker.finishing || worker.state == WorkerState::kFinished);
  status.set_draining(worker.draining);
  status.set_software(worker.software);
  if (worker.busy_until > lived) status.set_busy(worker.busy);
  return status;
}

std::string WordOf(const Awaited& awaited, const Layout& layout) {
  switch (awaited.what) {
    case Awaited::What::kNothing:
      return "";
    case Awaited::What::kBegin:
    case Awaited::What::kBeginCall:
      return "begin";
    case Awaited::What::kState:
      return "state";
    case Awaited::What::kTensor:
      return layout.tensors()[awaited.tensor].name;
    case Awaited::What::kCommit:
      return "commit";
    case Awaited::What::kResults:
      return "results";
    case Awaited::What::kStage:
      return "staged";
  }
  return "";
}

// Chunks that the member has neither sent nor skipped.
uint32_t MissingChunks(const RoundMember& member, const Layout& layout) {
  uint32_t missing = 0;
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (member.contribution.Skips(tensor)) continue;
    for (uint32_t flat = layout.FirstChunk(tensor); flat < layout.FirstChunk(tensor + 1); ++flat) {
      missing += !member.contribution.Has(flat);
    }
  }
  return missing;
}

// The members that the others have waited for longest come first.
void AddWaiting(const Job& job, const Lane& lane, absl::Time lived, v1::OpenRoundStatus& status) {
  std::vector<std::pair<Awaited, const RoundMember*>> waiting;
  for (const RoundMember& member : lane.round->members()) {
    const Awaited awaited = Awaits(*lane.round, lane.layout, member);
    if (awaited.what != Awaited::What::kNothing) waiting.emplace_back(awaited, &member);
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const auto& a, const auto& b) { return a.first.since < b.first.since; });
  for (const auto& [awaited, member] : waiting) {
    v1::Waiting& entry = *status.add_waiting();
    entry.set_worker(member->id);
    entry.set_what(WordOf(awaited, lane.layout));
    entry.set_waited_ns(Nanoseconds(lived - awaited.since));
    if (const std::optional<Slot> slot = job.workers.Find(member->id); slot.has_value()) {
      entry.set_last_seen_ns(Nanoseconds(lived - job.workers[*slot].last_message));
    }
    if (lane.round->phase() == RoundPhase::kCollect) {
      entry.set_missing_chunks(MissingChunks(*member, lane.layout));
    }
  }
}

void AddOpen(const Job& job, const Lane& lane, absl::Time lived, v1::LaneRounds& rounds) {
  v1::OpenRoundStatus& status = *rounds.mutable_open();
  status.set_round(lane.round->number);
  status.set_phase(static_cast<v1::RoundPhase>(static_cast<int>(lane.round->phase()) + 1));
  wire::Encode(lane.round->ballot, status.mutable_ballot());
  status.set_open_ns(Nanoseconds(lived - lane.round->opened));
  status.set_pull_mode(lane.round->pull_mode());
  for (const RoundMember& member : lane.round->members()) {
    const Begin& begin = member.contribution.begin();
    if (begin.step_label != 0) status.set_step_label(begin.step_label);
  }
  AddWaiting(job, lane, lived, status);
}

void AddPast(const Lane& lane, uint32_t last, v1::LaneRounds& rounds) {
  for (auto record = lane.verdicts.rbegin(); record != lane.verdicts.rend() && last > 0;
       ++record, --last) {
    v1::RoundStatus& status = *rounds.add_past();
    wire::Encode(*record, status.mutable_record());
    for (const RoundSummary& summary : lane.past) {
      if (summary.round != record->round) continue;
      status.set_duration_ns(Nanoseconds(summary.took));
      status.set_waited_for(summary.waited_for);
      status.set_wait_ns(Nanoseconds(summary.waited));
    }
    const std::optional<double> norm = NormsOf(lane.layout, record->value).all;
    if (norm.has_value()) status.set_gradient_norm(*norm);
  }
}

void AddRecent(const Lane& lane, uint32_t last, absl::Time lived, v1::LaneRounds& rounds) {
  for (auto summary = lane.past.rbegin(); summary != lane.past.rend() && last > 0;
       ++summary, --last) {
    v1::RoundSummary& view = *rounds.add_recent();
    view.set_round(summary->round);
    view.set_outcome(wire::EncodeEnum(summary->outcome));
    view.set_contributors(summary->contributors);
    view.set_world_size(summary->world_size);
    view.set_duration_ns(Nanoseconds(summary->took));
    view.set_gather_ns(Nanoseconds(summary->gathered));
    view.set_wait_ns(Nanoseconds(summary->waited));
    view.set_waited_for(summary->waited_for);
    if (summary->norm.has_value()) view.set_gradient_norm(*summary->norm);
    wire::Encode(summary->batch, view.mutable_effective_batch());
    view.set_age_ns(Nanoseconds(lived - summary->opened - summary->took));
    view.set_first_arrival_ns(Nanoseconds(summary->first));
    view.set_owed(WordOf(summary->owed, lane.layout));
    for (const WorkerId& worker : summary->late) view.add_late(worker);
    for (const WorkerId& worker : summary->deferred) view.add_deferred(worker);
    for (const Arrival& arrival : summary->arrivals) {
      v1::Arrival& arrived = *view.add_arrivals();
      arrived.set_worker(arrival.worker);
      arrived.set_after_ns(Nanoseconds(arrival.after));
    }
  }
}

v1::LatePolicy PolicyOf(LatePolicy policy) {
  switch (policy) {
    case LatePolicy::kWait:
      return v1::LATE_POLICY_WAIT;
    case LatePolicy::kEvict:
      return v1::LATE_POLICY_EVICT;
    case LatePolicy::kLeaveOut:
      return v1::LATE_POLICY_LEAVE_OUT;
    case LatePolicy::kCarry:
      return v1::LATE_POLICY_CARRY;
  }
  return v1::LATE_POLICY_UNSPECIFIED;
}

v1::Goodput GoodputOf(const GoodputView& goodput) {
  v1::Goodput view;
  if (goodput.ratio.has_value()) view.set_ratio(*goodput.ratio);
  for (const GoodputView::Use& use : goodput.uses) {
    v1::TimeUse& entry = *view.add_uses();
    entry.set_use(TimeUseName(use.use));
    entry.set_time_ns(Nanoseconds(use.settled + use.open));
    entry.set_open_ns(Nanoseconds(use.open));
  }
  std::vector<std::pair<WorkerId, absl::Duration>> waits(goodput.waited_for.begin(),
                                                         goodput.waited_for.end());
  std::stable_sort(waits.begin(), waits.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [worker, waited] : waits) {
    v1::WaitedFor& entry = *view.add_waited_for();
    entry.set_worker(worker);
    entry.set_time_ns(Nanoseconds(waited));
  }
  return view;
}

}  // namespace

uint64_t Nanoseconds(absl::Duration duration) {
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(std::max(duration, absl::ZeroDuration())));
}

v1::ServiceStatus ViewOf(const Coordinator& core) {
  v1::ServiceStatus status;
  status.set_draining(core.draining());
  status.set_serving(!core.draining());
  status.set_jobs(static_cast<uint32_t>(core.jobs().size()));
  uint32_t workers = 0;
  for (const auto& [id, job] : core.jobs()) {
    workers += job.workers.size() - job.workers.Count(WorkerState::kLost) +
               static_cast<uint32_t>(job.waiting().size());
  }
  status.set_workers(workers);
  status.set_buffer_bytes(core.reserved_bytes());
  status.set_buffer_limit_bytes(core.config().memory_bytes);
  return status;
}

v1::ListJobsResponse JobsOf(const Coordinator& core, absl::Time lived) {
  v1::ListJobsResponse response;
  std::map<JobName, const Job*> by_name;
  for (const auto& [id, job] : core.jobs()) by_name.emplace(job.name, &job);
  for (const auto& [name, job] : by_name) *response.add_jobs() = ViewOf(*job, core, lived);
  return response;
}

v1::JobStatus ViewOf(const Job& job, const Coordinator& core, absl::Time lived) {
  const Config& config = core.config();
  v1::JobStatus status;
  status.set_job(job.name);
  status.set_run(job.run);
  status.set_state(StateOf(StatusOf(job, core.draining())));
  status.set_cause(job.reason);
  wire::Encode(job.membership().generation, status.mutable_generation());
  status.set_members(job.workers.Count(WorkerState::kMember));
  status.set_joiners(job.workers.Count(WorkerState::kAdmitted) +
                     job.workers.Count(WorkerState::kCandidate) +
                     static_cast<uint32_t>(job.waiting().size()));
  status.set_spares(job.workers.Count(WorkerState::kSpare));
  wire::Encode(job.settings(), status.mutable_settings());
  status.set_committed_rounds(job.rounds.committed);
  status.set_aborted_rounds(job.rounds.aborted);
  for (const Lane& lane : job.lanes) {
    if (lane.kind != LaneKind::kGradient || lane.verdicts.empty()) continue;
    const RoundValue& value = lane.verdicts.back().value;
    status.clear_effective_batch();
    if (value.outcome == Outcome::kCommitted) {
      wire::Encode(value.facts.totals, status.mutable_effective_batch());
    }
  }
  status.set_buffer_bytes(job.reserved_bytes());
  *status.mutable_goodput() = GoodputOf(GoodputAsOf(job, config, lived));
  status.set_loss_policy(job.loss_policy(config) == LossPolicy::kAbort ? v1::LOSS_POLICY_ABORT
                                                                       : v1::LOSS_POLICY_SHRINK);
  status.set_late_policy(PolicyOf(job.late_policy(config)));
  return status;
}

v1::ListMembersResponse MembersOf(const Job& job, absl::Time lived) {
  v1::ListMembersResponse response;
  wire::Encode(job.membership().generation, response.mutable_generation());
  const MemberList& members = job.membership().members;
  std::map<WorkerId, size_t> positions;
  std::vector<uint32_t> first_ranks;
  uint32_t next_rank = 0;
  for (size_t position = 0; position < members.size(); ++position) {
    positions.emplace(members[position], position);
    first_ranks.push_back(next_rank);
    next_rank += members.RanksOf(position);
  }
  std::vector<const Worker*> workers;
  for (const auto& [id, slot] : job.workers.by_id()) {
    if (job.workers[slot].state != WorkerState::kLost) workers.push_back(&job.workers[slot]);
  }
  const auto position_of = [&](const Worker& worker) {
    const auto found = positions.find(worker.id);
    return found == positions.end() ? positions.size() : found->second;
  };
  std::stable_sort(workers.begin(), workers.end(), [&](const Worker* a, const Worker* b) {
    return position_of(*a) < position_of(*b);
  });
  for (const Worker* worker : workers) {
    v1::MemberStatus& status = *response.add_members();
    status = MemberOf(*worker, lived);
    const size_t position = position_of(*worker);
    if (position == positions.size()) continue;
    status.set_rank(first_ranks[position]);
    status.set_ranks(members.RanksOf(position));
  }
  for (const auto& [id, session] : job.waiting()) {
    v1::MemberStatus& status = *response.add_members();
    status.set_worker(id);
    status.set_role(v1::ROLE_JOINER);
    status.set_connected(true);
    status.set_recovering(true);
  }
  return response;
}

void AddPeers(const Job& job, const Runner& runner, v1::ListMembersResponse& members) {
  for (v1::MemberStatus& status : *members.mutable_members()) {
    std::optional<SessionId> session;
    if (const auto waits = job.waiting().find(status.worker()); waits != job.waiting().end()) {
      session = waits->second;
    } else if (const auto slot = job.workers.Find(status.worker()); slot.has_value()) {
      session = job.workers[*slot].session;
    }
    if (!session.has_value()) continue;
    const Peer peer = runner.PeerOf(*session);
    status.set_address(peer.address);
    status.set_shares_memory(peer.shares_memory);
    status.set_shared_device_bytes(peer.shared_device_bytes);
  }
}

v1::ListRoundsResponse RoundsOf(const Job& job, const std::string& lane_name, uint32_t last,
                                absl::Time lived) {
  v1::ListRoundsResponse response;
  for (const Lane& lane : job.lanes) {
    if (!lane_name.empty() && lane.name != lane_name) continue;
    v1::LaneRounds& rounds = *response.add_lanes();
    rounds.set_lane(lane.name);
    rounds.set_kind(wire::EncodeEnum(lane.kind));
    rounds.set_tensors(lane.layout.version());
    rounds.set_bytes(lane.layout.bytes());
    if (lane.Open()) AddOpen(job, lane, lived, rounds);
    AddPast(lane, last, rounds);
    AddRecent(lane, last, lived, rounds);
  }
  return response;
}

v1::Event ViewOf(const RememberedEvent& event, Term term, absl::Time now) {
  v1::Event view;
  view.set_sequence(event.sequence);
  view.set_term(term);
  view.set_age_ns(Nanoseconds(now - event.time));
  view.set_kind(NoteKindName(event.note.kind));
  view.set_job(event.note.job);
  view.set_worker(event.note.worker);
  view.set_lane(event.note.lane);
  view.set_round(event.note.round);
  view.set_text(wire::EncodeText(event.note.text));
  return view;
}

}  // namespace basin::aggregator
