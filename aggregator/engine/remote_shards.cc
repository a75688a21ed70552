// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/remote_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {

void RemoteShards::Add(ShardId shard, absl::Time now) {
  Link& link = shards_[shard];
  link.shard = shard;
  link.standing.up = now;
  link.standing.last_event = now;
}

const ShardStanding* RemoteShards::StandingOf(ShardId shard) const {
  const auto found = shards_.find(shard);
  return found == shards_.end() ? nullptr : &found->second.standing;
}

void RemoteShards::Remove(ShardId shard) {
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return;
  for (const auto& [there, here] : found->second.here) streams_.erase(here);
  for (std::vector<Link*>* links : {&in_step_, &unsent_}) {
    links->erase(std::remove(links->begin(), links->end(), &found->second), links->end());
  }
  shards_.erase(found);
}

absl::StatusOr<StreamId> RemoteShards::Open(ShardId shard, StreamId there) {
  Link& link = shards_.at(shard);
  if (link.here.count(there) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Shard ", shard, " opened data stream ", there, " twice."));
  }
  link.last_stream = std::max(link.last_stream, there);
  const StreamId here = new_stream_();
  link.here[there] = here;
  streams_[here] = {shard, there, std::nullopt};
  return here;
}

absl::StatusOr<StreamId> RemoteShards::Find(ShardId shard, StreamId there) const {
  const Link& link = shards_.at(shard);
  const auto found = link.here.find(there);
  if (found != link.here.end()) return found->second;
  if (there <= link.last_stream) return StreamId{0};
  return absl::InvalidArgumentError(absl::StrCat(
      "Shard ", shard, " reported about data stream ", there,
      ", which it has not opened; the highest that it has is ", link.last_stream, "."));
}

std::optional<SessionId> RemoteShards::SessionOf(StreamId stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? std::nullopt : found->second.session;
}

absl::Status RemoteShards::Reduced(ShardId shard, const ReduceDone& done) {
  Link& link = shards_.at(shard);
  const auto found = link.reducing.find({done.job, done.lane, done.round, done.ballot});
  if (found != link.reducing.end()) {
    auto& asked = found->second;
    const auto which = std::find_if(asked.begin(), asked.end(),
                                    [&](const auto& one) { return one.first == done.ranges; });
    if (which != asked.end()) {
      link.standing.reduce_times.Add(now_ - which->second);
      asked.erase(which);
      if (asked.empty()) link.reducing.erase(found);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("Shard ", shard, " reported a reduction of round ",
                                                 done.round, " of lane ", done.lane,
                                                 " that it was not asked for."));
}

void RemoteShards::Close(StreamId stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  shards_.at(found->second.shard).here.erase(found->second.there);
  streams_.erase(found);
}

absl::Status RemoteShards::BeginStep(ShardId shard, ShardFrame frame) {
  Link& link = shards_.at(shard);
  if (frame != link.last_frame + 1) {
    return absl::InvalidArgumentError(absl::StrCat("Shard ", shard, " reported frame ", frame,
                                                   " after ", link.last_frame,
                                                   "; it must number them in order."));
  }
  link.last_frame = frame;
  link.in_step = false;
  StepOf(link).frame = frame;
  return absl::OkStatus();
}

ShardStep& RemoteShards::StepOf(Link& link) {
  if (!link.in_step) {
    if (link.steps.empty()) unsent_.push_back(&link);
    link.steps.emplace_back();
    in_step_.push_back(&link);
  }
  link.in_step = true;
  return link.steps.back();
}

void RemoteShards::EndStep() {
  for (Link* link : in_step_) link->in_step = false;
  in_step_.clear();
}

void RemoteShards::Flush() {
  EndStep();
  for (Link* link : std::exchange(unsent_, {})) {
    send_(link->shard, std::exchange(link->steps, {}));
  }
}

// ---- actions

StreamId RemoteShards::There(StreamId stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.there;
}

void RemoteShards::Translate(std::vector<StreamId>& streams) const {
  for (StreamId& stream : streams) stream = There(stream);
  streams.erase(std::remove(streams.begin(), streams.end(), StreamId{0}), streams.end());
}

void RemoteShards::Put(ShardId shard, ShardAction action) { DoAt(shard, std::move(action)); }

void RemoteShards::Put(ShardId shard, AcceptStream accept) {
  const auto found = streams_.find(accept.stream);
  if (found == streams_.end()) return;
  found->second.session = accept.session;
  accept.stream = found->second.there;
  DoAt(shard, ShardAcceptStream{accept, name_of_(accept.job)});
}

void RemoteShards::Put(ShardId shard, CloseStream close) {
  const StreamId here = close.stream;
  close.stream = There(here);
  if (close.stream == 0) return;
  DoAt(shard, std::move(close));
  Close(here);
}

void RemoteShards::Put(ShardId shard, SendFrame send) {
  send.stream = There(send.stream);
  if (send.stream != 0) DoAt(shard, send);
}

void RemoteShards::Put(ShardId shard, Reduce reduce) {
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return;
  found->second.reducing[{reduce.job, reduce.lane, reduce.round, reduce.ballot}].emplace_back(
      reduce.ranges, now_);
  DoAt(shard, std::move(reduce));
}

void RemoteShards::Put(ShardId shard, Publish publish) {
  for (Route& route : publish.routes) Translate(route.streams);
  // What delivery needed of it is in the routes.
  publish.sessions.clear();
  publish.ranges.clear();
  DoAt(shard, std::move(publish));
}

void RemoteShards::Put(ShardId shard, RelayResult relay) {
  Translate(relay.route.streams);
  relay.sessions.clear();
  DoAt(shard, std::move(relay));
}

}  // namespace basin::aggregator
