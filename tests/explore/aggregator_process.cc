// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/aggregator_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "protocol/overloaded.h"

namespace basin::explore {

void AggregatorProcess::Open(aggregator::SessionId session) {
  Step(aggregator::SessionOpened{session, session}, nullptr);
}

void AggregatorProcess::Take(aggregator::SessionId session, const Item& item) {
  if (const auto* message = std::get_if<ToAggregator>(&item)) {
    Step(aggregator::MessageReceived{session, *message}, nullptr);
    return;
  }
  const PushFrame& frame = std::get<PushFrame>(item);
  Step(shell_.EventOf(session, frame), &frame);
}

void AggregatorProcess::OpenStream(aggregator::SessionId session) {
  Step(aggregator::StreamOpened{session, session}, nullptr);
}

void AggregatorProcess::LoseStream(aggregator::SessionId session) {
  Step(aggregator::StreamLost{session}, nullptr);
}

void AggregatorProcess::Lose(aggregator::SessionId session) {
  Step(aggregator::SessionClosed{session}, nullptr);
  if (!wrong_.empty()) return;
  now_ = core_.delivery().NextDeadline();
  Step(aggregator::Tick{}, nullptr);
}

void AggregatorProcess::Evict(uint32_t job, const WorkerId& worker) {
  Step(aggregator::EvictWorker{NameOfJob(job), worker, "explored"}, nullptr);
}

void AggregatorProcess::FinishReduction() {
  const Shell::Reduction done = reductions_.front();
  reductions_.erase(reductions_.begin());
  Step(shell_.Finish(done), nullptr);
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
  Step(aggregator::Tick{}, nullptr);
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
  Step(aggregator::Tick{}, nullptr);
}

void AggregatorProcess::Step(const aggregator::Event& event, const PushFrame* arrived) {
  std::vector<aggregator::Action> actions;
  delivery_.Take(event, now_, core());
  core_.Step(event, now_, actions);
  // The core's next deadline depends on which deadlines it last looked at. A tick makes it look at
  // all of them, so equal states have equal deadlines.
  core_.Step(aggregator::Tick{}, now_, actions);
  wrong_ = delivery_.Check(actions, now_, core());
  for (aggregator::Action& action : actions) Do(action, arrived);
  const auto dead = [this](const Shell::Reduction& one) { return !shell_.IsLive(one); };
  reductions_.erase(std::remove_if(reductions_.begin(), reductions_.end(), dead),
                    reductions_.end());
}

void AggregatorProcess::Check(const absl::Status& status) {
  if (!status.ok() && wrong_.empty()) wrong_ = std::string(status.message());
}

void AggregatorProcess::Do(aggregator::Action& action, const PushFrame* arrived) {
  using Kind = AggregatorOutput::Kind;
  const auto unexpected = [this](const auto&) {
    wrong_ = "it asks for something that no explored world leads to";
  };
  const auto send_on = [this](aggregator::StreamId stream, const Shell::Frame& frame) {
    outputs_.push_back({Kind::kFrame, stream, Item(std::get<ResultFrame>(frame))});
  };
  std::visit(
      Overloaded{
          [&](aggregator::Send& send) {
            outputs_.push_back({Kind::kMessage, send.session, Item(std::move(send.message))});
          },
          [&](const aggregator::SendAll& send) {
            for (const aggregator::SessionId session : send.sessions) {
              outputs_.push_back({Kind::kMessage, session, Item(send.message)});
            }
          },
          [&](aggregator::EndSession& end) {
            outputs_.push_back(
                {Kind::kEnd, end.session, Item(ToWorker(Ended{std::move(end.error)}))});
          },
          [&](const aggregator::KeepChunks& keep) { Check(shell_.Do(keep, arrived)); },
          [&](const aggregator::Reduce& reduce) {
            absl::StatusOr<Shell::Reduction> reduction = shell_.Do(reduce);
            Check(reduction.status());
            if (reduction.ok()) reductions_.push_back(*std::move(reduction));
          },
          [&](const aggregator::Publish& publish) { Check(shell_.Do(publish, send_on)); },
          [&](const aggregator::RelayResult& relay) { Check(shell_.Do(relay, arrived, send_on)); },
          [&](const aggregator::SendFrame& send) { Check(shell_.Do(send, send_on)); },
          // A worker sees nothing of these.
          [](const aggregator::Note&) {},
          [](const aggregator::ResultsTaken&) {},
          [](const aggregator::AcceptStream&) {},
          [](const aggregator::CloseStream&) {},
          [](const aggregator::Drained&) {},
          // No explored world broadcasts values or writes a state file.
          [&](const aggregator::RelayValue& relay) { unexpected(relay); },
          [&](const aggregator::SendValue& send) { unexpected(send); },
          [&](const aggregator::DropValue& drop) { unexpected(drop); },
          [&](const aggregator::SaveState& save) { unexpected(save); },
          [&](const aggregator::SaveSettings& save) { unexpected(save); },
          [&](const auto& other) { Check(shell_.Do(other)); },
      },
      action);
}

}  // namespace basin::explore
