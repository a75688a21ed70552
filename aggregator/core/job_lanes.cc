// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job: which tensors they have, and how much memory.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {

Lane* Job::FindLane(const JobScope& scope, Slot slot, LaneIndex lane) {
  if (lane < lanes_.size() && !lanes_[lane].name.empty()) {
    if (!lanes_[lane].expired) return &lanes_[lane];
    if (const std::string why = Revive(scope, lanes_[lane]); !why.empty()) {
      RejectMessage(scope, slot, ErrorCode::kResourceExhausted,
                    absl::StrCat("Job ", name_, ", lane ", lanes_[lane].name, ": ", why));
      return nullptr;
    }
    PlanMemory(scope, lanes_[lane], lane);
    return &lanes_[lane];
  }
  RejectMessage(scope, slot, ErrorCode::kNotFound,
                absl::StrCat("Job ", name_, " has no lane ", lane,
                             "; register its tensors on this session first."));
  return nullptr;
}

// Takes an idle call lane into use again. Returns why that is impossible; empty if the lane is in
// use.
std::string Job::Revive(const JobScope& scope, Lane& lane) {
  if (!lane.expired) return "";
  std::string why = lanes_.WhyNoMore(scope.config);
  if (why.empty()) why = ChargeTensors(scope, lane, nullptr);
  lane.expired = !why.empty();
  return why;
}

std::string Job::ChargeTensors(const JobScope& scope, Lane& lane, const TensorSpec* next) {
  return lanes_.Charge(scope.config, settings_.most_workers(), scope.memory, lane, next,
                       [&] { DropCached(scope); });
}

void Job::NameTensors(const JobScope& scope, LaneIndex index, TensorIndex first) const {
  const std::vector<TensorSpec>& tensors = lanes_[index].layout.tensors();
  scope.actions.push_back(
      aggregator::NameTensors{id_, index, first, {tensors.begin() + first, tensors.end()}});
}

void Job::OnRegister(const JobScope& scope, Slot slot, const Register& request) {
  Worker& worker = workers_[slot];
  const LaneIndex index = lanes_.IndexOf(request.lane);
  // A refusal without a tensor answers for all tensors of the request that have no index.
  const auto refuse = [&](ErrorCode code, const std::string& why, const std::string& tensor = "") {
    const std::string text = absl::StrCat("Job ", name_, ", lane ", request.lane, ": ", why);
    Reject(scope, slot, Rejected{Error{code, text}, std::nullopt, 0, request.lane, tensor});
  };
  if (index == lanes_.size()) {
    if (const std::string why = lanes_.WhyNoMore(scope.config); !why.empty()) {
      return refuse(ErrorCode::kResourceExhausted, why);
    }
    if (lanes_.size() >= scope.config.max_lane_names) {
      return refuse(
          ErrorCode::kResourceExhausted,
          absl::StrCat(
              "the job has used ", lanes_.size(),
              " lane names, which is its limit (limits.lane_names). Reuse the names of calls."));
    }
    lanes_.Add(request.lane, request.kind);
    const std::string why = lanes_.WhyNotRemembered(scope.config, settings_.most_workers());
    if (!why.empty()) {
      lanes_.RemoveLast();
      return refuse(ErrorCode::kResourceExhausted, absl::StrCat("with this lane ", why));
    }
  }
  Lane& lane = lanes_[index];
  if (lane.kind != request.kind) {
    return refuse(ErrorCode::kMismatch,
                  "a gradient lane and a call lane have the same name; rename one of them.");
  }
  if (const std::string why = Revive(scope, lane); !why.empty()) {
    return refuse(ErrorCode::kResourceExhausted, why);
  }
  lane.last_used = scope.now;
  const uint32_t before = lane.layout.version();
  TensorIndex guess = 0;
  for (const TensorSpec& spec : request.tensors) {
    const std::optional<TensorIndex> known = lane.layout.Find(spec.name, guess);
    if (known.has_value()) {
      guess = *known + 1;
      const TensorSpec& mine = lane.layout.tensors()[*known];
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
            lanes_.WhyNotRemembered(scope.config, settings_.most_workers(), &lane, &spec);
        !why.empty()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec), " ", why));
      break;
    }
    if (const std::string why = ChargeTensors(scope, lane, &spec); !why.empty()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec), " it ", why),
             spec.name);
      continue;
    }
    lane.layout.Append(spec);
  }
  const bool grew = lane.layout.version() > before;
  if (grew) NameTensors(scope, index, before);
  if (grew && lane.round.has_value()) GrowLayout(*lane.round, ScopeOf(scope, index));
  if (grew || Lanes::NeedsMemory(scope.config, lane)) PlanMemory(scope, lane, index);

  const auto describe = [&](uint32_t first) {
    LaneLayout layout{index, lane.name, lane.kind, first, {}, lane.next, lane.memory.window};
    const auto& tensors = lane.layout.tensors();
    if (first == 0) {
      layout.tensors = lane.layout.shared_tensors();
    } else {
      layout.tensors.Own().assign(tensors.begin() + first, tensors.end());
    }
    return layout;
  };
  std::vector<bool>& laid_out = scope.sessions[*worker.session].laid_out;
  if (laid_out.size() <= index) laid_out.resize(index + 1);
  SendTo(scope, slot, describe(laid_out[index] ? before : 0));
  laid_out[index] = true;
  if (!worker.HasRegistered(index)) {
    worker.NoteRegistered(index);
    if (lane.round.has_value() && lane.round->Has(slot)) {
      OnRegistered(*lane.round, ScopeOf(scope, index), slot);
    }
  }
  if (!grew) return;
  SendAll others;  // The message is serialized once, because a layout can take megabytes.
  for (Slot other = 0; other < workers_.size(); ++other) {
    const Worker& receiver = workers_[other];
    if (other == slot || receiver.state == WorkerState::kLost || !receiver.connected()) continue;
    others.sessions.push_back(*receiver.session);
  }
  if (!others.sessions.empty()) {
    others.message = describe(before);
    scope.actions.push_back(std::move(others));
  }
  if (lane.round.has_value()) Advance(*lane.round, ScopeOf(scope, index));
  AdvanceLane(scope, index);
}

