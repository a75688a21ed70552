// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Lines of the log about what peers do wrong, once a minute for each source, so that no peer fills
// the log.
//
// Thread contract: safe from any thread. Ownership: the log outlives it. Failure: none.

#ifndef BASIN_AGGREGATOR_BASIND_REFUSALS_H_
#define BASIN_AGGREGATOR_BASIND_REFUSALS_H_

#include <string>

#include "aggregator/telemetry/log.h"
#include "aggregator/telemetry/refusal_log.h"

namespace basin::aggregator {

class Refusals {
 public:
  explicit Refusals(Log& log) : log_(log) {}

  // A violation by a peer. Sources are hosts and kinds of violations, so that a host with many
  // addresses fills no log. Operators who come through a port-forward have one address.
  void OfPeer(const std::string& address, const std::string& kind, const std::string& what);
  void OnceAMinute(const std::string& source, const char* event, std::string reason);

 private:
  Log& log_;
  RefusalLog passed_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_REFUSALS_H_
