// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/held_back.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

constexpr HeldBack::Clock::duration kFirst = std::chrono::seconds(1);
constexpr HeldBack::Clock::duration kLongest = std::chrono::seconds(32);
constexpr HeldBack::Clock::duration kForgotten = std::chrono::minutes(1);
constexpr size_t kMost = 4096;

}  // namespace

void HeldBack::Add(const std::string& address) {
  const std::string source = SourceOf(address);
  const Clock::time_point now = Clock::now();
  MutexLock lock(mutex_);
  for (auto it = holds_.begin(); it != holds_.end();) {
    it = it->second.until + kForgotten < now ? holds_.erase(it) : std::next(it);
  }
  if (holds_.size() >= kMost && holds_.count(source) == 0) return;
  Hold& hold = holds_[source];
  hold.time = std::clamp(2 * hold.time, kFirst, kLongest);
  hold.until = now + hold.time;
}

HeldBack::Clock::time_point HeldBack::Until(const std::string& source) const {
  MutexLock lock(mutex_);
  const auto found = holds_.find(source);
  return found == holds_.end() ? Clock::time_point::min() : found->second.until;
}

}  // namespace basin::aggregator
