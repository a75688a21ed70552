// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Generations and settings on their way to the state file, and the one change that waits until its
// generation is there. A disk that hangs is treated as one that fails, so that no change waits for
// ever.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_STATE_WRITES_H_
#define BASIN_AGGREGATOR_CORE_STATE_WRITES_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class StateWrites {
 public:
  // The newest generation that was ever handed to the disk.
  const Generation& newest() const { return newest_; }

  void Begin(const Generation& generation, absl::Time due) {
    newest_ = generation;
    open_.push_back({generation, due});
  }
  // Returns false if it was given up before.
  bool End(const Generation& generation) {
    const auto write = std::find_if(open_.begin(), open_.end(), [&](const Write& candidate) {
      return candidate.generation == generation;
    });
    if (write == open_.end()) return false;
    open_.erase(write);
    return true;
  }

  // When the oldest is given up.
  absl::Time due() const { return open_.empty() ? absl::InfiniteFuture() : open_.front().due; }
  // REQUIRES: due() is finite.
  const Generation& oldest() const { return open_.front().generation; }

  auto Fields() const { return std::tie(newest_, open_); }

 private:
  struct Write {
    Generation generation;
    absl::Time due;
    auto Fields() const { return std::tie(generation, due); }
  };

  Generation newest_;
  std::vector<Write> open_;  // The oldest first.
};

// What an operator has changed of the settings, on its way to the state file. It is in force before
// it is there, and is reported when it is, or is given up. The file takes one write after the
// other.
class SettingsWrites {
 public:
  // `report`: what to say when this write has ended; empty if it is nothing that was asked for.
  void Begin(std::string report, absl::Time due) { open_.push_back({std::move(report), due}); }
  // The oldest write has ended, perhaps after it was given up. Returns what to say. REQUIRES:
  // open().
  std::string End(bool ok) {
    is_saved_ = ok;
    std::string report = std::move(open_.front().report);
    open_.erase(open_.begin());
    return report;
  }
  // Gives up the write that is due. It may still end. Returns what to say. REQUIRES: due() is
  // finite.
  std::string GiveUp() {
    is_saved_ = false;
    Write& write = open_[static_cast<size_t>(FirstExpected() - open_.begin())];
    write.due = absl::InfiniteFuture();
    return std::exchange(write.report, "");
  }
  bool open() const { return !open_.empty(); }
  // When the oldest write that is still expected is given up.
  absl::Time due() const {
    const auto write = FirstExpected();
    return write == open_.end() ? absl::InfiniteFuture() : write->due;
  }
  // Whether the last write that has ended is on disk.
  bool is_saved() const { return is_saved_; }
  // What the state file has is in force.
  void NoteRestored() { is_saved_ = true; }

  auto Fields() const { return std::tie(open_, is_saved_); }

 private:
  struct Write {
    std::string report;
    absl::Time due;  // InfiniteFuture once it is given up.
    auto Fields() const { return std::tie(report, due); }
  };
  std::vector<Write>::const_iterator FirstExpected() const {
    return std::find_if(open_.begin(), open_.end(),
                        [](const Write& write) { return write.due != absl::InfiniteFuture(); });
  }

  std::vector<Write> open_;  // The oldest first.
  bool is_saved_ = false;
};

// A change of members that is announced when it is on disk. There is one at a time.
struct PendingChange {
  enum class Kind : uint8_t {
    kRecovery = 0,  // The members with which a recovery goes on.
    kMembers = 1,  // A change outside a verdict: genesis, in a pause, or when no verdict will come.
    kVerdict = 2,  // The members after the round of `lane`.
  };

  Kind kind = Kind::kMembers;
  Membership next;
  std::optional<WorkerId> donor;   // With kMembers.
  LaneIndex lane = 0;              // With kVerdict.
  std::vector<Incarnation> lives;  // Those of the next members when the change was decided.

  // Whether none of the next members has come back meanwhile as another incarnation, which is not
  // ready yet and does not have the state of the one before.
  bool StillMeant(const Workers& workers) const {
    for (size_t i = 0; i < next.members.size(); ++i) {
      const std::optional<Slot> slot = workers.Find(next.members[i]);
      if (!slot.has_value()) return false;  // Lost; another has its place.
      const Worker& worker = workers[*slot];
      if (worker.state != WorkerState::kLost && worker.incarnation != lives[i]) return false;
    }
    return true;
  }

  auto Fields() const { return std::tie(kind, next, donor, lane, lives); }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_STATE_WRITES_H_
