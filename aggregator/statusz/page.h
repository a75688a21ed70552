// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The status page as HTML, for people: no scripts, no links to elsewhere, nothing that changes
// anything. It loads itself again every few seconds.
//
// It shows what the metrics show as well: names, numbers and states. Sentences that contain text of
// trainers or operators (why a worker withdrew, what it is busy with) and addresses are left to the
// admin service, which knows its callers.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_STATUSZ_PAGE_H_
#define BASIN_AGGREGATOR_STATUSZ_PAGE_H_

#include <string>
#include <vector>

#include "aggregator/statusz/status_view.h"

namespace basin::aggregator {

// How often and how long the remembered rounds waited for one worker.
struct StragglerRank {
  std::string worker;
  uint32_t rounds = 0;     // How many waited for it alone ...
  uint64_t waited_ns = 0;  // ... and for how long together.
};

// The worker that cost the others most comes first.
std::vector<StragglerRank> RankStragglers(const v1::ListRoundsResponse& rounds);

std::string StatusPage(const StatusView& view);

// Instead of it, when the loop does not answer.
std::string NoStatusPage();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_PAGE_H_
