// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/aggregator_process.h"

#include <algorithm>
#include <utility>
#include <variant>

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

void AggregatorProcess::Step(const aggregator::Event& event) {
  std::vector<aggregator::Action> actions;
  Decide(event, now_, actions);
  // The core's next deadline depends on which deadlines it last looked at. A tick makes it look at
  // all of them, so equal states have equal deadlines.
  core_.Step(aggregator::Tick{}, now_, actions);
  wrong_ = Wrong(actions, now_);
  for (aggregator::Action& action : actions) CarryOut(action, *this);
  const auto dead = [this](const Reduction& one) { return !shell_.IsLive(one); };
  reductions_.erase(std::remove_if(reductions_.begin(), reductions_.end(), dead),
                    reductions_.end());
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
