// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A member of a round: whether it takes part, its contribution and the room for it, the results
// that it has, and how far it has staged the prepared value.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_
#define BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/contribution.h"
#include "aggregator/core/workers.h"
#include "protocol/bitmap.h"
#include "protocol/layout.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

// The trainer of a worker that is out of step (see Worker) may be elsewhere in its script, so a
// call may continue without it. Every other member takes part in every round.
enum class Presence : uint8_t {
  kThere = 0,      // It contributes unless it has withdrawn, and it stages.
  kUndecided = 1,  // It is out of step and has sent nothing of the call, which waits for it.
  kLeftOut = 2,    // It neither contributes nor stages, but receives the verdict.
  kLost = 3,       // It is lost. It receives and stages nothing; its contribution may count.
};

enum class PresenceInput : uint8_t {
  kTakePart = 0,  // It begins the call or withdraws from it, or sends a frame or skip.
  kLeaveOut = 1,  // The call continues without it.
  kLose = 2,      // Its worker is lost, or is no longer a member when the round begins.
};

struct PresenceTransition {
  Presence from;
  PresenceInput input;
  Presence to;
  const char* when;
};

inline constexpr PresenceTransition kPresenceTransitions[] = {
    // from                 input                     to
    {Presence::kUndecided, PresenceInput::kTakePart, Presence::kThere,
     "it begins the call, or its hello reports that it has begun it"},
    {Presence::kUndecided, PresenceInput::kLeaveOut, Presence::kLeftOut,
     "its trainer waits for something else, or the round is aborted"},
    {Presence::kLeftOut, PresenceInput::kTakePart, Presence::kThere,
     "it begins the call before the value is fixed"},
    {Presence::kThere, PresenceInput::kLeaveOut, Presence::kLeftOut,
     "a deadlock ends or its worker finishes, and its client has not registered the lane"},
    {Presence::kThere, PresenceInput::kLose, Presence::kLost,
     "its worker is lost, or is no member when the round begins"},
    {Presence::kUndecided, PresenceInput::kLose, Presence::kLost, "its worker is lost"},
    {Presence::kLeftOut, PresenceInput::kLose, Presence::kLost, "its worker is lost"},
};
static_assert(IsUnambiguous(kPresenceTransitions));

// How far a member has staged the prepared value.
enum class StagingState : uint8_t {
  kNotAsked = 0,  // It may not stage yet; see MayStage.
  kAsked = 1,     // Prepared was sent to it.
  kStaged = 2,
};

enum class StagingInput : uint8_t {
  kPrepare = 0,  // A value is prepared, or is lost; or the member has a new session.
  kAsk = 1,      // It may stage, and Prepared is sent to it.
  kStage = 2,    // It reports that it has staged the value.
};

struct StagingTransition {
  StagingState from;
  StagingInput input;
  StagingState to;
  const char* when;
};

inline constexpr StagingTransition kStagingTransitions[] = {
    // from                   input                   to
    {StagingState::kNotAsked, StagingInput::kPrepare, StagingState::kNotAsked,
     "a value is prepared or lost, or it reconnects"},
    {StagingState::kNotAsked, StagingInput::kAsk, StagingState::kAsked, "it may stage"},
    {StagingState::kNotAsked, StagingInput::kStage, StagingState::kStaged,
     "it stages the value without being asked"},
    {StagingState::kAsked, StagingInput::kPrepare, StagingState::kNotAsked,
     "the value is prepared at a higher ballot, or lost; or it reconnects"},
    {StagingState::kAsked, StagingInput::kStage, StagingState::kStaged,
     "it reports that it has all bytes"},
    {StagingState::kStaged, StagingInput::kPrepare, StagingState::kNotAsked,
     "the value is prepared at a higher ballot, or lost; or it reconnects"},
    {StagingState::kStaged, StagingInput::kStage, StagingState::kStaged,
     "it reports that once more"},
};
static_assert(IsUnambiguous(kStagingTransitions));

// How much more the member may send. See FlowControl.
struct Room {
  ByShard sent;           // The last windows that were sent to it.
  bool blocked = false;   // It can add nothing: complete, not counted, lost, or without room.
  absl::Time free_since;  // When it was last unblocked.

  auto Fields() const { return std::tie(sent, blocked, free_since); }
};

