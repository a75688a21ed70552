// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which data stream carries a frame to a worker, and which frames are sent again when one is lost.
//
// The coordinator names sessions; a session has data streams, which come and go. A frame of a
// round's result is remembered from the moment it is sent until its receiver has acknowledged all
// of it, its attempt is void, or its round is over. When a stream is lost before that, its frames
// are sent again on the others, in the same order. A frame of a broadcast value is not remembered,
// because its receiver asks for it again. Frames for a session without a stream wait for one.
//
// A data stream ends at one shard, and carries the frames of that shard: the bytes are there.
//
// A session whose session stream has ended lingers for a moment, to distinguish a process that
// ended, which closes all its connections within some milliseconds, from a network that broke,
// which leaves some of them open.
//
// The bytes of a frame stay with the runner.
//
// Thread contract: a plain value; the methods append actions and have no other effect.
// Failure: a data stream that belongs to no open session is closed with the reason.

#ifndef BASIN_AGGREGATOR_CORE_DELIVERY_H_
#define BASIN_AGGREGATOR_CORE_DELIVERY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/event.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// Whether `outer` has all chunks of `inner`.
inline bool Covers(const ChunkRange& outer, const ChunkRange& inner) {
  return outer.tensor == inner.tensor && inner.first >= outer.first &&
         inner.first + inner.count <= outer.first + outer.count;
}
// The same. REQUIRES: the tensors of `outer` do not descend, as in a frame.
inline bool Covers(const ChunkRanges& outer, const ChunkRanges& inner) {
  return std::all_of(inner.begin(), inner.end(), [&outer](const ChunkRange& range) {
    const auto by_tensor = [](const ChunkRange& at, TensorIndex tensor) {
      return at.tensor < tensor;
    };
    auto at = std::lower_bound(outer.begin(), outer.end(), range.tensor, by_tensor);
    while (at != outer.end() && at->tensor == range.tensor) {
      if (Covers(*at++, range)) return true;
    }
    return false;
  });
}

class Delivery {
 public:
  explicit Delivery(const Config& config);

  // ---- sessions and their streams
  void OpenSession(SessionId session, SessionToken token);
  // The session stream has ended. `ended`, `malformed`: as in SessionLost.
  void CloseSession(SessionId session, std::string ended, absl::Time now,
                    std::vector<Action>& actions, bool malformed = false);
  // The open session with this token.
  std::optional<SessionId> SessionOf(SessionToken token) const;
  // A data stream presents `token`; `job` is that of the session, once its hello has arrived.
  // REQUIRES: the stream was never named before.
  void OpenStream(StreamId stream, SessionToken token, std::optional<JobId> job,
                  std::vector<Action>& actions, ShardId shard = kCoordinatorShard);
  void LoseStream(StreamId stream, std::vector<Action>& actions);
  // The shard is gone, with its streams and frames. What the receivers lack is for the coordinator
  // to decide.
  void LoseShard(ShardId shard);

  // Ends the closed sessions that have lingered; returns the event of each for the coordinator.
  std::vector<SessionLost> TakeLingered(absl::Time now, std::vector<Action>& actions);
  absl::Time NextDeadline() const {
    return lingering_.empty() ? absl::InfiniteFuture() : lingering_.front().first;
  }

  // ---- frames
  // Takes what the coordinator decided, which is `actions` from `first` on: gives each frame its
  // route, and forgets useless frames.
  void Route(std::vector<Action>& actions, size_t first);

  size_t sessions() const { return sessions_.size(); }
  size_t streams() const { return streams_.size(); }
  size_t frames() const { return frames_.size(); }  // Those that the runner keeps.
  // Frames of results that were sent again, because a stream was lost. Only counts up.
  uint64_t resent() const { return resent_; }

  // Everything that later calls depend on, except constants.
  auto Fields() const {
    return std::tie(sessions_, by_token_, streams_, frames_, last_frame_, lingering_);
  }

