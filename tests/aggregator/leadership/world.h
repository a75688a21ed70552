// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Several aggregators and their authority in a modelled world: clocks that drift, processes that
// pause, crash and step down, and an authority that is a third party. It loses requests and
// answers, applies writes late, and loses the record.
//
// What must hold: the permissions to decide of two leaders do not overlap, in true time, and a
// later leader has a higher fence. When the faults are over, one leads.
//
// Thread contract: pure functions; a run follows from its choices.

#ifndef BASIN_TESTS_AGGREGATOR_LEADERSHIP_WORLD_H_
#define BASIN_TESTS_AGGREGATOR_LEADERSHIP_WORLD_H_

#include <cstdint>
#include <functional>
#include <string>

namespace basin::aggregator {

// One of 0 to `options` - 1. Choices of a kind are independent of each other.
enum class ChoiceKind : uint8_t {
  kWorld,    // Clocks, the number of aggregators, when faults happen.
  kRequest,  // The fate of a request; 0: nothing happens to it.
};
using Chooser = std::function<uint64_t(ChoiceKind kind, uint64_t options)>;

// Mistakes that the checks must see.
enum class PlantedMistake : uint8_t {
  kNone,
  kClocksDriftFurther,       // By 25 times as much as the margin covers.
  kVersionsAreIgnored,       // The authority writes over whatever it has.
  kDecidesWhileItLeads,      // Without regard to the end of the permission.
  kEndedHolderIsOnlyPaused,  // The authority vouches for what is not so.
};

struct LeadershipRun {
  std::string violation;  // Empty: none.
  uint64_t steps = 0;
  uint64_t begins = 0;       // How often an aggregator began to lead,
  uint64_t ends = 0;         // and ended,
  uint64_t goes_on = 0;      // and went on after its permission had ended,
  uint64_t released = 0;     // and gave the lead up.
  uint64_t forgotten = 0;    // Records that the authority lost.
  uint64_t late_writes = 0;  // Writes that were applied after their sender had stopped waiting.
};

// Calls of `choose` are in the order in which things happen.
LeadershipRun RunLeadership(const Chooser& choose, bool drawn_faults,
                            PlantedMistake mistake = PlantedMistake::kNone);

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_LEADERSHIP_WORLD_H_
