// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_lanes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {
namespace {

std::string ChargeTensors(Job& job, const JobScope& scope, Lane& lane, const TensorSpec* next) {
  return job.lanes.Charge(
      scope.config, job.agreed.most_workers(), scope.memory, lane, next,
      [&] { DropCached(job, scope); },
      [&] { return job.lanes.ExpireOldest(job.id, scope.memory, scope.actions, &lane); });
}

std::string MakeRoom(Job& job, const JobScope& scope) {
  return job.lanes.MakeRoom(scope.config, job.id, scope.memory, scope.actions);
}

// Takes an idle call lane into use again. Returns why that is impossible; empty if the lane is in
// use.
std::string Revive(Job& job, const JobScope& scope, Lane& lane) {
  if (!lane.expired) return "";
  // A worker may have begun its round already, and cannot take that back. So the lane is used even
  // if no other one can make room; its memory is limited all the same.
  MakeRoom(job, scope);
  std::string why = ChargeTensors(job, scope, lane, nullptr);
  lane.expired = !why.empty();
  if (why.empty()) lane.last_used = scope.now;
  return why;
}

void DropName(Job& job, const JobScope& scope, LaneIndex index) {
  job.lanes.Remove(index, job.id, scope.memory, scope.actions);
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    Worker& worker = job.workers[slot];
    worker.ForgetLane(index);
    if (worker.connected()) scope.sessions[*worker.session].laid_out.erase(index);
  }
  SendToAll(job, scope, LaneGone{index});
}

// A worker that was lost needs nothing more of this aggregator. But as long as the list of members
// has it, another aggregator that recovers the job waits for it, and it may come back with a memory
// of lanes that nobody else has any more.
void ForgetWhatLostWorkersKnew(Job& job) {
  const std::vector<WorkerId>& members = job.membership().members;
  std::set<WorkerId> listed;  // Filled only when somebody was lost.
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    Worker& worker = job.workers[slot];
    if (worker.state != WorkerState::kLost || worker.registered.empty()) continue;
    if (listed.empty()) listed.insert(members.begin(), members.end());
    if (worker.left || listed.count(worker.id) == 0) worker.registered.clear();
  }
}

// What is free for lanes here and at the smallest shard in use.
uint64_t RoomEverywhere(const Job& job, const JobScope& scope) {
  return std::min(job.lanes.Room(scope.config, scope.memory), scope.memory.free_at_shards());
}

std::optional<LaneMemory> PlanFor(const Job& job, const JobScope& scope, const Lane& lane,
                                  uint64_t room) {
  return PlanLaneMemory(scope.config, job.agreed.most_workers(),
                        job.placements.current().shards.size(), lane.layout.bytes(), room,
                        lane.memory);
}

}  // namespace

bool Fits(const JobScope& scope, const JobSettings& settings, std::string& why) {
  const uint64_t workers = std::max<uint32_t>(settings.max_workers, 1);
  const uint64_t need = LeastLaneMemory(scope.config, workers, scope.config.frame_bytes).reserved;
  const uint64_t quota = scope.config.max_job_bytes;
  if (quota != 0 && need > quota) {
    why = absl::StrCat("needs at least ", need, " bytes for ", workers, " workers with frames of ",
                       scope.config.frame_bytes, " bytes, and a job may have ", quota,
                       " (limits.job_memory). Lower max_workers, or have the limit raised");
    return false;
  }
  if (need <= scope.memory.free()) return true;
  why = absl::StrCat("needs at least ", need, " bytes for ", workers, " workers with frames of ",
                     scope.config.frame_bytes, " bytes, and ", scope.memory.free(), " of ",
                     scope.memory.total,
                     " are free. Give the aggregator more memory, or lower max_workers");
  return false;
}

Lane* FindLane(Job& job, const JobScope& scope, Slot slot, LaneIndex lane, RoundNumber begins) {
  if (job.lanes.Has(lane)) {
    if (!job.lanes[lane].expired) return &job.lanes[lane];
    if (const std::string why = Revive(job, scope, job.lanes[lane]); !why.empty()) {
      if (begins == 0) return nullptr;
      // Nothing more will come about the round, so its trainer must not wait for that.
      RejectMessage(
          job, scope, slot, ErrorCode::kFailedPrecondition,
          absl::StrCat("Job ", job.name, ", lane ", job.lanes[lane].name, ", round ", begins,
                       ": the call was idle, and its memory was given to others. "
                       "To begin again it ",
                       why, " Or raise memory.budget (limits.job_memory)."),
          lane, begins);
      return nullptr;
    }
    PlanMemory(job, scope, job.lanes[lane], lane);
    return &job.lanes[lane];
  }
  if (job.lanes.IsGone(lane)) return nullptr;  // The worker learns it, or will.
  RejectMessage(job, scope, slot, ErrorCode::kNotFound,
                absl::StrCat("Job ", job.name, " has no lane ", lane,
                             "; register its tensors on this session first."));
  return nullptr;
}

