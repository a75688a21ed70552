// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/world/delivery_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/overloaded.h"

namespace basin::world {
namespace {

using aggregator::FrameId;
using aggregator::SessionId;
using aggregator::StreamId;

constexpr absl::Duration kLinger = absl::Milliseconds(10);

}  // namespace

void DeliveryModel::Take(const aggregator::Event& event, absl::Time now,
                         const aggregator::Coordinator& core) {
  const auto* input = std::get_if<aggregator::Input>(&event);
  if (const auto* opened = std::get_if<aggregator::SessionOpened>(input)) {
    sessions_[opened->session] = {};
  } else if (const auto* closed = std::get_if<aggregator::SessionClosed>(&event)) {
    const auto session = sessions_.find(closed->session);
    if (session == sessions_.end()) return;
    session->second.results.clear();
    session->second.blobs.clear();
    closed_ += !session->second.closed_at.has_value();
    session->second.closed_at = now;
    session->second.known = core.JobOf(closed->session).has_value();
  } else if (const auto* lost = std::get_if<aggregator::StreamLost>(&event)) {
    const auto owner = OwnerOf(lost->stream);
    if (owner != sessions_.end()) owner->second.streams.erase(lost->stream);
    ends_at_.erase(lost->stream);
    stream_lost_ = true;
  } else if (const auto* shard_lost = std::get_if<aggregator::ShardLost>(input)) {
    const ShardId shard = shard_lost->shard;
    for (auto& [id, session] : sessions_) {
      Drop(session, [shard](const Result& result) { return result.shard == shard; });
      for (auto it = session.streams.begin(); it != session.streams.end();) {
        it = ends_at_.at(it->first) == shard ? session.streams.erase(it) : std::next(it);
      }
    }
    for (auto it = results_.begin(); it != results_.end();) {
      it = it->second.shard == shard ? results_.erase(it) : std::next(it);
    }
    stream_lost_ = true;
  }
}

bool DeliveryModel::HasStreamTo(const Session& session, ShardId shard) const {
  return std::any_of(session.streams.begin(), session.streams.end(),
                     [&](const auto& stream) { return ends_at_.at(stream.first) == shard; });
}

std::map<SessionId, DeliveryModel::Session>::iterator DeliveryModel::OwnerOf(StreamId stream) {
  return std::find_if(sessions_.begin(), sessions_.end(), [stream](const auto& session) {
    return session.second.streams.count(stream) > 0;
  });
}

template <typename Useless>
void DeliveryModel::Drop(Session& session, Useless&& useless) {
  for (auto frame = session.results.begin(); frame != session.results.end();) {
    if (!useless(results_.at(*frame))) {
      ++frame;
      continue;
    }
    for (auto& [stream, frames] : session.streams) frames.erase(*frame);
    frame = session.results.erase(frame);
  }
}

void DeliveryModel::Assign(const aggregator::Route& route, const std::vector<SessionId>& receivers,
                           const std::optional<Result>& result) {
  for (const SessionId receiver : receivers) {
    const auto found = sessions_.find(receiver);
    if (found == sessions_.end() || found->second.closed_at.has_value()) continue;
    Session& session = found->second;
    if (result.has_value()) {
      results_[route.frame] = *result;
      session.results.insert(route.frame);
    } else if (!HasStreamTo(session, kCoordinatorShard)) {
      session.blobs.insert(route.frame);
    }
  }
  for (const StreamId stream : route.streams) {
    const auto owner = OwnerOf(stream);
    if (owner == sessions_.end() || !result.has_value()) continue;
    owner->second.streams[stream].insert(route.frame);
  }
}

std::string DeliveryModel::Check(const std::vector<aggregator::Action>& actions, absl::Time now,
                                 const aggregator::Coordinator& core) {
  if (actions.empty() && !stream_lost_) return "";
  std::string wrong;
  bool same = !stream_lost_ && closed_ == 0;  // Nothing changes what a session is owed.
  stream_lost_ = false;
  const auto decide = Overloaded{
      [&](const aggregator::Publish& publish) {
        for (const aggregator::Route& route : publish.routes) {
          Assign(route, publish.sessions,
                 Result{publish.job, publish.lane, publish.round, publish.ballot, route.ranges,
                        publish.shard});
        }
      },
      [&](const aggregator::RelayResult& relay) {
        Assign(relay.route, relay.sessions,
               Result{relay.job, relay.lane, relay.round, relay.ballot, relay.ranges, relay.shard});
      },
      [&](const aggregator::RelayBlob& relay) {
        Assign(relay.route, relay.sessions, std::nullopt);
      },
      [&](const aggregator::SendBlob& send) { Assign(send.route, {send.session}, std::nullopt); },
      [&](const aggregator::ResultsTaken& taken) {
        const auto found = sessions_.find(taken.session);
        if (found == sessions_.end()) return;
        Drop(found->second, [&](const Result& result) {
          return result.job == taken.job && result.lane == taken.lane &&
                 result.round == taken.round && result.ballot == taken.ballot &&
                 std::all_of(result.ranges.begin(), result.ranges.end(),
                             [&](const ChunkRange& sent) {
                               return std::any_of(taken.ranges.begin(), taken.ranges.end(),
                                                  [&](const ChunkRange& range) {
                                                    return aggregator::Covers(range, sent);
                                                  });
                             });
        });
      },
      [&](const aggregator::StartAttempt& start) {
        for (auto& [id, session] : sessions_) {
          Drop(session, [&](const Result& result) {
            return result.job == start.job && result.lane == start.lane &&
                   result.round == start.round && result.ballot < start.ballot;
          });
        }
      },
      [&](const aggregator::EndRound& end) {
        for (auto& [id, session] : sessions_) {
          Drop(session, [&](const Result& result) {
            return result.job == end.job && result.lane == end.lane && result.round == end.round;
          });
        }
      },
      [&](const aggregator::AcceptStream& accept) {
        sessions_[accept.session].streams[accept.stream];
        ends_at_[accept.stream] = accept.shard;
      },
      [&](const aggregator::CloseStream& close) {
        const auto owner = OwnerOf(close.stream);
        if (owner != sessions_.end()) owner->second.streams.erase(close.stream);
      },
      [&](const aggregator::EndSession& end) {
        const auto session = sessions_.find(end.session);
        if (session == sessions_.end()) return;
        closed_ -= session->second.closed_at.has_value();
        sessions_.erase(session);
      },
      [&](const aggregator::SendFrame& send) {
        const auto owner = OwnerOf(send.stream);
        if (owner == sessions_.end()) {
          wrong = absl::StrCat("frame ", send.frame, " is sent to no session");
        } else if (owner->second.results.count(send.frame) > 0) {
          owner->second.streams[send.stream].insert(send.frame);
        } else if (owner->second.blobs.erase(send.frame) == 0) {
          const auto result = results_.find(send.frame);
          const bool other_job =
              result != results_.end() && core.JobOf(owner->first) != result->second.job;
          wrong = absl::StrCat("frame ", send.frame, other_job ? " of another job" : "",
                               " is sent to session ", owner->first, ", and is not for it");
        }
      },
      [&](const aggregator::ForgetFrames& forget) {
        for (const FrameId frame : forget.frames) {
          for (const auto& [id, session] : sessions_) {
            if (session.results.count(frame) + session.blobs.count(frame) == 0) continue;
            wrong = absl::StrCat("frame ", frame, " is forgotten, and session ", id, " needs it");
          }
          results_.erase(frame);
        }
      },
      [](const auto&) {},
  };
  for (const aggregator::Action& action : actions) {
    std::visit(decide, action);
    same &= std::holds_alternative<aggregator::Send>(action) ||
            std::holds_alternative<aggregator::SendAll>(action) ||
            std::holds_alternative<aggregator::KeepChunks>(action) ||
            std::holds_alternative<aggregator::Reduce>(action) ||
            std::holds_alternative<aggregator::Note>(action);
  }
  if (same) return wrong;
  for (auto it = sessions_.begin(); it != sessions_.end() && wrong.empty();) {
    wrong = CheckSession(it->first, it->second, now, core);
    const auto& closed_at = it->second.closed_at;
    const bool over = closed_at.has_value() && now >= *closed_at + kLinger;
    closed_ -= over;
    it = over ? sessions_.erase(it) : std::next(it);
  }
  return wrong;
}

std::string DeliveryModel::CheckSession(SessionId id, const Session& session, absl::Time now,
                                        const aggregator::Coordinator& core) const {
  if (session.closed_at.has_value()) {
    const bool lingers = now < *session.closed_at + kLinger;
    if (!lingers || !session.known || core.JobOf(id).has_value()) return "";
    return absl::StrCat("session ", id, " is lost before it has lingered");
  }
  if (!session.blobs.empty() && HasStreamTo(session, kCoordinatorShard))
    return absl::StrCat("values for session ", id, " wait for a stream");
  for (const FrameId frame : session.results) {
    if (!HasStreamTo(session, results_.at(frame).shard)) continue;
    const bool sent =
        std::any_of(session.streams.begin(), session.streams.end(),
                    [&](const auto& stream) { return stream.second.count(frame) > 0; });
    if (!sent) return absl::StrCat("frame ", frame, " is on no stream of session ", id);
  }
  return "";
}

}  // namespace basin::world
