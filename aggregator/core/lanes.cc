// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/lanes.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "aggregator/core/plausibility.h"
#include "aggregator/core/round_waits.h"
#include "protocol/plural.h"

namespace basin::aggregator {

// ---- existing lanes

std::optional<LaneIndex> Lanes::IndexOf(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

const Lane* Lanes::Named(const std::string& name) const {
  const std::optional<LaneIndex> index = IndexOf(name);
  return index.has_value() ? &(*this)[*index] : nullptr;
}

// ---- new lanes, and lanes that go

Lane& Lanes::Add(const std::string& name, LaneKind kind, LaneIndex index) {
  own_ = index;
  next_index_ = index;
  Lane& lane = Add(name, kind);
  own_ = next_index_;
  return lane;
}

Lane& Lanes::Add(const std::string& name, LaneKind kind) {
  const LaneIndex index = next_index_++;
  by_name_.emplace(name, index);
  Lane& lane = lanes_[index];
  lane.index = index;
  lane.name = name;
  lane.kind = kind;
  lane.norms = NormsFor(kind);
  return lane;
}

void Lanes::RemoveLast() {
  const auto last = std::prev(lanes_.end());
  next_index_ = last->first;
  by_name_.erase(last->second.name);
  lanes_.erase(last);
}

void Lanes::Remove(LaneIndex index, JobId job, MemoryBudget& memory, std::vector<Action>& actions) {
  Lane& lane = (*this)[index];
  Expire(lane, job, memory, actions);
  memory.reserved -= lane.layout_bytes.held + lane.ledger_bytes;
  actions.push_back(NameTensors{job, index, 0, {}});
  rounds_before_ |= lane.next > 1;
  if (index < own_) recovered_gone_.insert(index);
  asked_.erase(index);
  by_name_.erase(lane.name);
  lanes_.erase(index);
}

void Lanes::Drop(JobId job, MemoryBudget& memory, std::vector<Action>& actions) {
  for (auto& [index, lane] : lanes_) {
    Release(memory, lane);
    memory.reserved -= lane.layout_bytes.held + lane.ledger_bytes;
    actions.push_back(NameTensors{job, index, 0, {}});
  }
  *this = Lanes();
}

// ---- open rounds

bool Lanes::AnyOpen() const {
  return std::any_of(begin(), end(), [](const Lane& lane) { return lane.Open(); });
}

bool Lanes::AnyOpenBesides(const Lane& lane) const {
  return std::any_of(begin(), end(),
                     [&](const Lane& other) { return &other != &lane && other.Open(); });
}

bool Lanes::AnyRoundEver() const {
  return rounds_before_ ||
         std::any_of(begin(), end(), [](const Lane& lane) { return lane.next > 1 || lane.Open(); });
}

bool Lanes::IsBoundary(const Lane& lane) const {
  bool gradient_lanes = false;
  bool others_open = false;
  for (const Lane& other : *this) {
    if (other.kind != LaneKind::kGradient) continue;
    gradient_lanes = true;
    others_open |= &other != &lane && other.Open();
  }
  return gradient_lanes ? lane.kind == LaneKind::kGradient && !others_open : true;
}

std::vector<StartRound> Lanes::StartRounds() const {
  std::vector<StartRound> start;
  for (const Lane& lane : *this) {
    start.push_back(
        {lane.name, lane.index, lane.next, lane.chain, lane.ledger.settled(), lane.placement});
  }
  return start;
}

const Round* Lanes::RoundOf(const RoundWait& wait) const {
  if (!Has(wait.lane)) return nullptr;
  const std::optional<Round>& round = (*this)[wait.lane].round;
  return round.has_value() && round->number == wait.round ? &*round : nullptr;
}

// ---- what workers remember of lanes

bool Lanes::HasLetGo(const Hello& hello, const LaneHistory& history, Term term) const {
  if (history.kind != LaneKind::kCall) return false;
  const Lane* lane = Named(history.name);
  // A worker that was counted in the lane has it until all have let it go.
  if (lane == nullptr) return true;
  // Aggregators that did not know of each other may have given the lane two indexes.
  const bool same_life = hello.membership.generation.term == term;
  return lane->index != history.lane && (history.let_go || same_life);
}

bool Lanes::Lack(const Hello& hello, bool recovery_stands, Term term) const {
  return std::any_of(hello.lanes.begin(), hello.lanes.end(), [&](const LaneHistory& history) {
    if (HasLetGo(hello, history, term)) return false;
    const Lane* lane = Named(history.name);
    if (!recovery_stands) {
      const RoundNumber next = lane == nullptr ? 1 : lane->next;
      if (history.last_verdict >= next) return true;
      if (history.staged.has_value() && history.staged->round == next) {
        const bool open = lane != nullptr && lane->round.has_value();
        return !open || lane->round->IsNews(history.staged->ballot);
      }
    }
    return lane != nullptr && history.last_verdict == lane->next && lane->round.has_value() &&
           lane->round->adopted.has_value() && lane->round->phase() == RoundPhase::kPrepared &&
           ExtendChain(lane->chain, lane->next, lane->round->value) == history.chain;
  });
}

// ---- due times

absl::Time Lanes::IdleDue(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Lane& lane : *this) next = std::min(next, lane.IdleEnd(config));
  return next;
}

void Lanes::Expire(Lane& lane, JobId job, MemoryBudget& memory, std::vector<Action>& actions) {
  if (lane.expired) return;
  lane.expired = true;
  Release(memory, lane);
  actions.push_back(IdleLane{job, lane.index});
}

void Lanes::ExpireIdle(const Config& config, absl::Time now, JobId job, MemoryBudget& memory,
                       std::vector<Action>& actions) {
  for (Lane& lane : *this) {
    if (now >= lane.IdleEnd(config)) Expire(lane, job, memory, actions);
  }
}

void Lanes::ExpireAll(JobId job, MemoryBudget& memory, std::vector<Action>& actions) {
  for (Lane& lane : *this) Expire(lane, job, memory, actions);
}

absl::Time Lanes::RoundDue(const Config& config, LatePolicy late_policy,
                           const Workers& workers) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Lane& lane : *this) {
    if (!lane.round.has_value()) continue;
    next = std::min(next, RoundDeadline(*lane.round, config, late_policy, workers));
  }
  return next;
}

