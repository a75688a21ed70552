// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The data streams of a session: which are up, their loads, when a lost one is opened again, and
// how much may be on its way over all of them.
// Also the context that every part of the core has during one Step.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_STREAMS_H_
#define BASIN_CLIENT_CORE_STREAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/config.h"
#include "client/core/link.h"

namespace basin::client {

// Where frames may go. A frame is charged to its stream until it is acknowledged.
class Streams {
 public:
  Streams(uint32_t count, bool follows_link)
      : follows_link_(follows_link), streams_(count == 0 ? 1 : count) {}

  uint32_t size() const { return static_cast<uint32_t>(streams_.size()); }
  bool IsUp(uint32_t stream) const { return stream < size() && streams_[stream].up; }

  // The stream that is up and has the least unacknowledged bytes, the lowest of equals; the lowest
  // one on a link that needs no more. For frames of at most `most` chunks.
  std::optional<uint32_t> Pick(uint32_t most) const {
    const bool lowest = follows_link_ && link_.NeedsOneStream(most);
    std::optional<uint32_t> best;
    for (uint32_t i = 0; i < size(); ++i) {
      if (!streams_[i].up) continue;
      if (!best.has_value() || streams_[i].unacked < streams_[*best].unacked) best = i;
      if (lowest) break;
    }
    return best;
  }
  uint64_t unacked(uint32_t stream) const { return streams_[stream].unacked; }
  uint64_t in_flight() const { return in_flight_; }
  void Charge(uint32_t stream, uint64_t bytes, absl::Time now) {
    if (follows_link_) link_.Sent(bytes, in_flight_, now);
    streams_[stream].unacked += bytes;
    in_flight_ += bytes;
  }
  void Release(uint32_t stream, uint64_t bytes) {
    streams_[stream].unacked -= bytes;
    in_flight_ -= bytes;
  }
  // So many of the bytes that were released have arrived.
  void Acknowledged(uint64_t bytes, absl::Time now) {
    if (follows_link_) link_.Acknowledged(bytes, now);
  }
  // Whether frames follow the link from now on.
  void FollowLink(bool follows) { follows_link_ = follows; }
  // The largest frame to send now, and whether one may be sent. All for an aggregator that takes
  // frames of at most `most` chunks.
  uint32_t FrameChunks(uint32_t most) const {
    return follows_link_ ? link_.FrameChunks(most) : most;
  }
  bool MaySend(uint64_t bytes, uint32_t most) {
    if (!follows_link_ || link_.MaySend(bytes, in_flight_, most)) return true;
    held_back_ = true;
    return false;
  }
  // Whether a frame has been held back that need not be any longer. Forgets it.
  bool TakeHeldBack(uint32_t most) {
    if (!held_back_) return false;
    held_back_ = false;
    return MaySend(FrameChunks(most) * kChunkBytes, most);
  }
  const Link& link() const { return link_; }

  void Up(uint32_t stream, absl::Time now) {
    streams_[stream].up = true;
    streams_[stream].up_since = now;
    why_down_.clear();
  }
  // Returns how often in a row the stream was lost, itself included; one that stayed up for
  // `stable` starts a new row.
  uint32_t Down(uint32_t stream, absl::Time now, absl::Duration stable, const std::string& reason) {
    why_down_ = reason;
    Stream& down = streams_[stream];
    if (down.up && now - down.up_since >= stable) down.failures = 0;
    down.up = false;
    return ++down.failures;
  }
  // All streams have ended, and with them their loads.
  void Reset() {
    streams_.assign(streams_.size(), Stream{});
    in_flight_ = 0;
    held_back_ = false;
    why_down_.clear();
  }

  // Why nothing can be sent, as a part of a sentence; empty while a stream is up, and before one
  // has failed.
  std::string Trouble() const {
    if (why_down_.empty() || Pick(1).has_value()) return "";
    return absl::StrCat("no data stream to the aggregator is open: ", why_down_);
  }

  auto Fields() const {
    return std::tie(follows_link_, streams_, in_flight_, held_back_, link_, why_down_);
  }

 private:
  struct Stream {
    bool up = false;
    uint64_t unacked = 0;
    uint32_t failures = 0;
    absl::Time up_since;
    auto Fields() const { return std::tie(up, unacked, failures, up_since); }
  };
  bool follows_link_;
  std::vector<Stream> streams_;
  uint64_t in_flight_ = 0;  // The sum of their loads.
  bool held_back_ = false;  // A frame waits for what is in flight.
  Link link_;
  std::string why_down_;  // The reason of the last failure since a stream came up.
};

// The most that one frame may have.
struct FrameLimit {
  uint32_t chunks;
  uint32_t tensors;
};

// The context of the parts of the core during one Step.
struct Scope {
  absl::Time now;
  const Config& config;
  const Incarnation& incarnation;
  bool welcomed;             // Messages may be sent.
  bool knows_samples;        // The aggregator of this session leases samples, ...
  bool knows_steps;          // ... also in steps of a global batch.
  const std::string& pause;  // Why the job is paused, as a sentence; empty when it is not.
  FrameLimit frame;
  Streams& streams;
  std::vector<Action>& actions;

  void Send(ToAggregator message) const { actions.push_back(client::Send{std::move(message)}); }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_STREAMS_H_
