// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/core/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
namespace {

// A leader that has not renewed for so many leases gives up. In the second one, another one leads
// if there is one.
constexpr int kLeasesUntilEnd = 2;

// After a step-down, the others have so many leases to take the lead.
constexpr int kLeasesForOthers = 2;

// A record that was lost may have named a lease that was longer than this aggregator's.
constexpr int kLeasesAfterLoss = 2;

}  // namespace

// A sixth of the default lease is the longest pause that goes unnoticed by default.
absl::Duration LeadershipConfig::margin() const {
  return lease / 50 + std::min(unnoticed_pause, lease / 6);
}

absl::Duration LeadershipConfig::retry_after() const {
  return std::min(lease / 20, absl::Milliseconds(500));
}

// Workers wait for so long, at most, until a lead that was given up is seen, also where the lease
// is long.
absl::Duration LeadershipConfig::read_every() const {
  return std::clamp(lease / 20, absl::Milliseconds(10), absl::Milliseconds(150));
}

// The other one reads it as often as read_every says, and workers wait meanwhile.
absl::Duration LeadershipConfig::look_for_successor_every() const {
  return std::clamp(lease / 150, absl::Milliseconds(10), absl::Milliseconds(100));
}

// Longer than another one takes to see it and to write.
absl::Duration LeadershipConfig::wait_for_successor() const {
  return std::min(lease / 5, absl::Seconds(2));
}

Leadership::Leadership(LeadershipConfig config, absl::Time start)
    : config_(std::move(config)), next_request_(start), asked_at_(start), renewed_at_(start) {}

void Leadership::Step(const LeadershipEvent& event, absl::Time now, absl::Time wall,
                      std::vector<LeadershipAction>& actions) {
  if (state_ == LeadershipState::kRetired) return;
  std::visit(Overloaded{
                 [&](const RecordRead& read) { OnRead(read.state, now, wall, actions); },
                 [&](const RecordWritten& done) { OnWritten(done.version, now, actions); },
                 [&](const WriteRefused&) { OnRefused(now, actions); },
                 [&](const RequestFailed& failed) { OnFailed(failed.why, now, actions); },
                 [&](const StepDown&) { GiveUp(false, now, actions); },
                 [&](const Retire&) { GiveUp(true, now, actions); },
                 [](const TimePassed&) {},
             },
             event);
  OnTime(now, actions);
}

absl::Time Leadership::NextDeadline() const {
  if (state_ == LeadershipState::kRetired) return absl::InfiniteFuture();
  absl::Time next = asking_ ? absl::InfiniteFuture() : next_request_;
  if (leads()) next = std::min(next, renewed_at_ + kLeasesUntilEnd * config_.lease);
  if (state_ == LeadershipState::kReleased) next = std::min(next, released_until_);
  return next;
}

// ---- answers

void Leadership::OnRead(const RecordState& state, absl::Time now, absl::Time wall,
                        std::vector<LeadershipAction>& actions) {
  asking_ = false;
  trouble_.clear();
  See(state, now);
  if (state_ == LeadershipState::kReleasing) return FinishRelease(now, actions);
  if (state_ == LeadershipState::kReleased) {
    if (IsLed() && !IsMine()) return LetGo(WhoLeads(), now, actions);
    next_request_ = now + config_.look_for_successor_every();
    return;
  }
  if (leads()) {
    if (IsMine() && seen_.record->fence == written_.fence) return Renew(now, actions);
    Follow(WhoLeads(), now, actions);
    return;
  }
  const auto seconds = static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixSeconds(wall), 0));
  const uint64_t fence = std::max(highest_fence_ + 1, seconds);
  if (!seen_.record.has_value()) return Write({fence, kNobody, "", config_.lease}, now, actions);
  const absl::Time take = std::max(MayTakeAt(), not_before_);
  if (now < take) {
    next_request_ =
        std::min(std::max(take, now + config_.retry_after()), now + config_.read_every());
    return;
  }
  state_ = LeadershipState::kTaking;
  Write({fence, config_.holder, config_.address, config_.lease}, now, actions);
}

void Leadership::OnWritten(const std::string& version, absl::Time now,
                           std::vector<LeadershipAction>& actions) {
  asking_ = writing_ = false;
  trouble_.clear();
  See({written_, version, false}, now);
  if (state_ == LeadershipState::kReleasing && written_.holder.empty()) {
    state_ = LeadershipState::kReleased;
    released_until_ = now + config_.wait_for_successor();
    next_request_ = now + config_.look_for_successor_every();
    return;
  }
  if (state_ == LeadershipState::kReleasing) return FinishRelease(now, actions);
  const bool begins = state_ == LeadershipState::kTaking;
  if (!begins && !leads()) {  // It wrote that nobody leads, or has given up meanwhile.
    next_request_ = now + config_.read_every();
    return;
  }
  const absl::Time until = asked_at_ + config_.lease - config_.margin();
  if (begins && now >= until) {  // Another one may lead by now.
    state_ = LeadershipState::kStandby;
    next_request_ = now;
    return;
  }
  state_ = LeadershipState::kLeading;
  renewed_at_ = asked_at_;
  decides_until_ = until;
  next_request_ = std::max(now, asked_at_ + config_.renew_every());
  if (begins) actions.push_back(BeginLeading{written_.fence});
  actions.push_back(DecideUntil{until});
}

