// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/timeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/status_detail.h"

namespace basin::client {
namespace {

// How long records wait for the writer, and a round for copies of its results.
constexpr std::chrono::seconds kWriteAfter{1};
constexpr absl::Duration kCloseAfter = absl::Seconds(1);

}  // namespace

Timeline::Lane* Timeline::Find(LaneHandle lane) {
  const auto found = lanes_.find(lane);
  return found == lanes_.end() ? nullptr : &found->second;
}

RoundMoments* Timeline::Open(LaneHandle handle) {
  Lane* lane = Find(handle);
  return ended_ || lane == nullptr || !lane->round.has_value() ? nullptr : &*lane->round;
}

void Timeline::Queue(TimelineRecord record) {
  if (queue_.size() >= kQueued) {
    ++dropped_;
    return;
  }
  queue_.push_back(std::move(record));
  if (queue_.size() == kQueued / 2) changed_.NotifyAll();
}

void Timeline::Close(Lane& lane) {
  RoundMoments round = *std::exchange(lane.round, std::nullopt);
  lane.idle_since = round.end();
  if (round.failure.empty() && round.round % every_ != 0) return;
  Queue(std::move(round));
}

bool Timeline::Begin(LaneHandle handle) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  Lane* const found = Find(handle);
  if (ended_ || found == nullptr) return false;
  Lane& lane = *found;
  if (lane.round.has_value()) {
    if (!Came(lane.round->delivered)) return false;
    Close(lane);
  }
  RoundMoments& round = lane.round.emplace();
  round.lane = lane.name;
  round.handle = handle;
  round.kind = lane.kind;
  round.idle_since = lane.idle_since;
  round.begun = now;
  return true;
}

void Timeline::Refused(LaneHandle lane) {
  MutexLock lock(mutex_);
  const RoundMoments* round = Open(lane);
  // A call that failed after the round had begun has an outcome.
  if (round != nullptr && !Came(round->decided)) lanes_[lane].round.reset();
}

void Timeline::Pushed(LaneHandle lane, absl::Time begin, uint32_t tensors, uint64_t bytes) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  RoundMoments* round = Open(lane);
  if (round == nullptr || Came(round->committed)) return;
  if (!Came(round->first_push)) round->first_push = begin;
  round->pushing += now - begin;
  round->tensors += tensors;
  round->pushed_bytes += bytes;
}

void Timeline::Commit(LaneHandle lane) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  RoundMoments* round = Open(lane);
  if (round != nullptr && !Came(round->committed)) round->committed = now;
}

void Timeline::Copied(LaneHandle handle, RoundNumber number, absl::Time begin) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  Lane* const found = Find(handle);
  if (ended_ || found == nullptr) return;
  Lane& lane = *found;
  if (!lane.round.has_value()) {
    lane.idle_since = std::max(lane.idle_since, now);  // It was recorded before this copy.
    return;
  }
  RoundMoments& round = *lane.round;
  if (round.round != number || !Came(round.delivered)) return;
  if (!Came(round.first_copy)) round.first_copy = begin;
  round.last_copy = std::max(round.last_copy, now);
  round.copying += now - begin;
}

void Timeline::Register(LaneHandle handle, const std::string& name, LaneKind kind) {
  MutexLock lock(mutex_);
  Lane& lane = lanes_[handle];
  lane.name = name;
  lane.kind = kind;
}

void Timeline::Forget(LaneHandle handle) {
  MutexLock lock(mutex_);
  Lane* const lane = Find(handle);
  if (lane == nullptr) return;
  if (!ended_ && lane->round.has_value() && Came(lane->round->delivered)) Close(*lane);
  lanes_.erase(handle);
}

void Timeline::FirstResult(LaneHandle lane, absl::Time now) {
  MutexLock lock(mutex_);
  RoundMoments* round = Open(lane);
  if (round != nullptr && !Came(round->first_result)) round->first_result = now;
}

void Timeline::Staged(LaneHandle lane, absl::Time now) {
  MutexLock lock(mutex_);
  // The last time counts: a value may be prepared again.
  if (RoundMoments* round = Open(lane); round != nullptr) round->staged = now;
}

void Timeline::Decided(LaneHandle lane, RoundNumber number, uint64_t result_bytes,
                       const RoundOutcome& outcome, absl::Time now) {
  MutexLock lock(mutex_);
  RoundMoments* round = Open(lane);
  if (round == nullptr) return;
  round->round = number;
  round->decided = now;
  round->result_bytes = result_bytes;
  if (!outcome.ok()) {
    const Error error = wire::ToError(outcome.status());
    round->failure = absl::StrCat(ErrorCodeName(error.code), ": ", error.text);
    return;
  }
  const RoundValue& value = (*outcome)->record().value;
  round->contributors = static_cast<uint32_t>(value.contributors.size());
  round->world_size = value.world_size;
}

void Timeline::Delivered(LaneHandle lane) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  if (RoundMoments* round = Open(lane); round != nullptr) round->delivered = now;
}

void Timeline::OnJobView(const JobView& view) {
  const absl::Time now = now_();
  MutexLock lock(mutex_);
  if (ended_) return;
  for (JobMoment& moment : MomentsBetween(view_, view, now)) Queue(std::move(moment));
  view_ = view;
}

Timeline::Batch Timeline::Take() {
  const auto until = std::chrono::steady_clock::now() + kWriteAfter;
  MutexLock lock(mutex_);
  while (!ended_ && queue_.size() < kQueued / 2 && std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  const absl::Time now = now_();
  for (auto& [handle, lane] : lanes_) {
    if (!ended_ && lane.round.has_value() && Came(lane.round->delivered) &&
        lane.round->end() + kCloseAfter <= now) {
      Close(lane);
    }
  }
  Batch batch;
  batch.records.swap(queue_);
  batch.dropped = std::exchange(dropped_, 0);
  batch.ended = ended_;
  return batch;
}

void Timeline::End() {
  MutexLock lock(mutex_);
  for (auto& [handle, lane] : lanes_) {
    if (!ended_ && lane.round.has_value() && Came(lane.round->decided)) Close(lane);
  }
  ended_ = true;
  changed_.NotifyAll();
}

}  // namespace basin::client
