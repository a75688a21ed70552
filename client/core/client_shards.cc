// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client_shards.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/core/lane_round.h"

namespace basin::client {
namespace {

// By number, so that streams are opened in one order everywhere.
std::map<ShardId, PlacedShard> ShardsInUse(const ClientState& state) {
  std::map<ShardId, PlacedShard> shards;
  const auto add = [&](const Placement* placement) {
    if (placement == nullptr) return;
    for (const PlacedShard& shard : placement->shards) {
      if (placement->Has(shard.shard)) shards.emplace(shard.shard, shard);
    }
  };
  add(state.placements.Present());
  for (const Lane& lane : state.lanes.all()) add(state.placements.Find(lane.placement.number));
  shards.erase(kCoordinatorShard);  // Its streams are those of the session.
  return shards;
}

}  // namespace

void OnPlacement(ClientState& state, const Scope& scope, const Placement& placement) {
  state.placements.Take(placement);
  for (Lane& lane : state.lanes) {
    if (lane.placement.number == placement.number) lane.Place(state.placements);
  }
  state.placements.ForgetOld([&](PlacementNumber number) {
    for (const Lane& lane : state.lanes) {
      if (lane.placement.number == number) return true;
    }
    return false;
  });
  FollowShards(state, scope);
  for (Lane& lane : state.lanes) Advance(lane, scope);
}

void FollowShards(ClientState& state, const Scope& scope) {
  const std::map<ShardId, PlacedShard> shards = ShardsInUse(state);
  Streams& streams = state.session.streams();
  for (const ShardId shard : streams.Shards()) {
    if (shard == kCoordinatorShard || shards.count(shard) > 0) continue;
    const uint32_t first = streams.First(shard);
    for (uint32_t i = 0; i < streams.each(); ++i) {
      for (Lane& lane : state.lanes) LoseStream(lane, scope, first + i);
    }
    const std::string name = streams.Find(shard)->Describe();
    state.session.RemoveShard(shard, absl::StrCat(name, " is gone"), scope.actions);
  }
  for (const auto& [number, shard] : shards) {
    if (!streams.Has(number)) state.session.AddShard(shard, scope.actions);
  }
}

void ReportReach(ClientState& state, const Scope& scope, uint32_t stream) {
  ShardStreams& shard = state.session.streams().Of(stream);
  if (shard.shard().shard == kCoordinatorShard || !shard.TakeReachChanged()) return;
  scope.Send(ShardUnreachable{shard.shard().shard, shard.WhyUnreachable()});
}

}  // namespace basin::client
