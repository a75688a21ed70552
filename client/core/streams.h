// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The data streams of a session, by the shard at which they end.
// Also the context that every part of the core has during one Step.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_STREAMS_H_
#define BASIN_CLIENT_CORE_STREAMS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/config.h"
#include "client/core/placements.h"
#include "client/core/shard_streams.h"

namespace basin::client {

// A row of streams for each shard: for the coordinator's own always, which is the first row, and
// for others from Add to Remove. The number of a stream is that of its row times the streams of a
// row, plus its number there; a removed shard leaves its row to one that comes later.
class Streams {
 public:
  Streams(uint32_t count, bool follows_link)
      : each_(std::max(count, 1u)), follows_link_(follows_link) {
    rows_.emplace_back(ShardStreams(PlacedShard{}, each_, follows_link));
  }

  // ---- shards
  // Null: it has no streams.
  const ShardStreams* Find(ShardId shard) const {
    const auto row = Row(shard);
    return row == rows_.end() ? nullptr : &**row;
  }
  bool Has(ShardId shard) const { return Find(shard) != nullptr; }
  // By row.
  std::vector<ShardId> Shards() const {
    std::vector<ShardId> shards;
    for (const auto& row : rows_) {
      if (row.has_value()) shards.push_back(row->shard().shard);
    }
    return shards;
  }
  // REQUIRES: !Has(shard.shard).
  void Add(const PlacedShard& shard) {
    auto row = std::find_if(rows_.begin(), rows_.end(),
                            [](const auto& taken) { return !taken.has_value(); });
    if (row == rows_.end()) row = rows_.emplace(row);
    row->emplace(shard, each_, follows_link_);
  }
  // REQUIRES: Has(shard), which is not the coordinator's own, and its streams carry no load.
  void Remove(ShardId shard) { rows_[First(shard) / each_].reset(); }
  // The number of its first stream. REQUIRES: Has(shard).
  uint32_t First(ShardId shard) const {
    return static_cast<uint32_t>(Row(shard) - rows_.begin()) * each_;
  }
  uint32_t each() const { return each_; }  // Streams of a shard.

  // ---- streams
  // All numbers are below it, also those that were in use before in this session.
  uint32_t size() const { return static_cast<uint32_t>(rows_.size()) * each_; }
  // Whether a shard has this stream.
  bool Names(uint32_t stream) const { return stream < size() && rows_[stream / each_].has_value(); }
  bool IsUp(uint32_t stream) const { return Names(stream) && Of(stream).IsUp(stream % each_); }
  // REQUIRES: Names(stream), here and below.
  ShardId ShardOf(uint32_t stream) const { return Of(stream).shard().shard; }
  uint64_t unacked(uint32_t stream) const { return Of(stream).unacked(stream % each_); }
  void Charge(uint32_t stream, uint64_t bytes, absl::Time now) {
    if (Of(stream).followed() != nullptr) own_.Sent(bytes, FollowingInFlight(), now);
    Of(stream).Charge(stream % each_, bytes, now);
  }
  void Release(uint32_t stream, uint64_t bytes) { Of(stream).Release(stream % each_, bytes); }
  void Up(uint32_t stream, absl::Time now) { Of(stream).Up(stream % each_, now); }
  // See ShardStreams.
  uint32_t Down(uint32_t stream, absl::Time now, absl::Duration stable, const std::string& reason) {
    return Of(stream).Down(stream % each_, now, stable, reason);
  }
  const ShardStreams& Of(uint32_t stream) const { return *rows_[stream / each_]; }
  ShardStreams& Of(uint32_t stream) { return *rows_[stream / each_]; }