// Reserves what the lane needs now. If that much is not free, the lane waits: its workers get no
// window, and a note names the reason.
void Job::PlanMemory(const JobScope& scope, Lane& lane, LaneIndex index) {
  const LaneMemory before = lane.memory;
  const std::optional<LaneMemory> plan =
      PlanLaneMemory(scope.config, settings_.most_workers(), lane.layout.bytes(),
                     lanes_.Room(scope.config, scope.memory), lane.memory);
  if (!plan.has_value()) {
    if (Lanes::NeedsMemory(scope.config, lane) && scope.memory.cached > 0) {
      scope.memory.shortage = true;  // The coordinator drops cached values, then plans again.
    } else if (Lanes::NeedsMemory(scope.config, lane)) {
      scope.actions.push_back(
          Note{NoteKind::kLaneWaitsForMemory, name_, "", lane.name, lane.next,
               absl::StrCat("Lane ", lane.name, " waits for memory: ",
                            lanes_.DescribeRoom(scope.config, scope.memory), ".")});
    }
    return;
  }
  scope.memory.reserved += plan->reserved - before.reserved;
  lane.memory = *plan;
  if (lane.memory == before) return;
  // With this window the next rounds start. In an open round each member gets its own after that.
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state == WorkerState::kLost) continue;
    SendTo(scope, slot, Credit{index, lane.next, lane.memory.window, {}, {}});
  }
  if (!lane.round.has_value()) return;
  MemoryGrew(*lane.round, ScopeOf(scope, index));
  AdvanceLane(scope, index);
}

void Job::RetryMemory(const JobScope& scope) {
  if (state() == JobState::kHalted) TryRecover(scope);  // It may have lacked memory.
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (Lanes::NeedsMemory(scope.config, lanes_[i])) PlanMemory(scope, lanes_[i], i);
  }
}

void Job::ReleaseMemory(const JobScope& scope) {
  values_.Clear(ValuesScope(scope));
  evidence_.held().TakeHellos(scope.memory);
  lanes_.Drop(id_, scope.memory, scope.actions);
}

uint64_t Job::description_bytes() const {
  uint64_t room = values_.cached_bytes();
  for (const Lane& lane : lanes_) room += lane.memory.reserved;
  return reserved_bytes() - room;
}

void Job::DropCached(const JobScope& scope) { values_.DropCached(ValuesScope(scope)); }

}  // namespace basin::aggregator