bool Lanes::AnyPaced() const {
  return std::any_of(begin(), end(),
                     [](const Lane& lane) { return lane.round.has_value() && lane.paced; });
}

// ---- limits

uint64_t Lanes::InUse() const {
  const auto used = std::count_if(begin(), end(), [](const Lane& lane) { return !lane.expired; });
  return static_cast<uint64_t>(used);
}

std::string Lanes::MakeRoom(const Config& config, JobId job, MemoryBudget& memory,
                            std::vector<Action>& actions) {
  if (InUse() < config.max_lanes || ExpireOldest(job, memory, actions)) return "";
  return absl::StrCat("the job has reached its limit of ", CountOf(InUse(), "lane"),
                      " (limits.lanes), and each call among them has a round in flight. Wait for "
                      "the outcome of one, or have the limit raised.");
}

bool Lanes::ExpireOldest(JobId job, MemoryBudget& memory, std::vector<Action>& actions,
                         const Lane* except) {
  Lane* oldest = nullptr;
  for (Lane& lane : *this) {
    if (!lane.MayExpire() || &lane == except) continue;
    if (oldest == nullptr || lane.last_used < oldest->last_used) oldest = &lane;
  }
  if (oldest != nullptr) Expire(*oldest, job, memory, actions);
  return oldest != nullptr;
}

const Lane* Lanes::LeastUsedOfTooMany(const Config& config, uint64_t workers) const {
  const Lane* least = nullptr;
  uint64_t names = 0;
  uint64_t bytes = HelloBytes(workers);
  for (const Lane& lane : *this) {
    if (asked_.count(lane.index) > 0) continue;
    ++names;
    bytes += HistoryBytes(lane.layout, lane.layout_bytes, nullptr, workers);
    if (lane.kind != LaneKind::kCall || lane.round.has_value()) continue;
    if (least == nullptr || lane.last_used < least->last_used) least = &lane;
  }
  // Half of the room is for those that come while the workers answer.
  const bool too_many = names > config.max_lane_names / 2 || bytes > config.max_history_bytes / 2;
  return too_many ? least : nullptr;
}

std::string Lanes::WhyNotRemembered(const Config& config, uint64_t workers, const Lane* lane,
                                    const TensorSpec* next) const {
  uint64_t bytes = HelloBytes(workers);
  for (const Lane& other : *this) {
    bytes +=
        HistoryBytes(other.layout, other.layout_bytes, &other == lane ? next : nullptr, workers);
  }
  if (bytes <= config.max_history_bytes) return "";
  return absl::StrCat("the hello of a returning worker could reach ", bytes, " bytes for ",
                      CountOf(lanes_.size(), "lane"), " and ", CountOf(workers, "worker"),
                      ", but the limit is ", config.max_history_bytes,
                      ". Use fewer lanes or tensors, shorter names, or a lower max_workers.");
}

// ---- memory

bool Lanes::NeedsMemory(const Config& config, const Lane& lane) {
  const uint64_t frame = std::min(config.frame_bytes, std::max<uint64_t>(lane.layout.bytes(), 1));
  return !lane.expired && lane.memory.frame < frame;
}

