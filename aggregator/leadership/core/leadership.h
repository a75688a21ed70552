// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether this aggregator leads, as a pure state machine: answers of the authority and the passing
// of time come in, requests to the authority and permissions to decide come out.
//
// An aggregator decides only while it holds a permission, which ends by itself. The rules:
//
//   - A leader notes the time before it asks for a renewal. When the renewal succeeds, it may
//   decide
//     until that time + lease - margin. The margin covers two clocks of which each is 1 % wrong,
//     and a pause between a decision and its effect.
//   - After a pause that outlives the permission, it asks before it decides. If nobody has taken
//   the
//     lead meanwhile, it goes on where it was: sessions stay open, and rounds wait.
//   - A leader that hands over stops deciding, writes that nobody leads, and ends its sessions when
//     another one leads, or when none has come forward for a while. Its workers, whose sessions it
//     ends, then find the new leader at once, instead of one that does not lead yet.
//   - A leader that could not renew for two leases gives up, because another one may lead, and its
//     workers have to look for that one.
//   - A standby takes the lead when the record has not changed for the whole lease that it names,
//   by
//     the clock of the standby, or at once when the holder has given it up or has ended.
//   - Each write names the version that it replaces, so that of two writers one fails.
//   - A failed write may have happened. The record is read before the next one, and a process leads
//     only after a write of its own that succeeded.
//   - Where there is no record, a standby writes one that names nobody, and waits for two leases.
//     The authority may have lost the record of a leader that does not know it yet, and whose lease
//     was up to twice as long; and an absent record has no version that shows that it came and
//     went.
//
// The authority may lag, answer late or not at all, and lose the record at any time.
//
// Thread contract: a plain value. One request is under way at a time. Failure: none; a request that
// failed is repeated.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_CORE_LEADERSHIP_H_
#define BASIN_AGGREGATOR_LEADERSHIP_CORE_LEADERSHIP_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/leadership/core/record.h"

namespace basin::aggregator {

struct LeadershipConfig {
  std::string holder;   // This process, as no other one is called.
  std::string address;  // Where workers reach it.
  absl::Duration lease = absl::Seconds(3);
  // A pause of this process that is not noticed.
  absl::Duration unnoticed_pause = absl::Milliseconds(500);

  absl::Duration margin() const;
  absl::Duration renew_every() const { return lease / 4; }
  absl::Duration retry_after() const;
  absl::Duration read_every() const;
  // After a release: how often the record is read, and for how long another leader is waited for.
  absl::Duration look_for_successor_every() const;
  absl::Duration wait_for_successor() const;
  // An answer that takes longer counts as none.
  absl::Duration request_timeout() const { return lease / 4; }
  auto Fields() const { return std::tie(holder, address, lease, unnoticed_pause); }
};

// ---- events

struct RecordRead {
  RecordState state;
};
// The write succeeded; the record has this version now.
struct RecordWritten {
  std::string version;
};
// The record had another version than the write was to replace.
struct WriteRefused {};
// The read failed, or the write, which may have happened nevertheless.
struct RequestFailed {
  std::string why;
};
// Gives up the lead, and takes it again only if nobody else does.
struct StepDown {};
// Gives up the lead for good: the process ends.
struct Retire {};
struct TimePassed {};

using LeadershipEvent = std::variant<RecordRead, RecordWritten, WriteRefused, RequestFailed,
                                     StepDown, Retire, TimePassed>;

// ---- actions, in order

struct ReadRecord {};
// Replaces the record if it still has this version.
struct WriteRecord {
  LeaderRecord record;
  std::string version;
};
// This aggregator leads from now on, and recovers with a term above this fence.
struct BeginLeading {
  uint64_t fence = 0;
};
// It may decide until this time; it may not now if that has passed.
struct DecideUntil {
  absl::Time until;
};
// It leads no more: its sessions end, and what it knew is forgotten.
struct EndLeading {
  std::string why;
};

using LeadershipAction =
    std::variant<ReadRecord, WriteRecord, BeginLeading, DecideUntil, EndLeading>;

enum class LeadershipState : uint8_t {
  kStandby,    // Watches the record.
  kTaking,     // Has asked for the lead.
  kLeading,    // Leads; decides while its permission lasts.
  kReleasing,  // Has stopped deciding, and writes that nobody leads.
  kReleased,   // Has written it, and waits for another one to lead.
  kRetired,    // Takes no part any more.
};

class Leadership {
 public:
  Leadership(LeadershipConfig config, absl::Time start);