void NameTensorsFrom(const Job& job, const JobScope& scope, LaneIndex index, TensorIndex first) {
  const std::vector<TensorSpec>& tensors = job.lanes[index].layout.tensors();
  scope.actions.push_back(
      NameTensors{job.id, index, first, {tensors.begin() + first, tensors.end()}});
}

void NameAllTensors(const Job& job, const JobScope& scope, ShardId shard) {
  for (const Lane& lane : job.lanes) {
    if (lane.layout.version() == 0) continue;
    scope.actions.push_back(NameTensors{job.id, lane.index, 0, lane.layout.tensors(), shard});
  }
}

void OnRegister(Job& job, const JobScope& scope, Slot slot, const Register& request) {
  Worker& worker = job.workers[slot];
  const std::optional<LaneIndex> known = job.lanes.IndexOf(request.lane);
  const LaneIndex index = known.value_or(job.lanes.next_index());
  // A refusal without a tensor answers for all tensors of the request that have no index.
  const auto refuse = [&](ErrorCode code, const std::string& why, const std::string& tensor = "") {
    const std::string text = absl::StrCat("Job ", job.name, ", lane ", request.lane, ": ", why);
    Reject(job, scope, slot, Rejected{Error{code, text}, std::nullopt, 0, request.lane, tensor});
  };
  if (!known.has_value()) {
    if (index >= kMostLaneIndexes) {
      return refuse(ErrorCode::kResourceExhausted,
                    absl::StrCat("the job has used ", index,
                                 " names of lanes one after another, and has no number for another "
                                 "one. Restart the aggregator, which numbers them anew, or reuse "
                                 "names."));
    }
    if (job.lanes.size() >= scope.config.max_lane_names) {
      return refuse(
          ErrorCode::kResourceExhausted,
          absl::StrCat(
              "the job has ", job.lanes.size(),
              " lane names, which is its limit (limits.lane_names). Names of idle calls are free "
              "again when all workers have let them go: wait for the outcome of calls, reuse their "
              "names, or make calls without a name."));
    }
    if (const std::string why = MakeRoom(job, scope); !why.empty()) {
      return refuse(ErrorCode::kResourceExhausted, why);
    }
    job.lanes.Add(request.lane, request.kind);
    const std::string why = job.lanes.WhyNotRemembered(scope.config, job.agreed.most_workers());
    if (!why.empty()) {
      job.lanes.RemoveLast();
      return refuse(ErrorCode::kResourceExhausted, absl::StrCat("with this lane ", why));
    }
  }
  Lane& lane = job.lanes[index];
  if (lane.kind != request.kind) {
    return refuse(ErrorCode::kMismatch,
                  "a gradient lane and a call lane have the same name; rename one of them.");
  }
  if (const std::string why = Revive(job, scope, lane); !why.empty()) {
    return refuse(ErrorCode::kResourceExhausted, why);
  }
  lane.last_used = scope.now;
  const uint32_t before = lane.layout.version();
  TensorIndex guess = 0;
  for (const TensorSpec& spec : request.tensors) {
    const std::optional<TensorIndex> tensor = lane.layout.Find(spec.name, guess);
    if (tensor.has_value()) {
      guess = *tensor + 1;
      const TensorSpec& mine = lane.layout.tensors()[*tensor];
      if (mine == spec) continue;
      worker.misfit = absl::StrCat("its tensor ", spec.name, " was refused: it is ",
                                   DescribeSpec(spec), ", but the job has ", DescribeSpec(mine));
      refuse(ErrorCode::kMismatch,
             absl::StrCat("worker ", worker.id, " registers tensor ", spec.name, " as ",
                          DescribeSpec(spec), ", but the job has ", DescribeSpec(mine),
                          ". Build the same model on every worker; the other workers continue."),
             spec.name);
      continue;
    }
    const std::optional<uint64_t> bytes = TensorBytes(spec);
    if (!bytes.has_value()) {
      refuse(ErrorCode::kInvalidArgument,
             absl::StrCat("tensor ", spec.name, " as ", DescribeSpec(spec), " has no size."),
             spec.name);
      continue;
    }
    if (lane.layout.version() >= scope.config.max_tensors) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("the lane has ", lane.layout.version(),
                          " tensors, which is its limit (limits.tensors). Fuse small ones, or have "
                          "the limit raised."));
      break;
    }
    if (*bytes > scope.config.max_lane_bytes - lane.layout.bytes()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec),
                          " the lane would have more than ", scope.config.max_lane_bytes,
                          " bytes, which is its limit (limits.lane_bytes). Use several lanes, or "
                          "have the limit raised."),
             spec.name);
      continue;
    }
    if (const std::string why =
            job.lanes.WhyNotRemembered(scope.config, job.agreed.most_workers(), &lane, &spec);
        !why.empty()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec), " ", why));
      break;
    }
    if (const std::string why = ChargeTensors(job, scope, lane, &spec); !why.empty()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec), " it ", why),
             spec.name);
      continue;
    }
    lane.Append(spec);
  }
  const bool grew = lane.layout.version() > before;
  if ((grew || !known.has_value()) && !lane.round.has_value()) PlaceLane(job, lane);
  if (grew) NameTensorsFrom(job, scope, index, before);
  if (grew && lane.round.has_value()) GrowLayout(*lane.round, ScopeOf(job, scope, index));
  if (grew || Lanes::NeedsMemory(scope.config, lane)) PlanMemory(job, scope, lane, index);

  const auto describe = [&](uint32_t first, const Worker& to) {
    LaneLayout layout{index, lane.name, lane.kind,          first,
                      {},    lane.next, lane.memory.window, PlacementFor(to, lane)};
    const auto& tensors = lane.layout.tensors();
    if (first == 0) {
      layout.tensors = lane.layout.shared_tensors();
    } else {
      layout.tensors.Own().assign(tensors.begin() + first, tensors.end());
    }
    return layout;
  };
  const bool is_first = scope.sessions[*worker.session].laid_out.insert(index).second;
  // A worker that learned that the name's lane before is gone, after it had registered this one,
  // may have dropped the layout.
  const bool dropped = lane.kind == LaneKind::kCall && worker.LayoutSeen(index) == 0;
  SendTo(job, scope, slot, describe(is_first || dropped ? 0 : before, worker));
  NoteRegistered(job, scope, slot, index);
  if (grew) {
    SendAll knowing;  // The message is serialized once for all of these.
    for (Slot other = 0; other < job.workers.size(); ++other) {
      const Worker& to = job.workers[other];
      if (other == slot || !to.connected()) continue;
      if (PlacementFor(to, lane) != lane.placement) {
        SendTo(job, scope, other, describe(before, to));
        continue;
      }
      if (knowing.sessions.empty()) knowing.message = describe(before, to);
      knowing.sessions.push_back(*to.session);
    }
    if (!knowing.sessions.empty()) scope.actions.push_back(std::move(knowing));
    if (lane.round.has_value()) Advance(*lane.round, ScopeOf(job, scope, index));
    AdvanceLane(job, scope, index);
  }
  if (!known.has_value()) TrimNames(job, scope);
}

