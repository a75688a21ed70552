// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/unheard.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace basin::aggregator {
namespace {

// The kernel's own unit; see ProbeWhenIdle.
constexpr std::chrono::seconds kUntilProbes{1};
// The kernel ends a connection after twice as many without an answer.
constexpr uint32_t kMostProbes = 64;
// A longer time between two looks is one in which this process did not run.
constexpr std::chrono::milliseconds kLongestNap{500};
// What was heard for the last time so long ago was heard by the last look or this one.
constexpr std::chrono::milliseconds kJustHeard{100};

}  // namespace

void Unheard::Begin(Clock::time_point now) {
  if (now - looked_ > kLongestNap) awake_since_ = now;
  looked_ = now;
  before_ = std::exchange(sessions_, {});
}

void Unheard::Add(SessionId session, const KernelView& view, int descriptor) {
  Connections& connections = sessions_[session];
  ++connections.count;
  connections.unheard = std::min(connections.unheard, view.unheard);
  connections.round_trip = std::max(connections.round_trip, view.round_trip);
  connections.packets += view.packets;
  if (view.unheard >= kUntilProbes && view.probes < kMostProbes) {
    connections.descriptors.push_back(descriptor);
  }
}

std::vector<UnheardSession> Unheard::End() {
  std::vector<UnheardSession> unheard;
  const auto awake = std::chrono::duration_cast<std::chrono::milliseconds>(looked_ - awake_since_);
  for (auto& [session, now] : sessions_) {
    const auto before = before_.find(session);
    // The packets of other connections cannot be compared.
    const bool heard = now.unheard < kJustHeard || before == before_.end() ||
                       now.unheard < before->second.unheard || now.count != before->second.count;
    now.packets_heard = heard ? now.packets : before->second.packets_heard;
    if (now.unheard < kUntilProbes) continue;
    for (const int descriptor : now.descriptors) probe_(descriptor);
    // The answer to the last packet may be on its way.
    const auto time = std::min(now.unheard, awake) - 2 * now.round_trip;
    if (time < kUntilProbes) continue;
    unheard.push_back({session, absl::FromChrono(time), now.packets - now.packets_heard});
  }
  return unheard;
}

}  // namespace basin::aggregator