void Leadership::OnRefused(absl::Time now, std::vector<LeadershipAction>& actions) {
  asking_ = writing_ = knows_ = false;
  trouble_.clear();
  if (state_ == LeadershipState::kReleasing) return FinishRelease(now, actions);
  // An earlier renewal whose answer was lost looks the same as another leader.
  if (leads()) StopDeciding(now, actions);
  if (state_ == LeadershipState::kTaking) state_ = LeadershipState::kStandby;
  next_request_ = leads() ? now : now + config_.retry_after();
}

void Leadership::OnFailed(const std::string& why, absl::Time now,
                          std::vector<LeadershipAction>& actions) {
  asking_ = false;
  if (std::exchange(writing_, false)) knows_ = false;
  trouble_ = why;
  if (state_ == LeadershipState::kReleasing) return FinishRelease(now, actions);
  if (state_ == LeadershipState::kTaking) state_ = LeadershipState::kStandby;
  next_request_ = now + config_.retry_after();
}

// ---- time

void Leadership::OnTime(absl::Time now, std::vector<LeadershipAction>& actions) {
  if (leads() && now >= renewed_at_ + kLeasesUntilEnd * config_.lease) {
    Follow(absl::StrCat("its lease could not be renewed",
                        trouble_.empty() ? "" : absl::StrCat(": ", trouble_)),
           now, actions);
  }
  if (state_ == LeadershipState::kReleased && now >= released_until_) {
    LetGo("it has given up the lead", now, actions);
  }
  if (asking_ || now < next_request_ || state_ == LeadershipState::kRetired) return;
  leads() && knows_ ? Renew(now, actions) : Read(actions);
}

void Leadership::GiveUp(bool for_good, absl::Time now, std::vector<LeadershipAction>& actions) {
  retiring_ = retiring_ || for_good;
  if (state_ == LeadershipState::kReleasing || state_ == LeadershipState::kReleased) return;
  if (!leads()) {
    if (for_good) state_ = LeadershipState::kRetired;
    return;
  }
  StopDeciding(now, actions);
  state_ = LeadershipState::kReleasing;
  // Without the version, others wait until the lease is over.
  if (asking_) return;
  if (!knows_) return FinishRelease(now, actions);
  Write({written_.fence, "", "", config_.lease}, now, actions);
}

void Leadership::FinishRelease(absl::Time now, std::vector<LeadershipAction>& actions) {
  // A renewal was under way when the lead was given up.
  if (IsMine() && knows_ && !asking_ && !written_.holder.empty()) {
    Write({written_.fence, "", "", config_.lease}, now, actions);
    return;
  }
  LetGo("it has given up the lead", now, actions);
}

void Leadership::LetGo(std::string why, absl::Time now, std::vector<LeadershipAction>& actions) {
  Follow(std::move(why), now, actions);
  not_before_ = now + kLeasesForOthers * config_.lease;
  if (retiring_) state_ = LeadershipState::kRetired;
}

// ---- parts

void Leadership::See(const RecordState& state, absl::Time now) {
  if (!saw_ || state.version != seen_.version) seen_at_ = now;
  saw_ = knows_ = true;
  seen_ = state;
  if (!state.record.has_value()) return;
  highest_fence_ = std::max(highest_fence_, state.record->fence);
  if (IsLed() && !IsMine()) not_before_ = absl::InfinitePast();
}

bool Leadership::IsLed() const {
  return seen_.record.has_value() && !seen_.record->holder.empty() &&
         seen_.record->holder != kNobody;
}

bool Leadership::IsMine() const {
  return seen_.record.has_value() && seen_.record->holder == config_.holder;
}

absl::Time Leadership::MayTakeAt() const {
  if (seen_.record->holder.empty() || seen_.holder_ended || IsMine()) return seen_at_;
  const absl::Duration lease = std::max(seen_.record->lease, config_.lease);
  return seen_at_ + (seen_.record->holder == kNobody ? kLeasesAfterLoss : 1) * lease;
}

void Leadership::Read(std::vector<LeadershipAction>& actions) {
  asking_ = true;
  actions.push_back(ReadRecord{});
}

void Leadership::Write(LeaderRecord record, absl::Time now,
                       std::vector<LeadershipAction>& actions) {
  asking_ = writing_ = true;
  asked_at_ = now;
  written_ = std::move(record);
  actions.push_back(WriteRecord{written_, seen_.version});
}

void Leadership::Renew(absl::Time now, std::vector<LeadershipAction>& actions) {
  Write(written_, now, actions);
}

void Leadership::StopDeciding(absl::Time now, std::vector<LeadershipAction>& actions) {
  decides_until_ = std::min(decides_until_, now);
  actions.push_back(DecideUntil{decides_until_});
}

std::string Leadership::WhoLeads() const {
  if (!seen_.record.has_value() || seen_.record->holder == kNobody) {
    return "the authority has lost the record of the leader";
  }
  if (seen_.record->holder.empty()) return "the record of the leader says that nobody leads";
  return absl::StrCat(seen_.record->holder, " has taken the lead");
}

void Leadership::Follow(std::string why, absl::Time now, std::vector<LeadershipAction>& actions) {
  StopDeciding(now, actions);
  state_ = LeadershipState::kStandby;
  next_request_ = now + config_.retry_after();
  actions.push_back(EndLeading{std::move(why)});
}

}  // namespace basin::aggregator
