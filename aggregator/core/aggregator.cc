// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/aggregator.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

Aggregator::Aggregator(Config config, absl::Time start)
    : coordinator_(std::move(config), start), delivery_(coordinator_.config()) {}

void Aggregator::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  if (const auto* opened = std::get_if<SessionOpened>(&event)) {
    delivery_.OpenSession(opened->session, opened->token);
  }
  if (!std::holds_alternative<Tick>(event)) return Decide(event, now, actions);
  for (const SessionLost& lost : delivery_.TakeSettled(now, actions)) Decide(lost, now, actions);
  if (coordinator_.NextDeadline() <= now) Decide(event, now, actions);
}

void Aggregator::Decide(const Event& event, absl::Time now, std::vector<Action>& actions) {
  const size_t first = actions.size();
  coordinator_.Step(event, now, actions);
  delivery_.Route(actions, first);
}

void Aggregator::CloseSession(SessionId session, std::string ended, absl::Time now,
                              std::vector<Action>& actions) {
  delivery_.CloseSession(session, std::move(ended), now, actions);
}

void Aggregator::OpenStream(StreamId stream, SessionToken token, std::vector<Action>& actions) {
  const std::optional<SessionId> session = delivery_.SessionOf(token);
  delivery_.OpenStream(stream, token,
                       session.has_value() ? coordinator_.JobOf(*session) : std::nullopt, actions);
}

void Aggregator::LoseStream(StreamId stream, std::vector<Action>& actions) {
  delivery_.LoseStream(stream, actions);
}

absl::Time Aggregator::NextDeadline() const {
  return std::min(coordinator_.NextDeadline(), delivery_.NextDeadline());
}

}  // namespace basin::aggregator
