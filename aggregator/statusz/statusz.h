// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Makes the status page, at most once a second, however many people look at it.
//
// Thread contract: Page from one thread at a time, which is not the engine's loop; it blocks for as
// long as the loop takes, within a timeout.

#ifndef BASIN_AGGREGATOR_STATUSZ_STATUSZ_H_
#define BASIN_AGGREGATOR_STATUSZ_STATUSZ_H_

#include <chrono>
#include <string>

#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/events.h"

namespace basin::aggregator {

class Statusz {
 public:
  // REQUIRES: engine and events outlive it.
  Statusz(Engine& engine, const EventHistory& events, std::string version);

  struct Page {
    bool ok = false;  // False: the loop does not answer, and the page shows it.
    std::string html;
  };
  const Page& Look();

 private:
  using Clock = std::chrono::steady_clock;

  // Constant after construction.
  Engine& engine_;
  const EventHistory& events_;
  const std::string version_;
  const Clock::time_point started_;

  Page page_;
  Clock::time_point made_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_STATUSZ_H_
