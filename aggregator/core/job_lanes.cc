// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job: what tensors they are made of, and the memory that they have.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
#include "aggregator/core/plausibility.h"
#include "protocol/plural.h"

namespace basin::aggregator {

const Lane* Job::LaneNamed(const std::string& name) const {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                                 [&name](const Lane& candidate) { return candidate.name == name; });
  return lane == lanes_.end() ? nullptr : &*lane;
}

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

std::string Job::WhyNoMoreLanes(const JobScope& scope) const {
  const auto used =
      std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.expired; });
  if (static_cast<uint64_t>(used) < scope.config.max_lanes) return "";
  return absl::StrCat("the job has reached its limit of ",
                      CountOf(static_cast<uint64_t>(used), "lane"),
                      ". Reuse the names of calls; lanes that were idle for longer than "
                      "job.idle_lane_timeout do not count.");
}

// Takes an idle call lane into use again. Returns why that cannot be; empty when it is in use.
std::string Job::Revive(const JobScope& scope, Lane& lane) {
  if (!lane.expired) return "";
  std::string why = WhyNoMoreLanes(scope);
  if (why.empty()) why = ChargeTensors(scope, lane, nullptr);
  lane.expired = !why.empty();
  return why;
}

// Why a hello could not describe all lanes after `next` is added to this one; empty when it can. A
// worker that returns must be able to report all that it remembers, and receive what it missed.
std::string Job::WhyHelloTooLarge(const JobScope& scope, const Lane& lane,
                                  const TensorSpec* next) const {
  return WhyNotRemembered(scope.config, std::max<uint32_t>(settings_.max_workers, 1), &lane, next);
}

std::string Job::WhyNotRemembered(const Config& config, uint64_t workers, const Lane* lane,
                                  const TensorSpec* next) const {
  uint64_t bytes = HelloBytes(workers);
  for (const Lane& other : lanes_) {
    bytes += HistoryBytes(other.layout, &other == lane ? next : nullptr, workers);
  }
  if (bytes <= config.max_history_bytes) return "";
  return absl::StrCat("the hello of a returning worker could reach ", bytes, " bytes for ",
                      CountOf(lanes_.size(), "lane"), " and ", CountOf(workers, "worker"),
                      ", but the limit is ", config.max_history_bytes,
                      ". Use fewer lanes or tensors, shorter names, or a lower max_workers.");
}

// Charges what it takes to keep track of the chunks of the lane, and to describe its tensors, once
// `next` is one of them; null adds none. Returns why that cannot be.
std::string Job::ChargeTensors(const JobScope& scope, Lane& lane, const TensorSpec* next) {
  const uint64_t bytes = next == nullptr ? 0 : TensorBytes(*next).value_or(0);
  const uint32_t chunks = lane.layout.chunks() + ChunkCount(bytes);
  const uint64_t workers = std::max<uint32_t>(settings_.max_workers, 1);
  const uint64_t tracking = TrackingBytes(workers, chunks);
  const uint64_t entry = next == nullptr ? 0 : EntryBytes(*next);
  const uint64_t least =
      tracking + lane.layout.memory_bytes() + entry +
      LeastLaneMemory(scope.config, workers, lane.layout.bytes() + bytes).reserved;
  const uint64_t quota = scope.config.max_job_bytes;
  if (quota != 0 && least > quota) {
    return absl::StrCat("would need at least ", least, " bytes for ", CountOf(workers, "worker"),
                        ", but a job may have ", quota,
                        " (limits.job_memory). Lower max_workers, or ask the operator for more.");
  }
  if (least > scope.memory.total) {
    return absl::StrCat("would need at least ", least, " bytes for ", CountOf(workers, "worker"),
                        ", ", tracking, " of them to track ", chunks, " chunks and ",
                        lane.layout.memory_bytes() + entry,
                        " to describe its tensors, but the aggregator has ", scope.memory.total,
                        ". Give it more memory, or lower max_workers.");
  }
  const uint64_t need = tracking + entry;
  if (need > lane.tracking + scope.memory.free()) DropCached(scope);
  if (need > lane.tracking + Room(scope)) {
    scope.memory.shortage |= scope.memory.cached > 0;
    return absl::StrCat("needs ", need - lane.tracking, " more bytes to track its ", chunks,
                        " chunks and describe its tensors, but only ", DescribeRoom(scope),
                        ". Register it again when a call or a job has ended.");
  }
  scope.memory.reserved += need - lane.tracking;
  lane.tracking = tracking;
  return "";
}

// Gives back what the lane holds of the memory budget while it is in use.
void Job::Release(const JobScope& scope, Lane& lane) {
  scope.memory.reserved -= lane.memory.reserved + lane.tracking;
  lane.memory = LaneMemory{};
  lane.tracking = 0;
}

// Forgets all lanes, and gives back all that they hold.
void Job::DropLanes(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Release(scope, lanes_[i]);
    scope.memory.reserved -= lanes_[i].layout.memory_bytes();
    scope.actions.push_back(aggregator::NameTensors{id_, i, 0, {}});
  }
  lanes_.clear();
}

void Job::NameTensors(const JobScope& scope, LaneIndex index, TensorIndex first) const {
  const std::vector<TensorSpec>& tensors = lanes_[index].layout.tensors();
  scope.actions.push_back(
      aggregator::NameTensors{id_, index, first, {tensors.begin() + first, tensors.end()}});
}

