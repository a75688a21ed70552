// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A member of a round: whether it takes part, what it contributes and how much of it there is room
// for, which results it has, and how far it is with the value that is prepared.
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
#include "aggregator/core/layout.h"
#include "aggregator/core/workers.h"
#include "protocol/bitmap.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

// A worker that joins in a pause finds calls open, and its trainer may be elsewhere in its script.
// A member of the job before that is in every round.
enum class Presence : uint8_t {
  kThere = 0,      // Contributes unless it has withdrawn, and stages.
  kUndecided = 1,  // Joined while the call was open, and has not begun it: the call waits for it.
  kAway = 2,       // Waits for something else: neither contributes nor stages, hears the verdict.
  kGone = 3,       // Lost: its contribution may count, but it gets nothing and stages nothing.
};

enum class PresenceInput : uint8_t {
  kTakePart = 0,  // It begins the call, or sends something of it.
  kLeaveOut = 1,  // The call goes on without it.
  kLose = 2,      // Its worker is lost, or no longer a member before the round begins.
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
     "it begins the call, or its hello says that it has"},
    {Presence::kUndecided, PresenceInput::kLeaveOut, Presence::kAway,
     "its trainer waits for something else, or there will be no result"},
    {Presence::kAway, PresenceInput::kTakePart, Presence::kThere,
     "it begins the call after all, while nothing is fixed"},
    {Presence::kThere, PresenceInput::kLeaveOut, Presence::kAway,
     "a deadlock is ended, and its trainer has never named the lane"},
    {Presence::kThere, PresenceInput::kLose, Presence::kGone, "its worker is lost"},
    {Presence::kUndecided, PresenceInput::kLose, Presence::kGone, "its worker is lost"},
    {Presence::kAway, PresenceInput::kLose, Presence::kGone, "its worker is lost"},
};
static_assert(IsUnambiguous(kPresenceTransitions));

// How far a member is with the value that is prepared.
enum class StagingState : uint8_t {
  kNotAsked = 0,  // It does not know the lane, lacks the state, or has not decided; see MayStage.
  kAsked = 1,     // It was sent Prepared.
  kStaged = 2,
};

enum class StagingInput : uint8_t {
  kPrepare = 0,  // A value is prepared, or was lost; or the member has a new session.
  kAsk = 1,      // It may stage, and is sent Prepared.
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
     "a value is prepared for the first time"},
    {StagingState::kNotAsked, StagingInput::kAsk, StagingState::kAsked, "it may stage"},
    {StagingState::kNotAsked, StagingInput::kStage, StagingState::kStaged,
     "it stages what it was not asked for"},
    {StagingState::kAsked, StagingInput::kPrepare, StagingState::kNotAsked,
     "the value is prepared at a higher ballot, or lost; or it reconnects"},
    {StagingState::kAsked, StagingInput::kStage, StagingState::kStaged, "it has all bytes"},
    {StagingState::kStaged, StagingInput::kPrepare, StagingState::kNotAsked,
     "the value is prepared at a higher ballot, or lost; or it reconnects"},
    {StagingState::kStaged, StagingInput::kStage, StagingState::kStaged, "it says so again"},
};
static_assert(IsUnambiguous(kStagingTransitions));

// How much more the member may send. See FlowControl.
struct Room {
  uint64_t told = 0;      // The window that it was sent last.
  bool blocked = false;   // It can add nothing: effective, or no room for what it would send next.
  absl::Time free_since;  // When it last began to have room.

  auto Fields() const { return std::tie(told, blocked, free_since); }
};

// Which results the member has, and whether it keeps up with what is held for it.
class Reception {
 public:
  bool Has(uint32_t flat) const { return acked_.Test(flat); }
  bool HasAll() const { return acked_.all(); }
  size_t count() const { return acked_.count(); }
  // Result chunks that are held for it.
  uint32_t owed() const { return owed_; }
  // When it last took a result that it did not have, or staged.
  absl::Time progress() const { return progress_; }
  // A moment since which it has not taken everything that was held for it then; once the value is
  // prepared, when that was.
  absl::Time behind_since() const { return behind_since_; }

  void Grow(uint32_t chunks) { acked_.Resize(chunks); }
  void NoteProgress(absl::Time now) { progress_ = now; }
  // Its time starts now.
  void StartClock(absl::Time now) { progress_ = behind_since_ = now; }
  void Owe(uint32_t chunks, absl::Time now);
  // It has this chunk, or will never need it. `collects`: more results may follow. Returns whether
  // that is news.
  bool Take(uint32_t flat, absl::Time now, bool collects);
  // A chunk that it had requested has come. `most`: as many requests count as progress.
  void Fetched(uint32_t most, absl::Time now);
  void ForgetFetched() { fetched_ = 0; }
  void OweNothing() { owed_ = behind_ = 0; }
  // The chunks are reduced again.
  void ForgetAll() {
    acked_.ClearAll();
    OweNothing();
  }
  // It requests what it needs.
  void HoldNothing() {
    for (uint32_t flat = 0; flat < acked_.size(); ++flat) acked_.Set(flat);
  }

  auto Fields() const {
    return std::tie(acked_, owed_, behind_, fetched_, progress_, behind_since_);
  }

 private:
  uint32_t owed_ = 0;
  uint32_t behind_ = 0;  // How many of the owed were held for it at `behind_since_` already.
  absl::Time progress_;
  absl::Time behind_since_;
  Bitmap acked_;
  uint32_t fetched_ = 0;  // Chunks that it requested (Need) and took, at this ballot.
};

// What every frame looks at comes first, so that it lies together in memory. Its states, and
// whether it is blocked, are changed by the Roster alone once it is in one.
struct RoundMember {
  Slot slot = 0;
  StateMachine<kPresenceTransitions> presence;
  Room room;
  Contribution contribution;
  Reception reception;
  Bitmap asked;  // Pull mode: chunks that it was told to push.
  Incarnation incarnation;

  WorkerId id;
  std::optional<Error> refusal;  // Why its contribution is not counted, if for its own doing.
  StateMachine<kStagingTransitions> staging;  // At the current ballot.
  bool holds = false;  // Has staged this value, at whatever ballot: can supply it.
  bool named_late = false;

  bool alive() const { return presence.state() != Presence::kGone; }
  // Whether it takes part in the round.
  bool there() const { return presence.state() == Presence::kThere; }
  // Whether it gets the results.
  bool receives() const { return presence.state() <= Presence::kUndecided; }
  // Whether all it can do is wait for the others.
  bool waits() const { return room.blocked && receives(); }
  bool staged() const { return staging.state() == StagingState::kStaged; }
  // Whether it was sent Prepared at the current ballot, and may stage.
  bool sent_prepared() const { return staging.state() != StagingState::kNotAsked; }

  // The layout has grown, or the member is new.
  void Grow(const Layout& layout) {
    contribution.Grow(layout);
    reception.Grow(layout.chunks());
    asked.Resize(layout.chunks());
  }
  // Nobody has waited for it yet.
  void StartClock(absl::Time now) {
    reception.StartClock(now);
    room.free_since = now;
  }

  auto Fields() const {
    return std::tie(slot, id, incarnation, presence, contribution, refusal, room, asked, reception,
                    staging, holds, named_late);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_
