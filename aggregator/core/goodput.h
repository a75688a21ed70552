// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How much of the time of a job's members became committed work, and where the rest went.
//
// Each moment of each member is counted once, under one TimeUse, when the round that it belongs to
// has its verdict: docs/monitoring.md defines the uses. What is counted never becomes less. The
// time since the last verdict is not counted yet; AsOf() shows what it is at the moment. Nothing is
// decided from either, so Goodput is not part of the state that Fields() compares.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_GOODPUT_H_
#define BASIN_AGGREGATOR_CORE_GOODPUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/workers.h"
#include "protocol/ids.h"

namespace basin::aggregator {

enum class TimeUse : uint8_t {
  kWorked = 0,      // From the verdict before until a contribution that was counted was complete.
  kWaiting = 1,     // From then on until that of the last member was.
  kDetecting = 2,   // The round waited for a member that was silent, until that one was lost.
  kCatchingUp = 3,  // A member that joined others, until its first contribution that was counted.
  kDiscarded = 4,   // The round was aborted, or the contribution was not counted.
  kPaused = 5,      // The job was paused, or recovered.
  kSettling = 6,    // From the last contribution to the verdict.
  kPending = 7,     // Without a verdict yet: a part of kWorked or kDiscarded once there is one.
};
inline constexpr TimeUse kTimeUses[] = {
    TimeUse::kWorked,    TimeUse::kWaiting, TimeUse::kDetecting, TimeUse::kCatchingUp,
    TimeUse::kDiscarded, TimeUse::kPaused,  TimeUse::kSettling,  TimeUse::kPending};

// "catching_up", for metrics.
const char* TimeUseName(TimeUse use);

// A round with a verdict, as far as the time of its members depends on it. For AsOf(), an open
// round as if its verdict came now.
struct RoundTimes {
  struct Part {
    Slot slot = 0;
    bool alive = true;
    bool counted = false;  // It has a part in the committed work.
    absl::Time arrived;    // When it was first complete. Meaningful if it was counted.
  };
  absl::Time verdict;
  // When the round stopped waiting for contributions, and for whose. InfinitePast: for nobody's.
  // InfiniteFuture: it still waits, for those of several workers if `last` is empty.
  absl::Time last_at = absl::InfinitePast();
  WorkerId last;
  std::vector<Part> parts;
};

// How a member was lost.
struct LostMember {
  Slot slot = 0;
  WorkerId id;
  absl::Time silent_since;   // Its last message; the time of the loss if it was not silent.
  bool contributed = false;  // An open round has its contribution.
  bool owed = false;         // An open round waited for its contribution.
  bool delayed = false;      // An open round waited for anything of it.
};

// What became of the time of the members up to one moment.
struct GoodputView {
  struct Use {
    TimeUse use = TimeUse::kWorked;
    absl::Duration settled;  // Counted: it never becomes less.
    absl::Duration open;     // Since the last verdict, which may count it as another use.
  };
  std::vector<Use> uses;  // All of them; no time is in two of them.
  // The part of all time that was worked; absent while no time is counted.
  std::optional<double> ratio;
  std::map<WorkerId, absl::Duration> waited_for;  // As in Goodput, with the time that is open.
};

// How late a member was in the rounds that counted it: after the first member that contributed.
struct Lateness {
  uint64_t rounds = 0;
  absl::Duration total;
};

class Goodput {
 public:
  // ---- observers
  absl::Duration Total(TimeUse use) const { return totals_[static_cast<size_t>(use)]; }
  // The part of the counted time that was worked; absent while no time is counted.
  std::optional<double> Ratio() const;
  // How long members waited for each worker, in all, for at most kWaitedFor workers.
  const std::map<WorkerId, absl::Duration>& waited_for() const { return waited_for_; }
  Lateness LatenessOf(Slot slot) const;
  // The same with the time since the last verdict: as if the members in `silent` were lost now, in
  // this order, and then each of the rounds ended now. The rounds have only the members that
  // contributed, and a member is in the first of those that have it.
  GoodputView AsOf(absl::Time now, const std::vector<LostMember>& silent,
                   const std::vector<RoundTimes>& open) const;

  // ---- members
  // `catches_up`: it joins members that go on.
  void Join(Slot slot, absl::Time now, bool catches_up);
  // It is no member any more, in good order.
  void Leave(Slot slot, absl::Time now);
  void Lose(const LostMember& lost, absl::Time now);
  // All members are forgotten.
  void LeaveAll(absl::Time now);

  // ---- the job is paused or recovers, until Resume
  void Hold(absl::Time now);
  void Resume(absl::Time now);
  // When the present hold began, or `now`: members that a recovery finds have waited since then.
  absl::Time HeldSince(absl::Time now) const { return std::min(held_since_, now); }

  // A round of a gradient lane has its verdict.
  void End(const RoundTimes& round);

 private:
  struct Member {
    bool present = false;
    bool catches_up = false;
    absl::Time since;                           // Its time up to here is counted.
    absl::Time until = absl::InfiniteFuture();  // It was lost, and its last round is still open.
    Lateness lateness;
  };
  struct Span {
    absl::Time from;
    absl::Time to;
  };
  struct Silence {
    Span span;
    WorkerId worker;
    bool owed = false;
  };

  absl::Duration& Of(TimeUse use) { return totals_[static_cast<size_t>(use)]; }
  // Counts the member's time in the span, without what is counted already. Returns how much of it
  // the job was not held.
  absl::Duration Count(const Member& member, TimeUse use, absl::Time from, absl::Time to);
  void CountWait(const Member& member, const WorkerId& worker, absl::Time from, absl::Time to);
  void CountAfterArrival(const Member& member, absl::Time arrived, const RoundTimes& round);
  void ForgetOldSpans();

  std::array<absl::Duration, std::size(kTimeUses)> totals_{};
  std::map<WorkerId, absl::Duration> waited_for_;
  std::vector<Member> members_;  // By slot.
  absl::Time held_since_ = absl::InfiniteFuture();
  std::vector<Span> holds_;        // Those that ended, while the time of a member needs them.
  std::vector<Silence> silences_;  // Likewise, in the order of the losses.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_GOODPUT_H_
