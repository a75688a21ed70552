// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard while it is connected with its coordinator: reports what happens to bytes here, holds
// each frame until the coordinator has answered it, and carries out the coordinator's steps. It
// knows no thread, lock or clock; the shard's engine calls it from its loop, tests call it step by
// step. For each connection there is a new one, because a coordinator that lost a shard has given
// up what it held.
//
// Thread contract: one thread.
// Failure: what a worker does wrong closes its data stream with a status that names it. A step that
// cannot be carried out is an error: the two disagree about what is held here, and the connection
// must end.

#ifndef BASIN_AGGREGATOR_SHARD_SHARD_RUNNER_H_
#define BASIN_AGGREGATOR_SHARD_SHARD_RUNNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/engine/byte_runner.h"
#include "aggregator/engine/shard_messages.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

struct ShardDependencies {
  // What the runner does not fill in itself.
  ByteDependencies bytes;
  // Sends events to the coordinator. Must not block.
  std::function<void(std::vector<ShardEvent> events)> report;
};

class ShardRunner {
 public:
  explicit ShardRunner(ShardDependencies dependencies);
  ShardRunner(const ShardRunner&) = delete;
  ShardRunner& operator=(const ShardRunner&) = delete;

  // ---- what happened. REQUIRES: `now` does not go back.
  void StreamOpened(StreamId stream, SessionToken token);
  void FrameReceived(StreamId stream, IncomingFrame frame);
  void StreamClosed(StreamId stream);
  void Reduced(const Reduction& reduction);
  void ArenaMade(JobId job, LaneIndex lane, uint64_t bytes, std::shared_ptr<ResultArena> arena,
                 absl::Time now);
  // What the coordinator has decided.
  absl::Status Step(const ShardStep& step, absl::Time now);

  // Reports what it has done and holds, if that has changed since the last time.
  void ReportUse();

  // Reports what has happened since the last time.
  void Flush();

  // The data streams that have not been closed, accepted or not.
  const std::map<StreamId, bool>& streams() const { return streams_; }

  // ---- for metrics
  const ByteRunner& bytes() const { return bytes_; }
  size_t unanswered_frames() const { return frames_.size(); }

 private:
  // A frame that the coordinator has not answered.
  struct Unanswered {
    StreamId stream = 0;
    IncomingFrame frame;
    ChunkDigests digests;
    bool unknown = false;  // It names a tensor that is not known here.
  };

  Transport& transport() const { return *dependencies_.bytes.transport; }
  ByteDependencies DependenciesOfBytes() const;
  // Closes the stream for this reason, and reports it.
  void Refuse(StreamId stream, const absl::Status& why);
  // A frame of an accepted stream. `again`: it has named a tensor that was unknown.
  void Take(StreamId stream, const ByteRunner::Origin& origin, IncomingFrame frame, bool again);
  template <typename Action>
  absl::Status Do(const Action& action, const Payloads::Arrived* arrived, absl::Time now) {
    return bytes_.CarryOut(action, arrived, now);
  }
  absl::Status Do(const ShardAcceptStream& accept, const Payloads::Arrived* arrived,
                  absl::Time now);
  absl::Status Do(const CloseStream& close, const Payloads::Arrived* arrived, absl::Time now);
  absl::Status Do(const EndJob& end, const Payloads::Arrived* arrived, absl::Time now);

  const ShardDependencies dependencies_;
  std::map<JobId, JobName> names_;  // Those of jobs that have streams here.
  std::map<StreamId, bool> streams_;
  ByteRunner bytes_;
  std::map<ShardFrame, Unanswered> frames_;
  ShardFrame last_frame_ = 0;
  std::vector<ShardEvent> events_;  // Not reported yet.
  ShardUse use_;                    // As it was reported last.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_SHARD_SHARD_RUNNER_H_