std::string Lanes::Charge(const Config& config, uint64_t workers, MemoryBudget& memory, Lane& lane,
                          const TensorSpec* next, absl::FunctionRef<void()> drop_cached,
                          absl::FunctionRef<bool()> expire) const {
  const uint64_t bytes = next == nullptr ? 0 : TensorBytes(*next).value_or(0);
  const uint32_t chunks = lane.layout.chunks() + ChunkCount(bytes);
  const uint64_t tracking = TrackingBytes(workers, chunks);
  const uint64_t entry = next == nullptr ? 0 : EntryBytes(*next);
  const uint64_t least = tracking + lane.layout_bytes.held + entry +
                         LeastLaneMemory(config, workers, lane.layout.bytes() + bytes).reserved;
  const uint64_t quota = config.max_job_bytes;
  if (quota != 0 && least > quota) {
    return absl::StrCat("would need at least ", least, " bytes for ", CountOf(workers, "worker"),
                        ", but a job may have ", quota,
                        " (limits.job_memory). Lower max_workers, or ask the operator for more.");
  }
  if (least > memory.total) {
    return absl::StrCat("would need at least ", least, " bytes for ", CountOf(workers, "worker"),
                        ", ", tracking, " of them to track ", chunks, " chunks and ",
                        lane.layout_bytes.held + entry,
                        " to describe its tensors, but the aggregator has ", memory.total,
                        ". Give it more memory, or lower max_workers.");
  }
  const uint64_t need = tracking + entry;
  if (need > lane.tracking + memory.free()) drop_cached();
  while (need > lane.tracking + Room(config, memory)) {
    if (!expire()) break;
  }
  if (need > lane.tracking + Room(config, memory)) {
    memory.shortage |= memory.cached > 0;
    return absl::StrCat("needs ", need - lane.tracking, " more bytes to track its ", chunks,
                        " chunks and describe its tensors, but only ", DescribeRoom(config, memory),
                        ". Register it again when a call or a job has ended.");
  }
  memory.reserved += need - lane.tracking;
  lane.tracking = tracking;
  return "";
}

void Lanes::Recharge(uint64_t before, uint64_t after, MemoryBudget& memory) {
  for (Lane& lane : *this) {
    if (lane.expired) continue;
    const uint64_t tracking = lane.tracking;
    lane.tracking = TrackingBytes(after, lane.layout.chunks());
    const uint64_t more = (after - before) * lane.memory.window;  // Modulo 2^64, as below.
    lane.memory.reserved += more;
    memory.ChargeWindows(more);
    memory.reserved += lane.tracking - tracking;
  }
}

void Lanes::Release(MemoryBudget& memory, Lane& lane) {
  memory.ChargeWindows(-lane.memory.reserved);
  memory.reserved -= lane.tracking;
  lane.memory = LaneMemory{};
  lane.tracking = 0;
  lane.optimizers.Clear(memory);
}

uint64_t Lanes::ReservedFor(uint64_t workers, uint64_t now) const {
  uint64_t bytes = 0;
  for (const Lane& lane : *this) {
    bytes += lane.layout_bytes.held + lane.ledger_bytes;
    if (lane.expired) continue;
    bytes += TrackingBytes(workers, lane.layout.chunks()) + lane.memory.reserved;
    bytes += lane.optimizers.bytes();
    bytes += (workers - now) * lane.memory.window;  // Modulo 2^64: right for fewer workers too.
  }
  return bytes;
}

uint64_t Lanes::held_bytes() const {
  uint64_t held = 0;
  for (const Lane& lane : *this) {
    held += lane.layout_bytes.held + lane.tracking + lane.ledger_bytes + lane.memory.reserved +
            lane.optimizers.bytes();
  }
  return held;
}

uint64_t Lanes::RoomInQuota(const Config& config) const {
  if (config.max_job_bytes == 0) return config.memory_bytes;
  return config.max_job_bytes - std::min(config.max_job_bytes, held_bytes());
}

uint64_t Lanes::Room(const Config& config, const MemoryBudget& memory) const {
  return std::min(memory.free(), RoomInQuota(config));
}

std::string Lanes::DescribeRoom(const Config& config, const MemoryBudget& memory) const {
  const uint64_t quota = RoomInQuota(config);
  const bool by_quota = quota < memory.free();
  return absl::StrCat(std::min(quota, memory.free()), " of ",
                      by_quota ? config.max_job_bytes : memory.total,
                      by_quota ? " bytes (limits.job_memory) are free" : " bytes are free");
}

}  // namespace basin::aggregator
