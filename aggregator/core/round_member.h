// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A member of a round: whether it takes part, what it contributes, which results it has, and how
// far it is with the value that is prepared.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_
#define BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_

#include <cstdint>
#include <optional>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/contribution.h"
#include "aggregator/core/layout.h"
#include "aggregator/core/transitions.h"
#include "aggregator/core/workers.h"
#include "protocol/bitmap.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// A worker that joins in a pause finds calls open, and its trainer may be elsewhere in its script.
// A member of the job before that is in every round.
enum class Presence : uint8_t {
  kThere = 0,      // Contributes unless it has withdrawn, and stages.
  kUndecided = 1,  // Joined while the call was open, and has not begun it: the call waits for it.
  kAway = 2,       // Waits for something else: neither contributes nor stages, hears the verdict.
};

enum class PresenceInput : uint8_t {
  kTakePart = 0,  // It begins the call, or sends something of it.
  kLeaveOut = 1,  // The call goes on without it.
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

// What every frame looks at comes first, so that it lies together in memory.
struct RoundMember {
  Slot slot = 0;
  StateMachine<kPresenceTransitions> presence;
  bool gone = false;     // Lost: stages nothing, gets nothing.
  bool blocked = false;  // Can add nothing: effective, or no room for what it would send next.
  bool waits = false;    // Blocked and alive: all it can do is wait for the others.
  uint32_t owed = 0;     // Result chunks that are held for it.
  uint32_t behind = 0;   // How many of them were held for it at `behind_since` already.
  uint64_t told_window = 0;
  Contribution contribution;
  absl::Time progress;      // When it last took a result that it did not have, or staged.
  absl::Time behind_since;  // See AwaitedSince.
  absl::Time free_since;    // When it last began to have room for what it sends next.
  Bitmap acked;             // Result chunks it has.
  Bitmap asked;             // Pull mode: chunks it was told to push.
  Incarnation incarnation;

  WorkerId id;
  std::optional<Error> refusal;  // Why its contribution is not counted, if for its own doing.
  bool refetched = false;        // Its digest did not match once.
  StateMachine<kStagingTransitions> staging;  // At the current ballot.
  bool holds = false;    // Has staged this value, at whatever ballot: can supply it.
  uint32_t fetched = 0;  // Chunks that it asked for (Need) and took, at this ballot.
  bool named_late = false;

  bool staged() const { return staging.state() == StagingState::kStaged; }
  // Whether it was sent Prepared at the current ballot, and may stage.
  bool sent_prepared() const { return staging.state() != StagingState::kNotAsked; }

  // The layout has grown, or the member is new.
  void Grow(const Layout& layout) {
    contribution.Grow(layout);
    acked.Resize(layout.chunks());
    asked.Resize(layout.chunks());
  }

  auto Fields() const {
    return std::tie(slot, id, incarnation, presence, gone, contribution, refusal, refetched,
                    told_window, blocked, waits, asked, acked, owed, behind, staging, holds,
                    progress, behind_since, free_since, fetched, named_late);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_MEMBER_H_
