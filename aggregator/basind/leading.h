// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One of several aggregators: a candidate for the lead, and what the lead means for the engine and
// for workers.
//
// While it does not lead, workers are refused with the name of the leader, and the engine has no
// job. When it begins to lead, the engine starts again with a term above the fence, and recovers
// from the workers. While it may not decide, the gate keeps the engine from it.
//
// Thread contract: Start and Stop from one thread; the rest from any. Failure: Open reports an
// authority that cannot be used.

#ifndef BASIN_AGGREGATOR_BASIND_LEADING_H_
#define BASIN_AGGREGATOR_BASIND_LEADING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/config/settings.h"
#include "aggregator/engine/engine.h"
#include "aggregator/engine/gate.h"
#include "aggregator/leadership/authority.h"
#include "aggregator/leadership/candidate.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/transport/server.h"
#include "runtime/clock.h"

namespace basin::aggregator {

class Leading {
 public:
  // What an operator should know: the event's name, and a sentence.
  using Report = std::function<void(LogLevel level, const char* event, const std::string& reason)>;

  // REQUIRES: `clock` is that of `gate`, the engine obeys the gate, and all of them outlive this.
  static absl::StatusOr<std::unique_ptr<Leading>> Open(const Settings& settings, Clock& clock,
                                                       Gate& gate, Engine& engine,
                                                       GrpcServer& server, Report report);

  // `address`: where workers reach this aggregator. REQUIRES: the server is started.
  void Start(const std::string& address);
  // Gives up the lead, and returns when the sessions have ended: another aggregator leads, or none
  // has come forward in a fifth of the lease, or 2 s. REQUIRES: no rounds are open that should end
  // before.
  void Stop();

  // Ends the open rounds, and gives up the lead for another aggregator. Failure:
  // FAILED_PRECONDITION if this one does not lead.
  absl::Status StepDown();

  // OK if workers are served and rounds may end; or why not, as a sentence.
  absl::Status Ready() const;
  // OK also if another aggregator leads and the authority answers.
  absl::Status ReadyToTakeOver() const;
  LeaderView view() const;
  // For the line of a status,
  std::string InWords() const;
  // and for the metrics.
  std::vector<Total> Totals() const;

 private:
  Leading(const Settings& settings, Clock& clock, Gate& gate, Engine& engine, GrpcServer& server,
          Report report);

  // The candidate's thread calls these.
  void Begin(uint64_t fence);
  void End(const std::string& why);
  void OnChange(const LeaderView& view);

  // Constant after construction.
  const StandbySettings settings_;
  const absl::Duration unnoticed_pause_;
  const std::string holder_;
  const uint64_t term_random_;
  Clock& clock_;
  Gate& gate_;
  Engine& engine_;
  GrpcServer& server_;
  const Report report_;

  std::unique_ptr<Authority> authority_;
  std::unique_ptr<Candidate> candidate_;  // From Start on.
  std::string address_;                   // Likewise.
};

// Why workers are refused before it is known who leads.
absl::Status NobodyLeadsYet();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_LEADING_H_
