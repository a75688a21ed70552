// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The data streams of a session to one shard: which are up, their loads, and how much may be on its
// way over all of them. Each shard has a link of its own, so a slow one holds no other up.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_SHARD_STREAMS_H_
#define BASIN_CLIENT_CORE_SHARD_STREAMS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/core/link.h"
#include "protocol/placement.h"

namespace basin::client {

// Where frames for a shard may go. A frame is charged to its stream until it is acknowledged.
class ShardStreams {
 public:
  ShardStreams(PlacedShard shard, uint32_t count, bool follows_link)
      : shard_(std::move(shard)), follows_link_(follows_link), streams_(count == 0 ? 1 : count) {}

  const PlacedShard& shard() const { return shard_; }
  uint32_t size() const { return static_cast<uint32_t>(streams_.size()); }
  bool IsUp(uint32_t stream) const { return streams_[stream].up; }
  bool AnyUp() const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const Stream& stream) { return stream.up; });
  }

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
  // A frame waits for what is in flight, here or to another shard.
  void HoldBack() { held_back_ = true; }
  // Whether one does. Forgets it.
  bool TakeHeldBack() { return std::exchange(held_back_, false); }
  const Link& link() const { return link_; }
  // Null: frames do not follow it.
  const Link* followed() const { return follows_link_ ? &link_ : nullptr; }

  void Up(uint32_t stream, absl::Time now) {
    streams_[stream].up = true;
    streams_[stream].up_since = now;
    why_down_.clear();
  }
  // Returns how often in a row the stream was lost, itself included; one that stayed up for
  // `stable` starts a new row.
  uint32_t Down(uint32_t stream, absl::Time now, absl::Duration stable, const std::string& reason) {
    why_down_ = WithoutName(reason);
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
    unreachable_ = false;
  }

  // Why nothing can be sent, as a part of a sentence; empty while a stream is up, and before one
  // has failed.
  std::string Trouble() const {
    if (why_down_.empty() || AnyUp()) return "";
    return absl::StrCat("no data stream to ", Describe(), " is open: ", why_down_);
  }
  // "the aggregator", or the shard's name and address.
  std::string Describe() const {
    if (shard_.shard == kCoordinatorShard) return "the aggregator";
    return absl::StrCat("shard ", shard_.name, " at ", shard_.endpoint);
  }

  // Why the shard cannot be reached: no stream is up, although one was tried more than once. Empty
  // if it can be, as far as is known.
  std::string WhyUnreachable() const {
    const bool tried = std::any_of(streams_.begin(), streams_.end(),
                                   [](const Stream& stream) { return stream.failures > 1; });
    return tried && !AnyUp() ? why_down_ : "";
  }
  // Whether it has become reachable or unreachable since the last call.
  bool TakeReachChanged() {
    const bool unreachable = !WhyUnreachable().empty();
    return std::exchange(unreachable_, unreachable) != unreachable;
  }

  auto Fields() const {
    return std::tie(shard_, follows_link_, streams_, in_flight_, held_back_, link_, why_down_,
                    unreachable_);
  }

 private:
  // The reason, where it begins with the shard, with "it" instead, because what it is a part of has
  // named the shard.
  std::string WithoutName(absl::string_view reason) const {
    const bool named = shard_.shard != kCoordinatorShard &&
                       absl::ConsumePrefix(&reason, absl::StrCat(Describe(), " "));
    return absl::StrCat(named ? "it " : "", reason);
  }

  struct Stream {
    bool up = false;
    uint64_t unacked = 0;
    uint32_t failures = 0;
    absl::Time up_since;
    auto Fields() const { return std::tie(up, unacked, failures, up_since); }
  };
  PlacedShard shard_;
  bool follows_link_;
  std::vector<Stream> streams_;
  uint64_t in_flight_ = 0;  // The sum of their loads.
  bool held_back_ = false;  // A frame waits for what is in flight.
  Link link_;
  std::string why_down_;      // The reason of the last failure since a stream came up.
  bool unreachable_ = false;  // As of the last TakeReachChanged.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_SHARD_STREAMS_H_
