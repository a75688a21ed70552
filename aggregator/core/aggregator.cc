// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/aggregator.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

Aggregator::Aggregator(Config config, absl::Time start)
    : coordinator_(std::move(config), start), delivery_(coordinator_.config()) {}

bool Aggregator::IsOfLostShard(const Event& event) const {
  ShardId shard = kCoordinatorShard;
  if (const auto* opened = std::get_if<StreamOpened>(&event)) shard = opened->shard;
  if (const auto* input = std::get_if<Input>(&event)) {
    if (const auto* frame = std::get_if<FrameReceived>(input)) shard = frame->shard;
    if (const auto* done = std::get_if<ReduceDone>(input)) shard = done->shard;
  }
  return shard != kCoordinatorShard && coordinator_.shards().count(shard) == 0;
}

void Aggregator::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  if (IsOfLostShard(event)) return;
  if (const auto* closed = std::get_if<SessionClosed>(&event)) {
    return delivery_.CloseSession(closed->session, closed->ended, now, actions, closed->malformed);
  }
  if (const auto* opened = std::get_if<StreamOpened>(&event)) {
    const std::optional<SessionId> session = delivery_.SessionOf(opened->token);
    const std::optional<JobId> job =
        session.has_value() ? coordinator_.JobOf(*session) : std::nullopt;
    return delivery_.OpenStream(opened->stream, opened->token, job, actions, opened->shard);
  }
  if (const auto* lost = std::get_if<StreamLost>(&event)) {
    return delivery_.LoseStream(lost->stream, actions);
  }
  const Input& input = std::get<Input>(event);
  if (std::holds_alternative<Tick>(input)) {
    for (const SessionLost& lost : delivery_.TakeLingered(now, actions)) Decide(lost, now, actions);
    if (coordinator_.NextDeadline() <= now) Decide(input, now, actions);
    return;
  }
  if (const auto* opened = std::get_if<SessionOpened>(&input)) {
    delivery_.OpenSession(opened->session, opened->token);
  }
  if (const auto* lost = std::get_if<ShardLost>(&input)) delivery_.LoseShard(lost->shard);
  Decide(input, now, actions);
}

template <typename In>
void Aggregator::Decide(const In& input, absl::Time now, std::vector<Action>& actions) {
  const size_t first = actions.size();
  coordinator_.Step(input, now, actions);
  delivery_.Route(actions, first);
}

absl::Time Aggregator::NextDeadline() const {
  return std::min(coordinator_.NextDeadline(), delivery_.NextDeadline());
}

}  // namespace basin::aggregator
