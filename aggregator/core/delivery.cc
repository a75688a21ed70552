// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/delivery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
namespace {

constexpr absl::Duration kLinger = absl::Milliseconds(10);

void Append(std::map<ShardId, std::vector<FrameId>>&& forgotten, std::vector<Action>& actions) {
  for (auto& [shard, frames] : forgotten) {
    actions.push_back(ForgetFrames{std::move(frames), shard});
  }
}

// Actions that no frame depends on. They are listed, so that a new one has to be decided about.
template <typename T>
struct UnroutedOne {
  void operator()(const T&) const {}
};
template <typename... T>
struct Unrouted : UnroutedOne<T>... {
  using UnroutedOne<T>::operator()...;
};

}  // namespace

Delivery::Delivery(const Config& config)
    : frame_chunks_(static_cast<uint32_t>(std::max<uint64_t>(1, config.frame_bytes / kChunkBytes))),
      max_streams_(config.max_streams),
      rules_(config.rules) {}

// ---- sessions and their streams

void Delivery::OpenSession(SessionId session, SessionToken token) {
  sessions_[session].token = token;
  by_token_.emplace(token, session);
}

void Delivery::CloseSession(SessionId id, std::string ended, absl::Time now,
                            std::vector<Action>& actions, bool malformed) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.closed) return;
  Session& session = found->second;
  session.closed = true;
  session.ended = std::move(ended);
  session.malformed = malformed;
  by_token_.erase(session.token);
  lingering_.emplace_back(rules_.loses_at_once ? now : now + kLinger, id);
  Forgotten forgotten;
  Drop(session, forgotten, [](const Frame&) { return true; });
  Append(std::move(forgotten), actions);
}

std::optional<SessionId> Delivery::SessionOf(SessionToken token) const {
  const auto found = by_token_.find(token);
  if (found == by_token_.end()) return std::nullopt;
  return found->second;
}

void Delivery::OpenStream(StreamId stream, SessionToken token, std::optional<JobId> job,
                          std::vector<Action>& actions, ShardId shard) {
  const auto refuse = [&](absl::Status why) {
    actions.push_back(CloseStream{stream, std::move(why), shard});
  };
  const std::optional<SessionId> owner = SessionOf(token);
  if (!owner.has_value()) {
    return refuse(absl::NotFoundError(
        "The session that this data stream names is over or never was. Open a session "
        "first and present the token of its welcome."));
  }
  if (!job.has_value()) {
    return refuse(absl::FailedPreconditionError(
        "A data stream came before the session's hello. Wait for the welcome, which "
        "brings the token."));
  }
  Session& session = sessions_.at(*owner);
  const auto same_shard = [&](StreamId other) { return streams_.at(other).shard == shard; };
  const auto streams = std::count_if(session.streams.begin(), session.streams.end(), same_shard);
  if (streams >= max_streams_) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("The session has ", streams,
                     " data streams, which is the limit. Close those that are not "
                     "used.")));
  }
  streams_[stream] = Stream{*owner, 0, shard};
  session.streams.push_back(stream);
  actions.push_back(AcceptStream{stream, *owner, *job, shard});
  Forgotten forgotten;
  for (const FrameId id : std::exchange(session.waiting, {})) {
    const Frame& frame = frames_.at(id);
    if (frame.shard != shard) {
      session.waiting.push_back(id);
      continue;
    }
    actions.push_back(SendFrame{id, Assign(session, id, frame), shard});
    if (!frame.result.has_value()) Release(id, forgotten);
  }
  Append(std::move(forgotten), actions);
}

