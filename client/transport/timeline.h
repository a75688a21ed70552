// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Collects the moments of a worker's rounds, for a thread that writes them. It is there only if the
// trainer asked for it; everybody else has a null pointer to it, and one branch.
//
// A round is recorded in one piece: when the lane's next round begins, or a second after its
// outcome, whichever is first. Records wait in a bounded queue, and are dropped and counted while
// it is full: nothing here waits for the writer.
//
// Thread contract: safe from any thread. Results of rounds refer to it, so it may outlive its
// worker. Failure: none; calls that fit no open round are ignored.

#ifndef BASIN_CLIENT_TRANSPORT_TIMELINE_H_
#define BASIN_CLIENT_TRANSPORT_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/core/event.h"
#include "client/transport/moments.h"
#include "client/transport/outcome.h"
#include "runtime/mutex.h"

namespace basin::client {

class Timeline {
 public:
  // `now`: the clock of the worker; callable at any time. Rounds whose number is a multiple of
  // `every` are recorded, so the same ones by all workers, and those that fail.
  Timeline(std::function<absl::Time()> now, uint32_t every) : now_(std::move(now)), every_(every) {}

  absl::Time Now() const { return now_(); }

  // ---- the trainer's threads
  // A call that begins a round has been made; `Refused` takes it back. False, and the call is not
  // recorded, while a round of the lane has no outcome.
  bool Begin(LaneHandle lane);
  void Refused(LaneHandle lane);
  // A call that pushes this began at `begin`, and is over.
  void Pushed(LaneHandle lane, absl::Time begin, uint32_t tensors, uint64_t bytes);
  // The trainer commits or withdraws.
  void Commit(LaneHandle lane);
  // A call that copies results of the round began at `begin`, and is over.
  void Copied(LaneHandle lane, RoundNumber round, absl::Time begin);

  // ---- the worker's loop
  void Register(LaneHandle lane, const std::string& name, LaneKind kind);
  // The lane is gone; copies of its results are not recorded any more.
  void Forget(LaneHandle lane);
  void FirstResult(LaneHandle lane, absl::Time now);
  void Staged(LaneHandle lane, absl::Time now);
  // The outcome is known; `round` is 0 if its number is not.
  void Decided(LaneHandle lane, RoundNumber round, uint64_t result_bytes,
               const RoundOutcome& outcome, absl::Time now);
  // The trainer has it, or can take it.
  void Delivered(LaneHandle lane);
  void OnJobView(const JobView& view);

  // ---- the writer
  struct Batch {
    std::vector<TimelineRecord> records;
    uint64_t dropped = 0;  // Since the last batch.
    bool ended = false;    // Nothing follows.
  };
  // Waits until many records wait, but not for long, or until End.
  Batch Take();
  // Completes the rounds that are open, and ignores all later calls.
  void End();

  // Records that wait at most.
  static constexpr size_t kQueued = 4096;

 private:
  struct Lane {
    std::string name;
    LaneKind kind = LaneKind::kGradient;
    absl::Time idle_since = absl::InfinitePast();
    std::optional<RoundMoments> round;
  };
  // Null: it is not registered.
  Lane* Find(LaneHandle lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The open round of a lane; null if there is none.
  RoundMoments* Open(LaneHandle lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Queue(TimelineRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<absl::Time()> now_;
  const uint32_t every_;

  Mutex mutex_;
  Condition changed_;
  std::map<LaneHandle, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  JobView view_ ABSL_GUARDED_BY(mutex_);
  std::vector<TimelineRecord> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_TIMELINE_H_
