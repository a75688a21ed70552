// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One aggregator among several, of which one leads: runs the core of leadership with an authority,
// on a thread of its own.
//
//   standby --BeginLeading--> leads --EndLeading--> standby ...
//
// The permission to decide ends by itself, whatever this thread waits for: `decide_until` gets its
// end, and whoever decides looks at the clock.
//
// Thread contract: Start, StepDown and Stop from any thread but the candidate's; the callbacks come
// from the candidate's thread, and may block: a leader renews late then, and may have to stop
// deciding. Failure: none; an authority that fails is asked again, and view() has the reason.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_CANDIDATE_H_
#define BASIN_AGGREGATOR_LEADERSHIP_CANDIDATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/leadership/authority.h"
#include "aggregator/leadership/core/leadership.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// What is known of who leads.
struct LeaderView {
  bool leads = false;                               // This aggregator does,
  absl::Time decides_until = absl::InfinitePast();  // and may decide until then.
  bool releasing = false;  // It does no more, and the record does not say so yet.
  uint64_t fence = 0;      // The leader's; 0: none is known.
  std::string holder;      // The leader, as the record names it; empty: nobody leads.
  std::string address;     // Where workers reach it.
  std::string trouble;     // Why the authority cannot be asked; empty: it can.
  uint64_t begun = 0;      // How often this aggregator began to lead.

  bool Names() const { return !holder.empty() && holder != kNobody; }
  // "nobody leads", or who does and where, as the end of a sentence.
  std::string InWords() const;
};

struct CandidateActions {
  std::function<void(uint64_t fence)> begin_leading;
  std::function<void(absl::Time until)> decide_until;
  std::function<void(const std::string& why)> end_leading;
  // Something that an operator sees has changed.
  std::function<void(const LeaderView& view)> changed;
};

class Candidate {
 public:
  // `clock`: one that never stands still. REQUIRES: authority and clock outlive it.
  Candidate(LeadershipConfig config, Authority& authority, Clock& clock, CandidateActions actions);
  ~Candidate();
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  void Start();
  // Gives up the lead for another aggregator, and returns when that is written, or cannot be. What
  // is open should have ended before. Failure: FAILED_PRECONDITION if this one does not lead.
  absl::Status StepDown();
  // Gives up the lead, if it has it, and ends the thread. Idempotent.
  void Stop();

  LeaderView view() const;

 private:
  void Run();
  void Step(const LeadershipEvent& event);
  LeadershipEvent Ask(const LeadershipAction& action);
  void Publish();

  // Constant after construction.
  Authority& authority_;
  Clock& clock_;
  const CandidateActions actions_;

  // The thread's.
  Leadership core_;
  uint64_t begun_ = 0;

  std::thread thread_;
  mutable Mutex mutex_;
  Condition changed_;
  LeaderView view_ ABSL_GUARDED_BY(mutex_);
  bool step_down_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_CANDIDATE_H_
