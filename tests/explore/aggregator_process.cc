// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/aggregator_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "aggregator/core/job_placement.h"
#include "protocol/overloaded.h"
#include "tests/world/receivers.h"

namespace basin::explore {

void AggregatorProcess::Open(aggregator::SessionId session) {
  Step(aggregator::SessionOpened{session, session});
}

void AggregatorProcess::Take(aggregator::SessionId session, const Item& item) {
  if (const auto* message = std::get_if<ToAggregator>(&item)) {
    Step(aggregator::MessageReceived{session, *message});
    return;
  }
  Arrive(session, std::get<PushFrame>(item), *this);
}

void AggregatorProcess::OpenStream(aggregator::SessionId session) {
  Step(aggregator::StreamOpened{session, session});
}

void AggregatorProcess::LoseStream(aggregator::SessionId session) {
  Step(aggregator::StreamLost{session});
}

void AggregatorProcess::Lose(aggregator::SessionId session) {
  Step(aggregator::SessionClosed{session});
  if (!wrong_.empty()) return;
  now_ = core_.delivery().NextDeadline();
  Step(aggregator::Tick{});
}

void AggregatorProcess::Evict(uint32_t job, const WorkerId& worker) {
  Step(aggregator::EvictWorker{NameOfJob(job), worker, "explored"});
}

void AggregatorProcess::FinishReduction() {
  const Reduction done = reductions_.front();
  reductions_.erase(reductions_.begin());
  Step(shell_.Finish(done));
}

bool AggregatorProcess::WindowRuns() const {
  for (uint32_t i = 0; i < jobs_; ++i) {
    const aggregator::Job* job = FindJob(i);
    if (job == nullptr ? now_ < started_ + core().config().recovery_window
                       : job->state() == aggregator::JobState::kRecovering) {
      return true;
    }
  }
  return false;
}

void AggregatorProcess::PassWindow() {
  now_ += core().config().recovery_window;
  Step(aggregator::Tick{});
}

absl::Time AggregatorProcess::GraceEnd() const {
  absl::Time end = absl::InfiniteFuture();
  for (uint32_t i = 0; i < jobs_; ++i) {
    const aggregator::Job* job = FindJob(i);
    if (job == nullptr) continue;
    for (const aggregator::Lane& lane : job->lanes) {
      if (!lane.round.has_value() || lane.round->phase() != RoundPhase::kCollect) continue;
      end = std::min(end, lane.round->leave_out_at);
    }
  }
  return end;
}

void AggregatorProcess::PassGrace() {
  now_ = std::max(now_, GraceEnd());
  Step(aggregator::Tick{});
}

bool AggregatorProcess::StartTimeoutRuns() const {
  for (uint32_t i = 0; i < jobs_; ++i) {
    const aggregator::Job* job = FindJob(i);
    const bool forms = job != nullptr && job->state() == aggregator::JobState::kForming;
    if (forms && core().NextDeadline() != absl::InfiniteFuture()) return true;
  }
  return false;
}

void AggregatorProcess::PassStartTimeout() {
  now_ += core().config().start_timeout;
  Step(aggregator::Tick{});
}

// ---- shards

void AggregatorProcess::TakeShard(uint32_t slot, ShardId id) {
  LoseShard(slot);  // It has not noticed the end of the life before.
  shards_.emplace(slot, ShardProcess(id));
  Step(aggregator::ShardUp{id, absl::StrCat("s", slot), EndpointOf(slot)});
}

void AggregatorProcess::LoseShard(uint32_t slot) {
  const auto shard = shards_.extract(slot);
  if (!shard.empty()) {
    Step(aggregator::ShardLost{shard.mapped().id(), "its connection was lost."});
  }
}

void AggregatorProcess::HearShard(uint32_t slot) {
  ShardProcess& shard = shards_.at(slot);
  const ShardId id = shard.id();
  const ShardProcess::Report report = shard.TakeReport();
  std::visit(Overloaded{
                 [&](const ShardProcess::Opened& opened) {
                   Step(aggregator::StreamOpened{opened.stream, opened.token, id});
                 },
                 [&](const ShardProcess::Lost& lost) { Step(aggregator::StreamLost{lost.stream}); },
                 [&](const ShardProcess::Arrived& arrived) {
                   aggregator::FrameReceived event = Shell::EventOf(arrived.session, arrived.frame);
                   event.shard = id;
                   reported_ = &arrived.frame;
                   Step(std::move(event));
                   reported_ = nullptr;
                 },
                 [&](const Reduction& reduction) { Step(shard.Finish(reduction)); },
                 [&](const ShardProcess::Draining&) { Step(aggregator::ShardDraining{id}); },
             },
             report);
}

void AggregatorProcess::CloseShardStream(aggregator::StreamId stream) {
  for (auto& [slot, shard] : shards_) {
    if (shard.Has(stream)) shard.Close(stream);
  }
}

void AggregatorProcess::TakeAtShard(aggregator::StreamId stream, const Item& item) {
  for (auto& [slot, shard] : shards_) {
    if (shard.Has(stream)) shard.Take(stream, std::get<PushFrame>(item));
  }
}

absl::Time AggregatorProcess::VacateAt() const {
  absl::Time at = absl::InfiniteFuture();
  for (const auto& [id, shard] : core().shards()) {
    if (!shard.drains_since.has_value() || shard.released) continue;
    const absl::Time due = *shard.drains_since + absl::Seconds(1);
    if (now_ < due) at = std::min(at, due);
  }
  return at;
}

absl::Time AggregatorProcess::UnreachableEnd() const {
  absl::Time end = absl::InfiniteFuture();
  for (uint32_t i = 0; i < jobs_; ++i) {
    const aggregator::Job* job = FindJob(i);
    if (job != nullptr) end = std::min(end, aggregator::UnreachableDue(*job, core().config()));
  }
  return end;
}

void AggregatorProcess::PassUntil(absl::Time time) {
  now_ = std::max(now_, time);
  Step(aggregator::Tick{});
}

// ---- steps

void AggregatorProcess::Step(const aggregator::Event& event) {
  std::vector<aggregator::Action> actions;
  Decide(event, now_, actions);
  // The core's next deadline depends on which deadlines it last looked at. A tick makes it look at
  // all of them, so equal states have equal deadlines.
  core_.Step(aggregator::Tick{}, now_, actions);
  if (wrong_.empty()) wrong_ = Wrong(actions, now_);
  std::vector<ShardId> released;
  for (aggregator::Action& action : actions) {
    const auto* release = std::get_if<aggregator::ReleaseShard>(&action);
    if (release != nullptr) released.push_back(release->shard);
    Route(action);
  }
  const auto dead = [this](const Reduction& one) { return !shell_.IsLive(one); };
  reductions_.erase(std::remove_if(reductions_.begin(), reductions_.end(), dead),
                    reductions_.end());
  for (auto& [slot, shard] : shards_) shard.EndStep();
  for (const ShardId id : released) EndReleased(id);
}

void AggregatorProcess::Route(aggregator::Action& action) {
  const world::Receivers receivers = world::ReceiversOf(action);
  for (auto& [slot, shard] : shards_) {
    if (!shard.alive() || !receivers.Has(shard.id())) continue;
    Require(shard.CarryOut(action, reported_, outputs_));
  }
  if (receivers.Has(kCoordinatorShard)) CarryOut(action, *this);
}

void AggregatorProcess::EndReleased(ShardId id) {
  const auto shard = shards_.extract(SlotOf(id));
  if (shard.empty()) return;
  bool given_up = false;  // A job went on without it, so it may hold what nobody asks for.
  for (uint32_t i = 0; i < jobs_; ++i) {
    const aggregator::Job* job = FindJob(i);
    given_up = given_up || (job != nullptr && job->placements.Excludes(id));
  }
  if (shard.mapped().held_bytes() > 0 && !given_up) {
    Require(absl::InternalError(absl::StrCat("it releases shard ", id, ", which holds ",
                                             shard.mapped().held_bytes(), " bytes")));
  }
  std::vector<aggregator::Action> actions;
  Decide(aggregator::ShardLost{id, "It was released."}, now_, actions);
  core_.Step(aggregator::Tick{}, now_, actions);
  for (const aggregator::Action& action : actions) {
    if (std::holds_alternative<aggregator::Note>(action)) continue;
    Require(absl::InternalError(absl::StrCat("it releases shard ", id, ", which is needed")));
  }
}

void AggregatorProcess::Require(const absl::Status& status) {
  if (!status.ok() && wrong_.empty()) wrong_ = std::string(status.message());
}

void AggregatorProcess::Do(const aggregator::SendAll& send) {
  for (const aggregator::SessionId session : send.sessions) {
    outputs_.push_back({Kind::kMessage, session, Item(send.message)});
  }
}

}  // namespace basin::explore