void NoteRegistered(Job& job, const JobScope& scope, Slot slot, LaneIndex index) {
  // A worker that comes back describes what it has, and may answer what it was asked meanwhile.
  if (job.workers[slot].HasRegistered(index)) return;
  job.lanes.Keep(index);
  job.workers[slot].NoteRegistered(index);
  std::optional<Round>& round = job.lanes[index].round;
  if (round.has_value() && round->Has(slot)) {
    OnRegistered(*round, ScopeOf(job, scope, index), slot);
  }
}

void TrimNames(Job& job, const JobScope& scope) {
  const auto least_used = [&] {
    return job.lanes.LeastUsedOfTooMany(scope.config, job.agreed.most_workers());
  };
  if (least_used() == nullptr) return;
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    // It would never answer, and does not know that a lane is gone.
    if (worker.state != WorkerState::kLost && !worker.lets_go) return;
  }
  ForgetWhatLostWorkersKnew(job);
  while (const Lane* lane = least_used()) {
    const LaneIndex index = lane->index;
    SlotSet knowing;
    SendAll question{{}, LetGo{index, lane->next - 1}};
    for (Slot slot = 0; slot < job.workers.size(); ++slot) {
      const Worker& worker = job.workers[slot];
      if (!worker.HasRegistered(index)) continue;
      knowing.insert(knowing.end(), slot);
      if (worker.connected()) question.sessions.push_back(*worker.session);
    }
    if (knowing.empty()) {
      DropName(job, scope, index);
      continue;
    }
    if (!question.sessions.empty()) scope.actions.push_back(std::move(question));
    job.lanes.Ask(index, std::move(knowing));
  }
}

void AskAgain(Job& job, const JobScope& scope, Slot slot) {
  if (!job.workers[slot].lets_go) return job.lanes.KeepAll();
  for (const auto& [index, waiting] : job.lanes.asked()) {
    if (waiting.count(slot) == 0 || !job.workers[slot].HasRegistered(index)) continue;
    SendTo(job, scope, slot, LetGo{index, job.lanes[index].next - 1});
  }
}