void Delivery::LoseStream(StreamId stream, std::vector<Action>& actions) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  Session& session = sessions_.at(found->second.session);
  const ShardId shard = found->second.shard;
  streams_.erase(found);
  session.streams.erase(std::find(session.streams.begin(), session.streams.end(), stream));
  std::deque<Sent> sent = std::exchange(session.unacknowledged, {});
  const auto lost = std::stable_partition(sent.begin(), sent.end(),
                                          [&](const Sent& one) { return one.stream != stream; });
  session.unacknowledged.assign(sent.begin(), lost);
  resent_ += static_cast<uint64_t>(sent.end() - lost);
  Session& receiver = rules_.resends_to_anyone ? sessions_.begin()->second : session;
  Forgotten forgotten;
  for (auto one = lost; one != sent.end(); ++one) {
    if (rules_.forgets_lost_frames) {
      Release(one->frame, forgotten);
      continue;
    }
    const StreamId other = Assign(receiver, one->frame, frames_.at(one->frame));
    if (other != 0) actions.push_back(SendFrame{one->frame, other, shard});
  }
  Append(std::move(forgotten), actions);
}

void Delivery::LoseShard(ShardId shard) {
  const auto is_of_shard = [shard](const Frame& frame) { return frame.shard == shard; };
  Forgotten forgotten;  // By the shard itself, too.
  for (auto& [id, session] : sessions_) {
    Drop(session, forgotten, is_of_shard);
    auto& streams = session.streams;
    const auto gone = std::stable_partition(streams.begin(), streams.end(), [&](StreamId stream) {
      return streams_.at(stream).shard != shard;
    });
    for (auto stream = gone; stream != streams.end(); ++stream) streams_.erase(*stream);
    streams.erase(gone, streams.end());
  }
}

std::vector<SessionLost> Delivery::TakeLingered(absl::Time now, std::vector<Action>& actions) {
  std::vector<SessionLost> lingered;
  while (!lingering_.empty() && lingering_.front().first <= now) {
    const SessionId id = lingering_.front().second;
    lingering_.pop_front();
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    // What the transport has ended itself shows nothing about the process at the other end.
    // The end of a stream at another shard is heard of later.
    const bool by_peer =
        !HasStreamTo(found->second, kCoordinatorShard) && found->second.ended.empty();
    lingered.push_back({id, by_peer, std::move(found->second.ended), found->second.malformed});
    Forgotten forgotten;
    for (const Closed& closed : EndSession(id, forgotten)) {
      actions.push_back(CloseStream{closed.stream, absl::OkStatus(), closed.shard});
    }
    Append(std::move(forgotten), actions);
  }
  return lingered;
}

bool Delivery::HasStreamTo(const Session& session, ShardId shard) const {
  return std::any_of(session.streams.begin(), session.streams.end(),
                     [&](StreamId stream) { return streams_.at(stream).shard == shard; });
}

std::vector<Delivery::Closed> Delivery::EndSession(SessionId id, Forgotten& forgotten) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return {};
  Session& session = found->second;
  Drop(session, forgotten, [](const Frame&) { return true; });
  std::vector<Closed> left;
  for (const StreamId stream : session.streams) {
    left.push_back({stream, streams_.at(stream).shard});
    streams_.erase(stream);
  }
  if (!session.closed) by_token_.erase(session.token);
  sessions_.erase(found);
  return left;
}

// ---- frames