 private:
  struct ResultId {
    JobId job = 0;
    LaneIndex lane = 0;
    RoundNumber round = 0;
    Ballot ballot;
    ChunkRanges ranges;
    auto Fields() const { return std::tie(job, lane, round, ballot, ranges); }
  };
  // A frame that the runner keeps.
  struct Frame {
    std::optional<ResultId> result;  // Absent: of a value.
    uint64_t bytes = 0;              // The size of its payload.
    uint32_t receivers = 0;          // Sessions that it is kept for.
    ShardId shard = kCoordinatorShard;
    auto Fields() const { return std::tie(result, bytes, receivers, shard); }
  };
  struct Sent {
    FrameId frame = 0;
    StreamId stream = 0;
    auto Fields() const { return std::tie(frame, stream); }
  };
  // A data stream, and the shard at which it ends.
  struct Opened {
    StreamId stream = 0;
    ShardId shard = kCoordinatorShard;
    auto Fields() const { return std::tie(stream, shard); }
  };
  struct Session {
    SessionToken token = 0;
    std::optional<JobId> job;         // Once a result was sent; a session has one job.
    std::vector<Opened> streams;      // In the order in which they were opened.
    std::deque<Sent> unacknowledged;  // Frames of results, in the order in which they were sent.
    std::vector<FrameId> waiting;     // For a stream.
    bool repeats = false;             // A chunk may be in several of these frames.
    bool closed = false;
    std::string ended;
    bool malformed = false;
    auto Fields() const {
      return std::tie(token, job, streams, unacknowledged, waiting, repeats, closed, ended,
                      malformed);
    }
  };
  struct Stream {
    SessionId session = 0;
    uint64_t unacknowledged = 0;  // Payload bytes.
    ShardId shard = kCoordinatorShard;
    auto Fields() const { return std::tie(session, unacknowledged, shard); }
  };
  // By shard.
  using Forgotten = std::map<ShardId, std::vector<FrameId>>;

  // Routes one frame.
  aggregator::Route Send(const std::vector<SessionId>& sessions,
                         const std::optional<ResultId>& result, uint64_t bytes,
                         ShardId shard = kCoordinatorShard);
  // Chooses a stream; 0: the frame waits for one.
  StreamId Assign(Session& session, FrameId id, const Frame& frame);
  void RoutePublish(Publish& publish);
  // These sessions are sent chunks that frames up to `last`, which they lack, may have as well.
  void ExpectRepeats(const std::vector<SessionId>& sessions, FrameId last);
  void Acknowledge(const ResultsTaken& taken, Forgotten& forgotten);
  // Forgets the results of a round; those of attempts below a ballot when one is given.
  void ForgetRound(JobId job, LaneIndex lane, RoundNumber round, const Ballot* below,
                   Forgotten& forgotten);
  static bool HasStreamTo(const Session& session, ShardId shard);
  // Returns the streams that the session still had.
  std::vector<Opened> EndSession(SessionId session, Forgotten& forgotten);
  // Takes the frames that `useless` names from what the session is to be sent.
  template <typename Useless>
  void Drop(Session& session, Forgotten& forgotten, Useless&& useless);
  // The same for frames with results in `ranges`; `has` says which these are.
  template <typename Has>
  void DropAcknowledged(Session& session, Forgotten& forgotten, const ChunkRanges& ranges,
                        const Has& has);
  // Frames that wait for a stream, alone.
  template <typename Useless>
  void DropWaiting(Session& session, Forgotten& forgotten, const Useless& useless);
  // One receiver less needs the frame.
  void Release(FrameId id, Forgotten& forgotten);

  // Constant after construction.
  uint32_t frame_chunks_;  // In the longest frame of results.
  uint32_t max_streams_;   // At most, in a session.
  Rules rules_;

  std::map<SessionId, Session> sessions_;
  std::map<SessionToken, SessionId> by_token_;  // Those that are not closed.
  std::map<StreamId, Stream> streams_;
  std::map<FrameId, Frame> frames_;
  FrameId last_frame_ = 0;
  std::deque<std::pair<absl::Time, SessionId>> lingering_;  // In order of time.
  uint64_t resent_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_DELIVERY_H_