void OnLetGo(Job& job, const JobScope& scope, Slot slot, const LetGo& let_go) {
  const auto asked = job.lanes.asked().find(let_go.lane);
  // The lane is used again, or the answer is to another question.
  if (asked == job.lanes.asked().end() || let_go.round + 1 != job.lanes[let_go.lane].next) return;
  asked->second.erase(slot);
  if (asked->second.empty()) DropName(job, scope, let_go.lane);
}

void DropNames(Job& job, const JobScope& scope) {
  if (job.lanes.asked().empty()) return;
  ForgetWhatLostWorkersKnew(job);
  std::vector<LaneIndex> gone;
  for (auto& [index, waiting] : job.lanes.asked()) {
    for (auto slot = waiting.begin(); slot != waiting.end();) {
      slot = job.workers[*slot].HasRegistered(index) ? std::next(slot) : waiting.erase(slot);
    }
    if (waiting.empty()) gone.push_back(index);
  }
  for (const LaneIndex index : gone) DropName(job, scope, index);
}

void PlanMemory(Job& job, const JobScope& scope, Lane& lane, LaneIndex index) {
  const LaneMemory before = lane.memory;
  const auto plan_now = [&] { return PlanFor(job, scope, lane, RoomEverywhere(job, scope)); };
  std::optional<LaneMemory> plan = plan_now();
  // Idle calls make room for a lane that could not work otherwise.
  while (!plan.has_value() && Lanes::NeedsMemory(scope.config, lane) &&
         job.lanes.ExpireOldest(job.id, scope.memory, scope.actions, &lane)) {
    plan = plan_now();
  }
  // It is also worth more than the smallest shard.
  if (!plan.has_value() && Lanes::NeedsMemory(scope.config, lane)) {
    plan = LeastBeside(scope.config, job.agreed.most_workers(), lane.layout.bytes(),
                       job.lanes.Room(scope.config, scope.memory), lane.memory);
  }
  if (!plan.has_value()) {
    if (Lanes::NeedsMemory(scope.config, lane) && scope.memory.cached > 0) {
      scope.memory.shortage = true;  // The coordinator drops cached blobs, then plans again.
    } else if (Lanes::NeedsMemory(scope.config, lane)) {
      scope.actions.push_back(
          Note{NoteKind::kLaneWaitsForMemory, job.name, "", lane.name, lane.next,
               absl::StrCat("Lane ", lane.name, " waits for ", DescribeShortage(job, scope), ".")});
    }
    return;
  }
  scope.memory.ChargeWindows(plan->reserved - before.reserved);
  lane.memory = *plan;
  if (lane.memory == before) return;
  // With this window the next rounds start. In an open round each member gets its own after that.
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    SendTo(job, scope, slot, Credit{index, lane.next, lane.memory.window, {}, {}});
  }
  if (!lane.round.has_value()) return;
  MemoryGrew(*lane.round, ScopeOf(job, scope, index));
  AdvanceLane(job, scope, index);
}

void WidenResults(Job& job, const JobScope& scope) {
  for (Lane& lane : job.lanes) {
    // One that has no memory, or too little for its frames, plans for the shards when it gets it.
    if (lane.expired || Lanes::NeedsMemory(scope.config, lane)) continue;
    const std::optional<LaneMemory> plan = PlanFor(job, scope, lane, RoomEverywhere(job, scope));
    if (!plan.has_value()) continue;
    const uint64_t more = plan->result_window - lane.memory.result_window;
    lane.memory.result_window += more;
    lane.memory.reserved += more;
    scope.memory.ChargeWindows(more);
  }
}

std::string DescribeShortage(const Job& job, const JobScope& scope) {
  return absl::StrCat(
      "memory of the aggregator: ", job.lanes.DescribeRoom(scope.config, scope.memory),
      ". Idle calls have given theirs; the other lanes keep what they have, and "
      "gradient lanes do so until the end of the job. Raise memory.budget "
      "(limits.job_memory), lower max_workers, or have fewer calls in flight");
}

void RetryMemory(Job& job, const JobScope& scope) {
  if (job.state() == JobState::kHalted) TryRecover(job, scope);  // It may have lacked memory.
  for (Lane& lane : job.lanes) {
    if (Lanes::NeedsMemory(scope.config, lane)) PlanMemory(job, scope, lane, lane.index);
  }
}

void ReleaseMemory(Job& job, const JobScope& scope) {
  job.blobs.Clear(BlobScopeOf(job, scope));
  job.evidence.held().TakeHellos(scope.memory);
  job.lanes.Drop(job.id, scope.memory, scope.actions);
}

void DropCached(Job& job, const JobScope& scope) { job.blobs.DropCached(BlobScopeOf(job, scope)); }

}  // namespace basin::aggregator