void Delivery::Route(std::vector<Action>& actions, size_t first) {
  Forgotten forgotten;
  std::vector<Closed> closed;
  const FrameId last_before = last_frame_;
  const auto decide = Overloaded{
      [&](Publish& publish) {
        if (publish.again) ExpectRepeats(publish.sessions, last_before);
        RoutePublish(publish);
      },
      [&](RelayResult& relay) {
        ExpectRepeats(relay.sessions, last_before);
        relay.route = Send(relay.sessions,
                           ResultId{relay.job, relay.lane, relay.round, relay.ballot, relay.ranges},
                           relay.bytes, relay.shard);
      },
      [&](RelayBlob& relay) { relay.route = Send(relay.sessions, std::nullopt, 0); },
      [&](SendBlob& send) { send.route = Send({send.session}, std::nullopt, 0); },
      [&](const StartAttempt& start) {
        ForgetRound(start.job, start.lane, start.round, &start.ballot, forgotten);
      },
      [&](const EndRound& end) { ForgetRound(end.job, end.lane, end.round, nullptr, forgotten); },
      [&](const ResultsTaken& taken) { Acknowledge(taken, forgotten); },
      [&](const aggregator::EndSession& end) {
        for (const Closed& one : EndSession(end.session, forgotten)) closed.push_back(one);
      },
      Unrouted<aggregator::Send, SendAll, NameTensors, IdleLane, EndJob, KeepChunks, DiscardChunks,
               Reduce, ReleaseResult, DropBlob, AcceptStream, CloseStream, SendFrame, ForgetFrames,
               SaveState, SaveSettings, Note, ReleaseShard, Drained>{},
  };
  for (size_t i = first; i < actions.size(); ++i) std::visit(decide, actions[i]);
  for (const Closed& one : closed) {
    actions.push_back(CloseStream{one.stream, absl::OkStatus(), one.shard});
  }
  Append(std::move(forgotten), actions);
}

// Results of one step are sent once, so only frames up to `last` can have the same chunks.
void Delivery::ExpectRepeats(const std::vector<SessionId>& sessions, FrameId last) {
  for (const SessionId id : sessions) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    Session& session = found->second;
    session.repeats |=
        (!session.unacknowledged.empty() && session.unacknowledged.front().frame <= last) ||
        (!session.waiting.empty() && session.waiting.front() <= last);
  }
}

// Cuts the result of one tensor into frames of at most the usual size. Those of several are a frame
// already.
void Delivery::RoutePublish(Publish& publish) {
  const auto add = [&](ChunkRanges ranges, uint64_t bytes) {
    aggregator::Route route =
        Send(publish.sessions,
             ResultId{publish.job, publish.lane, publish.round, publish.ballot, std::move(ranges)},
             bytes, publish.shard);
    if (route.frame != 0) publish.routes.push_back(std::move(route));
  };
  if (publish.ranges.size() > 1) return add(publish.ranges, publish.bytes);
  const ChunkRange whole = publish.ranges.front();
  for (uint32_t done = 0; done < whole.count; done += frame_chunks_) {
    ChunkRange range = whole;
    range.first += done;
    range.count = std::min(frame_chunks_, whole.count - done);
    // All chunks but the last one of a tensor are whole.
    add({range}, std::min(publish.bytes - done * kChunkBytes, range.count * kChunkBytes));
  }
}

aggregator::Route Delivery::Send(const std::vector<SessionId>& sessions,
                                 const std::optional<ResultId>& result, uint64_t bytes,
                                 ShardId shard) {
  aggregator::Route route;
  if (result.has_value()) route.ranges = result->ranges;
  Frame frame{result, bytes, 0, shard};
  const FrameId id = last_frame_ + 1;
  for (const SessionId receiver : sessions) {
    const auto found = sessions_.find(receiver);
    if (found == sessions_.end() || found->second.closed) continue;
    if (result.has_value()) found->second.job = result->job;
    const StreamId stream = Assign(found->second, id, frame);
    if (stream != 0) route.streams.push_back(stream);
    if (stream == 0 || result.has_value()) ++frame.receivers;
  }
  if (frame.receivers == 0) return route;
  frames_.emplace_hint(frames_.end(), id, frame);
  route.frame = last_frame_ = id;
  return route;
}

StreamId Delivery::Assign(Session& session, FrameId id, const Frame& frame) {
  // The least loaded one of the shard; of equals, the one that was opened first.
  StreamId chosen = 0;
  Stream* least = nullptr;
  for (const StreamId id_of_stream : session.streams) {
    Stream& stream = streams_.at(id_of_stream);
    if (stream.shard != frame.shard) continue;
    if (least != nullptr && stream.unacknowledged >= least->unacknowledged) continue;
    chosen = id_of_stream;
    least = &stream;
  }
  if (least == nullptr) {
    session.waiting.push_back(id);
    return 0;
  }
  if (frame.result.has_value()) {
    least->unacknowledged += frame.bytes;
    session.unacknowledged.push_back({id, chosen});
  }
  return chosen;
}