  // `now`: of a clock that never stands still, not even while the machine sleeps. `wall`: the wall
  // clock, for the fence alone. REQUIRES: `now` does not go back; an answer belongs to the request
  // under way.
  void Step(const LeadershipEvent& event, absl::Time now, absl::Time wall,
            std::vector<LeadershipAction>& actions);

  // When Step(TimePassed) must be called at the latest.
  absl::Time NextDeadline() const;

  // ---- for status
  LeadershipState state() const { return state_; }
  bool leads() const { return state_ == LeadershipState::kLeading; }
  absl::Time decides_until() const { return decides_until_; }
  // The record as it was read or written last.
  const RecordState& seen() const { return seen_; }
  // Why the authority cannot be asked; empty if it can.
  const std::string& trouble() const { return trouble_; }
  const LeadershipConfig& config() const { return config_; }

  auto Fields() const {
    return std::tie(config_, state_, asking_, writing_, knows_, retiring_, next_request_, asked_at_,
                    renewed_at_, decides_until_, not_before_, released_until_, seen_, seen_at_,
                    saw_, written_, highest_fence_, trouble_);
  }

 private:
  void OnRead(const RecordState& state, absl::Time now, absl::Time wall,
              std::vector<LeadershipAction>& actions);
  void OnWritten(const std::string& version, absl::Time now,
                 std::vector<LeadershipAction>& actions);
  void OnRefused(absl::Time now, std::vector<LeadershipAction>& actions);
  void OnFailed(const std::string& why, absl::Time now, std::vector<LeadershipAction>& actions);
  void OnTime(absl::Time now, std::vector<LeadershipAction>& actions);
  void GiveUp(bool for_good, absl::Time now, std::vector<LeadershipAction>& actions);

  // Notes what the record is. Whether it has changed is seen by its version.
  void See(const RecordState& state, absl::Time now);
  // When a standby may take the lead, if the record does not change. REQUIRES: there is a record.
  absl::Time MayTakeAt() const;
  bool IsMine() const;
  bool IsLed() const;  // By whomever the record names.
  // Why a leader that is not the holder leads no more.
  std::string WhoLeads() const;
  void Read(std::vector<LeadershipAction>& actions);
  void Write(LeaderRecord record, absl::Time now, std::vector<LeadershipAction>& actions);
  void Renew(absl::Time now, std::vector<LeadershipAction>& actions);
  void StopDeciding(absl::Time now, std::vector<LeadershipAction>& actions);
  void Follow(std::string why, absl::Time now, std::vector<LeadershipAction>& actions);
  void FinishRelease(absl::Time now, std::vector<LeadershipAction>& actions);
  // Ends the lead that was given up.
  void LetGo(std::string why, absl::Time now, std::vector<LeadershipAction>& actions);

  LeadershipConfig config_;
  LeadershipState state_ = LeadershipState::kStandby;
  bool asking_ = false;      // A request is under way,
  bool writing_ = false;     // which is a write.
  bool knows_ = false;       // seen_.version is that of the record, unless others have written.
  bool retiring_ = false;    // After the release.
  absl::Time next_request_;  // When nothing is under way.
  absl::Time asked_at_;      // The present write,
  absl::Time renewed_at_;    // and the last one that succeeded.
  absl::Time decides_until_ = absl::InfinitePast();
  absl::Time not_before_ = absl::InfinitePast();  // After a step-down, for others to come first.
  absl::Time released_until_ = absl::InfinitePast();  // Until when another leader is waited for.
  RecordState seen_;
  absl::Time seen_at_ = absl::InfinitePast();  // Since when it has been like this.
  bool saw_ = false;                           // It has been read at all.
  LeaderRecord written_;                       // By the present write, or the last one.
  uint64_t highest_fence_ = 0;                 // The highest one seen.
  std::string trouble_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_CORE_LEADERSHIP_H_