  // ---- frames for a shard; see ShardStreams. One without streams gets none.
  std::optional<uint32_t> Pick(ShardId shard, uint32_t most) const {
    const auto row = Row(shard);
    if (row == rows_.end()) return std::nullopt;
    const std::optional<uint32_t> stream = (*row)->Pick(most);
    if (!stream.has_value()) return std::nullopt;
    return static_cast<uint32_t>(row - rows_.begin()) * each_ + *stream;
  }
  // REQUIRES: Has(shard), here and below.
  const Link* FollowedLink(ShardId shard) const { return (*Row(shard))->followed(); }
  uint32_t FrameChunks(ShardId shard, uint32_t most) const {
    return (*Row(shard))->FrameChunks(most);
  }
  bool MaySend(ShardId shard, uint64_t bytes, uint32_t most) {
    return MaySend(Of(First(shard)), bytes, most);
  }

  // ---- all of them
  // Bytes on their way to each shard, by row.
  using Loads = absl::InlinedVector<uint64_t, 4>;
  Loads InFlight() const {
    Loads bytes;
    for (const auto& row : rows_) bytes.push_back(row.has_value() ? row->in_flight() : 0);
    return bytes;
  }
  // What is no longer on its way since `before` has arrived.
  void Acknowledged(const Loads& before, absl::Time now) {
    uint64_t following = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      if (!rows_[i].has_value()) continue;
      const uint64_t bytes = before[i] - rows_[i]->in_flight();
      rows_[i]->Acknowledged(bytes, now);
      if (rows_[i]->followed() != nullptr) following += bytes;
    }
    own_.Acknowledged(following, now);
  }
  // Whether frames for the coordinator's own shard follow its link from now on. Those for others
  // travel anyway.
  void FollowLink(bool follows) { rows_.front()->FollowLink(follows); }
  // Whether a frame has been held back that need not be any longer. Forgets it.
  bool TakeHeldBack(uint32_t most) {
    bool any = false;
    for (auto& row : rows_) {
      if (!row.has_value() || !row->TakeHeldBack()) continue;
      any |= MaySend(*row, row->FrameChunks(most) * kChunkBytes, most);
    }
    return any;
  }
  // All streams have ended, and with them their loads and the shards.
  void Reset() {
    rows_.resize(1);
    rows_.front()->Reset();
  }
  // The first shard to which nothing can be sent; null while all have a stream that is up, and
  // before one has failed.
  const ShardStreams* Troubled() const {
    for (const auto& row : rows_) {
      if (row.has_value() && !row->Trouble().empty()) return &*row;
    }
    return nullptr;
  }
  // The first shard beside the coordinator's own that cannot be reached; null for none.
  const ShardStreams* OutOfReach() const {
    for (const auto& row : rows_) {
      if (!row.has_value() || row->shard().shard == kCoordinatorShard) continue;
      if (!row->WhyUnreachable().empty()) return &*row;
    }
    return nullptr;
  }

  auto Fields() const { return std::tie(each_, follows_link_, own_, rows_); }

 private:
  using Rows = std::vector<std::optional<ShardStreams>>;

  Rows::const_iterator Row(ShardId shard) const {
    return std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) {
      return row.has_value() && row->shard().shard == shard;
    });
  }

  // What is on its way over the worker's own cable.
  uint64_t FollowingInFlight() const {
    uint64_t sum = 0;
    for (const auto& row : rows_) {
      if (row.has_value() && row->followed() != nullptr) sum += row->in_flight();
    }
    return sum;
  }
  // The ways to all shards share the worker's own cable: what is on its way to one delays what
  // goes to another. So one shard may have a second frame on its way only if that is within what
  // the cable needs for all.
  bool MaySend(ShardStreams& row, uint64_t bytes, uint32_t most) {
    if (!row.MaySend(bytes, most)) return false;
    if (rows_.size() == 1 || row.followed() == nullptr || row.in_flight() == 0 ||
        own_.MaySend(bytes, FollowingInFlight(), most)) {
      return true;
    }
    row.HoldBack();
    return false;
  }

  uint32_t each_;
  bool follows_link_;
  Link own_;  // The way to all shards together.
  Rows rows_;
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
  const Placements& placements;
  Streams& streams;
  std::vector<Action>& actions;

  void Send(ToAggregator message) const { actions.push_back(client::Send{std::move(message)}); }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_STREAMS_H_