void Delivery::Acknowledge(const ResultsTaken& taken, Forgotten& forgotten) {
  auto found = sessions_.find(taken.session);
  if (found == sessions_.end()) return;
  // A worker may name them in any order.
  ChunkRanges ranges(taken.ranges.begin(), taken.ranges.end());
  std::sort(ranges.begin(), ranges.end(),
            [](const ChunkRange& a, const ChunkRange& b) { return a.tensor < b.tensor; });
  const auto has = [&](const Frame& frame) {
    if (!frame.result.has_value()) return false;
    const ResultId& result = *frame.result;
    return result.job == taken.job && result.lane == taken.lane && result.round == taken.round &&
           result.ballot == taken.ballot && Covers(ranges, result.ranges);
  };
  DropAcknowledged(found->second, forgotten, ranges, has);
  if (rules_.counts_acks_twice && ++found != sessions_.end()) {
    DropAcknowledged(found->second, forgotten, ranges, has);
  }
}

// Results are mostly acknowledged in the order in which they were sent, so the frames are among the
// first: to look at all of them for each of ten thousand small tensors would hold up the loop. Only
// where a chunk may have been sent twice, the last of its frames can be anywhere.
template <typename Has>
void Delivery::DropAcknowledged(Session& session, Forgotten& forgotten, const ChunkRanges& ranges,
                                const Has& has) {
  uint64_t left = CountChunks(ranges);
  auto& sent = session.unacknowledged;
  for (auto one = sent.begin(); one != sent.end() && (left > 0 || session.repeats);) {
    const Frame& frame = frames_.at(one->frame);
    if (!has(frame)) {
      ++one;
      continue;
    }
    left -= std::min<uint64_t>(left, CountChunks(frame.result->ranges));
    streams_.at(one->stream).unacknowledged -= frame.bytes;
    Release(one->frame, forgotten);
    one = sent.erase(one);
  }
  DropWaiting(session, forgotten, has);
}

void Delivery::ForgetRound(JobId job, LaneIndex lane, RoundNumber round, const Ballot* below,
                           Forgotten& forgotten) {
  for (auto& [id, session] : sessions_) {
    if (session.job != job) continue;
    Drop(session, forgotten, [&](const Frame& frame) {
      return frame.result.has_value() && frame.result->job == job && frame.result->lane == lane &&
             frame.result->round == round && (below == nullptr || frame.result->ballot < *below);
    });
  }
}

template <typename Useless>
void Delivery::Drop(Session& session, Forgotten& forgotten, Useless&& useless) {
  auto& sent = session.unacknowledged;
  const auto drop_sent = [&](const Sent& one) {
    const Frame& frame = frames_.at(one.frame);
    if (!useless(frame)) return false;
    streams_.at(one.stream).unacknowledged -= frame.bytes;
    Release(one.frame, forgotten);
    return true;
  };
  sent.erase(std::remove_if(sent.begin(), sent.end(), drop_sent), sent.end());
  DropWaiting(session, forgotten, useless);
}

template <typename Useless>
void Delivery::DropWaiting(Session& session, Forgotten& forgotten, const Useless& useless) {
  auto& waiting = session.waiting;
  const auto drop_waiting = [&](FrameId id) {
    if (!useless(frames_.at(id))) return false;
    Release(id, forgotten);
    return true;
  };
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), drop_waiting), waiting.end());
  if (waiting.empty() && session.unacknowledged.empty()) session.repeats = false;
}

void Delivery::Release(FrameId id, Forgotten& forgotten) {
  const auto found = frames_.find(id);
  if (--found->second.receivers > 0) return;
  forgotten[found->second.shard].push_back(id);
  frames_.erase(found);
}

}  // namespace basin::aggregator
