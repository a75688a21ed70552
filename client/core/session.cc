// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/session.h"

#include <algorithm>
#include <utility>

#include "protocol/transitions.h"

namespace basin::client {
namespace {

// For every interval that an aggregator requests, heartbeats are neither too frequent nor too rare.
constexpr absl::Duration kShortestHeartbeat = absl::Milliseconds(10);
constexpr absl::Duration kLongestHeartbeat = absl::Seconds(30);
// A frame with its header stays within 4 MiB.
constexpr uint64_t kMostFrameChunks = 15;

// With several addresses, another aggregator may take over at any moment, and the worker should
// meet it soon. So all of them are tried so many times before the pause between two attempts grows.
constexpr uint32_t kTurnsAtAPace = 4;

// An aggregator is then tried about once a second at least, by the default limit.
absl::Duration BackoffLimit(const Config& config) {
  if (config.addresses == 1) return config.backoff_limit;
  return config.backoff_limit / (2 * int64_t{config.addresses});
}

absl::Duration LongestBackoff(const Config& config, uint32_t failures) {
  const uint32_t turns = failures / config.addresses;
  if (turns == 0) return absl::ZeroDuration();
  const uint32_t pace = config.addresses == 1 ? 1 : kTurnsAtAPace;
  const absl::Duration limit = BackoffLimit(config);
  absl::Duration delay = config.backoff_first;
  for (uint32_t i = pace; i < turns && delay < limit; i += pace) delay *= 2;
  return std::min(delay, limit);
}

}  // namespace

absl::Duration Session::Backoff(const Config& config, uint32_t failures) {
  const absl::Duration delay = LongestBackoff(config, failures);
  if (delay == absl::ZeroDuration()) return delay;
  // SplitMix64, see Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
  uint64_t z = (jitter_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  const uint64_t half = static_cast<uint64_t>(absl::ToInt64Nanoseconds(delay / 2));
  return delay / 2 + absl::Nanoseconds(static_cast<int64_t>(z % (half + 1)));
}

bool Session::Apply(const Config& config, SessionInput input, Error trouble,
                    std::vector<Action>& actions) {
  const SessionTransition* row = FindRow(kSessionTransitions, phase_, input);
  if (row == nullptr) return false;
  phase_ = row->to;
  switch (input) {
    case SessionInput::kUp:
      return true;
    case SessionInput::kWelcome:
      failures_ = 0;
      trouble_ = Error{};
      return true;
    case SessionInput::kRetry:
      failures_ = std::max(failures_, config.addresses);
      [[fallthrough]];
    case SessionInput::kAgain:
    case SessionInput::kStop:
      if (row->from != SessionPhase::kNew) actions.push_back(CloseSession{trouble.text});
      break;
    case SessionInput::kStart:
    case SessionInput::kDown:
      break;
  }
  streams_.Reset();
  token_ = 0;
  trouble_ = std::move(trouble);
  if (phase_ != SessionPhase::kConnecting) return true;
  // One new incarnation does not wait for the connection that was lost before; several in a row do.
  const bool again = input == SessionInput::kAgain && failures_ > 0;
  const uint32_t spared = again ? std::min(failures_, config.addresses) : 0;
  actions.push_back(OpenSession{Backoff(config, failures_ - spared)});
  // Not increased further once nothing depends on it.
  if (failures_ == 0 || LongestBackoff(config, failures_) < BackoffLimit(config)) ++failures_;
  return true;
}

void Session::Configure(absl::Time now, const Welcome& welcome, std::vector<Action>& actions) {
  token_ = welcome.token;
  frame_chunks_ = static_cast<uint32_t>(
      std::clamp<uint64_t>(welcome.frame_bytes / kChunkBytes, 1, kMostFrameChunks));
  lists_ = (welcome.features & kFeatureRuns) != 0;
  knows_ranks_ = (welcome.features & kFeatureRanks) != 0;
  knows_samples_ = (welcome.features & kFeatureSamples) != 0;
  knows_steps_ = (welcome.features & kFeatureGlobalBatch) != 0;
  heartbeat_ = std::clamp(welcome.heartbeat, kShortestHeartbeat, kLongestHeartbeat);
  next_beat_ = now + heartbeat_;
  OpenStreams(kCoordinatorShard, actions);
}

void Session::AddShard(const PlacedShard& shard, std::vector<Action>& actions) {
  streams_.Add(shard);
  OpenStreams(shard.shard, actions);
}

void Session::RemoveShard(ShardId shard, const std::string& reason, std::vector<Action>& actions) {
  const uint32_t first = streams_.First(shard);
  for (uint32_t i = 0; i < streams_.each(); ++i) {
    actions.push_back(CloseStream{first + i, reason});
  }
  streams_.Remove(shard);
}

void Session::OpenStreams(ShardId shard, std::vector<Action>& actions) const {
  const uint32_t first = streams_.First(shard);
  for (uint32_t i = 0; i < streams_.each(); ++i) {
    actions.push_back(Open(first + i, absl::ZeroDuration()));
  }
}

OpenStream Session::Open(uint32_t stream, absl::Duration delay) const {
  return {stream, token_, delay, streams_.Of(stream).shard(), stream % streams_.each()};
}

void Session::StreamDown(const Config& config, absl::Time now, uint32_t stream,
                         const std::string& reason, std::vector<Action>& actions) {
  const uint32_t failures = streams_.Down(stream, now, config.backoff_limit, reason);
  actions.push_back(Open(stream, Backoff(config, (failures - 1) * config.addresses)));
}

void Session::Beat(absl::Time now, std::vector<RoundWait> waits, std::vector<Action>& actions) {
  actions.push_back(Send{Heartbeat{progress_, std::move(waits)}});
  next_beat_ = now + heartbeat_;
}

}  // namespace basin::client