void Job::OnRegister(const JobScope& scope, Slot slot, const Register& request) {
  Worker& worker = workers_[slot];
  LaneIndex index = 0;
  while (index < lanes_.size() && lanes_[index].name != request.lane) ++index;
  // Without a tensor: of all that have no index.
  const auto refuse = [&](ErrorCode code, const std::string& why, const std::string& tensor = "") {
    const std::string text = absl::StrCat("Job ", name_, ", lane ", request.lane, ": ", why);
    Reject(scope, slot, Rejected{Error{code, text}, std::nullopt, 0, request.lane, tensor});
  };
  if (index == lanes_.size()) {
    if (const std::string why = WhyNoMoreLanes(scope); !why.empty()) {
      return refuse(ErrorCode::kResourceExhausted, why);
    }
    if (lanes_.size() >= scope.config.max_lane_names) {
      return refuse(ErrorCode::kResourceExhausted,
                    absl::StrCat("the job has used ", lanes_.size(),
                                 " lane names, which is its limit. Reuse the names of calls."));
    }
    lanes_.emplace_back();
    if (const std::string why = WhyHelloTooLarge(scope, lanes_.back(), nullptr); !why.empty()) {
      lanes_.pop_back();
      return refuse(ErrorCode::kResourceExhausted, absl::StrCat("with this lane ", why));
    }
    lanes_.back().name = request.lane;
    lanes_.back().kind = request.kind;
    lanes_.back().norms = NormsFor(request.kind);
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
                          " tensors, which is its limit; fuse small ones."));
      break;
    }
    if (*bytes > scope.config.max_lane_bytes - lane.layout.bytes()) {
      refuse(ErrorCode::kResourceExhausted,
             absl::StrCat("with tensor ", spec.name, " as ", DescribeSpec(spec),
                          " the lane would have more than ", scope.config.max_lane_bytes,
                          " bytes, which is its limit."),
             spec.name);
      continue;
    }
    if (const std::string why = WhyHelloTooLarge(scope, lane, &spec); !why.empty()) {
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
  if (grew && lane.round.has_value()) lane.round->GrowLayout(ScopeOf(scope, index));
  if (grew || NeedsMemory(scope, lane)) PlanMemory(scope, lane, index);

  const auto describe = [&](uint32_t first) {
    LaneLayout layout{index, lane.name, lane.kind, first, {}, lane.next, lane.memory.window};
    const auto& tensors = lane.layout.tensors();
    layout.tensors.assign(tensors.begin() + first, tensors.end());
    return layout;
  };
  std::vector<bool>& laid_out = scope.sessions[*worker.session].laid_out;
  if (laid_out.size() <= index) laid_out.resize(index + 1);
  SendTo(scope, slot, describe(laid_out[index] ? before : 0));
  laid_out[index] = true;
  if (!worker.HasRegistered(index)) {
    worker.NoteRegistered(index);
    if (lane.round.has_value() && lane.round->Has(slot)) {
      lane.round->OnRegistered(ScopeOf(scope, index), slot);
    }
  }
  if (!grew) return;
  SendAll others;  // Serialised once: a layout can be megabytes.
  for (Slot other = 0; other < workers_.size(); ++other) {
    const Worker& receiver = workers_[other];
    if (other == slot || receiver.state == WorkerState::kLost || !receiver.connected()) continue;
    others.sessions.push_back(*receiver.session);
  }
  if (!others.sessions.empty()) {
    others.message = describe(before);
    scope.actions.push_back(std::move(others));
  }
  if (lane.round.has_value()) lane.round->Advance(ScopeOf(scope, index));
  AdvanceLane(scope, index);
}

// Reserves what the lane needs now. Where that is not free, the lane waits: nobody is given a
// window, and the wait is named.
void Job::PlanMemory(const JobScope& scope, Lane& lane, LaneIndex index) {
  const LaneMemory before = lane.memory;
  const std::optional<LaneMemory> plan =
      PlanLaneMemory(scope.config, std::max<uint32_t>(settings_.max_workers, 1),
                     lane.layout.bytes(), Room(scope), lane.memory);
  if (!plan.has_value()) {
    if (NeedsMemory(scope, lane) && scope.memory.cached > 0) {
      scope.memory.shortage = true;  // It is planned again when that has been dropped.
    } else if (NeedsMemory(scope, lane)) {
      scope.actions.push_back(
          Note{NoteKind::kLaneWaitsForMemory, name_, "", lane.name, lane.next,
               absl::StrCat("Lane ", lane.name, " waits for memory: ", DescribeRoom(scope), ".")});
    }
    return;
  }
  scope.memory.reserved += plan->reserved - before.reserved;
  lane.memory = *plan;
  if (lane.memory == before) return;
  if (lane.round.has_value()) {
    lane.round->MemoryGrew(ScopeOf(scope, index));
    AdvanceLane(scope, index);
    return;
  }
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state == WorkerState::kLost) continue;
    SendTo(scope, slot, Credit{index, lane.next, lane.memory.window, {}, {}});
  }
}

// Whether the lane has frames that do not fit what it was given.
bool Job::NeedsMemory(const JobScope& scope, const Lane& lane) const {
  const uint64_t frame =
      std::min(scope.config.frame_bytes, std::max<uint64_t>(lane.layout.bytes(), 1));
  return !lane.expired && lane.memory.frame < frame;
}

void Job::RetryMemory(const JobScope& scope) {
  if (state() == JobState::kHalted) TryRecover(scope);  // It may be memory that it lacked.
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (NeedsMemory(scope, lanes_[i])) PlanMemory(scope, lanes_[i], i);
  }
}

void Job::ReleaseMemory(const JobScope& scope) {
  DropCached(scope);
  held_.TakeHellos(scope.memory);
  DropLanes(scope);
}

void Job::DropCached(const JobScope& scope) { values_.DropCached(ValuesScope(scope)); }

}  // namespace basin::aggregator
