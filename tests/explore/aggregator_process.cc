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
  Step(aggregator::FrameReceived{session,
                                 frame.kind,
                                 frame.lane,
                                 frame.round,
                                 frame.ballot,
                                 frame.ranges,
                                 frame.bytes,
                                 {DigestOf(frame.chunks[0])}},
       &frame);
}

void AggregatorProcess::Lose(aggregator::SessionId session) {
  Step(aggregator::SessionLost{session, false}, nullptr);
}

void AggregatorProcess::Evict(const WorkerId& worker) {
  Step(aggregator::EvictWorker{kJob, worker, "explored"}, nullptr);
}

void AggregatorProcess::FinishReduction() {
  const Shell::Reduction done = reductions_.front();
  reductions_.erase(reductions_.begin());
  Step(shell_.Finish(done), nullptr);
}

bool AggregatorProcess::WindowRuns() const {
  if (job() == nullptr) return now_ < started_ + core_.config().recovery_window;
  return job()->state() == aggregator::JobState::kRecovering;
}

void AggregatorProcess::PassWindow() {
  now_ += core_.config().recovery_window;
  Step(aggregator::Tick{}, nullptr);
}

bool AggregatorProcess::StartTimeoutRuns() const {
  return job() != nullptr && job()->state() == aggregator::JobState::kForming &&
         core_.NextDeadline() != absl::InfiniteFuture();
}

void AggregatorProcess::PassStartTimeout() {
  now_ += core_.config().start_timeout;
  Step(aggregator::Tick{}, nullptr);
}

void AggregatorProcess::Step(const aggregator::Event& event, const PushFrame* arrived) {
  wrong_.clear();
  outputs_.clear();
  std::vector<aggregator::Action> actions;
  core_.Step(event, now_, actions);
  // When the core next wants to wake depends on what it last looked at; a tick makes it look at
  // all.
  core_.Step(aggregator::Tick{}, now_, actions);
  for (aggregator::Action& action : actions) Do(action, arrived);
  const auto dead = [this](const Shell::Reduction& one) { return !shell_.IsLive(one); };
  reductions_.erase(std::remove_if(reductions_.begin(), reductions_.end(), dead),
                    reductions_.end());
}

void AggregatorProcess::Check(const absl::Status& status) {
  if (!status.ok()) wrong_ = std::string(status.message());
}

void AggregatorProcess::Do(aggregator::Action& action, const PushFrame* arrived) {
  using Kind = AggregatorOutput::Kind;
  const auto unexpected = [this](const auto&) {
    wrong_ = "it asks for something that no explored world leads to";
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
          [&](const aggregator::Publish& publish) {
            SendResult(publish.sessions, shell_.ResultOf(publish, publish.ranges));
          },
          [&](const aggregator::RelayResult& relay) {
            SendResult(relay.sessions, shell_.ResultOf(relay, arrived));
          },
          // Nothing that a worker sees.
          [](const aggregator::Note&) {},
          [](const aggregator::ResultsTaken&) {},
          [](const aggregator::Drained&) {},
          // No values are broadcast, nothing is written down, and streams are not lost alone.
          [&](const aggregator::RelayValue& relay) { unexpected(relay); },
          [&](const aggregator::SendValue& send) { unexpected(send); },
          [&](const aggregator::DropValue& drop) { unexpected(drop); },
          [&](const aggregator::SaveState& save) { unexpected(save); },
          [&](const aggregator::AcceptStream& accept) { unexpected(accept); },
          [&](const aggregator::CloseStream& close) { unexpected(close); },
          [&](const aggregator::SendFrame& send) { unexpected(send); },
          [&](const aggregator::ForgetFrames& forget) { unexpected(forget); },
          [&](const auto& other) { Check(shell_.Do(other)); },
      },
      action);
}

void AggregatorProcess::SendResult(const std::vector<aggregator::SessionId>& sessions,
                                   const absl::StatusOr<ResultFrame>& frame) {
  Check(frame.status());
  if (!frame.ok()) return;
  for (const aggregator::SessionId session : sessions) {
    outputs_.push_back({AggregatorOutput::Kind::kFrame, session, Item(*frame)});
  }
}

}  // namespace basin::explore