// The results that a member has, and whether it keeps up with those that are held for it.
class Reception {
 public:
  bool Has(uint32_t flat) const { return acked_.Test(flat); }
  bool HasAll() const { return acked_.all(); }
  size_t count() const { return acked_.count(); }
  // Result chunks that are held for it.
  uint32_t owed() const { return owed_; }
  // When it last made progress, or its time started.
  absl::Time progress() const { return progress_; }
  // If results are held for it while the round collects, some of them already were at this time.
  // Once the value is prepared, this is when it could begin to stage.
  absl::Time behind_since() const { return behind_since_; }

  void Grow(uint32_t chunks) { acked_.Resize(chunks); }
  void NoteProgress(absl::Time now) { progress_ = now; }
  // Its time starts now.
  void StartClock(absl::Time now) { progress_ = behind_since_ = now; }
  void Owe(uint32_t chunks, absl::Time now);
  // So many that it did not take are not held any more.
  void OweLess(uint32_t chunks);
  // It has this chunk, or will never need it. `collects`: more results may follow. Returns whether
  // this is new.
  bool Take(uint32_t flat, absl::Time now, bool collects);
  // It has received a chunk that it requested. The first `most` of these count as progress.
  void Fetched(uint32_t most, absl::Time now);
  void ForgetFetched() { fetched_ = 0; }
  void OweNothing() { owed_ = behind_ = 0; }
  // The chunks are reduced again.
  void ForgetAll() {
    acked_.ClearAll();
    OweNothing();
  }
  // This result is not held for it, or it had it before it was lost, ...
  void HoldNot(uint32_t flat) { acked_.Set(flat); }
  // ... and none is: it requests what it needs.
  void HoldNothing() {
    for (uint32_t flat = 0; flat < acked_.size(); ++flat) acked_.Set(flat);
  }

  auto Fields() const {
    return std::tie(acked_, owed_, behind_, fetched_, progress_, behind_since_);
  }

 private:
  uint32_t owed_ = 0;
  uint32_t behind_ = 0;  // How many of owed_ were already held for it at behind_since_.
  absl::Time progress_;
  absl::Time behind_since_;
  Bitmap acked_;
  uint32_t fetched_ = 0;  // Chunks that it requested (Need) and took, at this ballot.
};

// The fields that every frame reads come first, so that they are close in memory. Once a member is
// in a Roster, only the Roster changes its states and room.blocked.
struct RoundMember {
  Slot slot = 0;
  StateMachine<kPresenceTransitions> presence;
  Room room;
  Contribution contribution;
  Reception reception;
  Bitmap asked;  // In pull mode: chunks that it was asked to push.
  Incarnation incarnation;

  WorkerId id;
  std::optional<Error> refusal;               // Why its contribution was refused.
  StateMachine<kStagingTransitions> staging;  // At the current ballot.
  bool holds = false;            // It has staged this value at some ballot, so it can supply it.
  bool without_results = false;  // They reach it another way.
  bool named_late = false;
  bool late = false;     // Its contribution was left out because it was late.
  bool carried = false;  // For observers: another worker of its node contributes its gradients.

  bool alive() const { return presence.state() != Presence::kLost; }
  // Returns whether it takes part in the round.
  bool there() const { return presence.state() == Presence::kThere; }
  // Returns whether it gets the results.
  bool receives() const { return presence.state() <= Presence::kUndecided; }
  // Returns whether this aggregator sends them to it without being asked.
  bool is_sent_results() const { return receives() && !without_results; }
  // Returns whether it can only wait for the others.
  bool waits() const { return room.blocked && receives(); }
  bool staged() const { return staging.state() == StagingState::kStaged; }
  // Returns whether Prepared was sent to it at the current ballot.
  bool sent_prepared() const { return staging.state() != StagingState::kNotAsked; }

  // The layout has grown by these bytes, or the member is new.
  void Grow(const Layout& layout, const ByShard& bytes) {
    contribution.Grow(layout, bytes);
    reception.Grow(layout.chunks());
    asked.Resize(layout.chunks());
  }
  // Its time starts now.
  void StartClock(absl::Time now) {
    reception.StartClock(now);
    room.free_since = now;
  }

  auto Fields() const {
    return std::tie(slot, id, incarnation, presence, contribution, refusal, room, asked, reception,
                    staging, holds, without_results, named_late, late);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_
