// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks that a worker's history is possible: recovery builds lanes, terms and members from hellos
// alone. Also computes how large a hello can become, so that no job outgrows it.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_PLAUSIBILITY_H_
#define BASIN_AGGREGATOR_CORE_PLAUSIBILITY_H_

#include <cstdint>
#include <string>

#include "aggregator/core/config.h"
#include "aggregator/core/memory.h"
#include "protocol/layout.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// Why this hello cannot be right, as the end of a sentence; empty when it can. `term` is that of
// its job here, or of this aggregator where the job is not known.
std::string WhyNotPlausible(const Hello& hello, Term term, const Config& config);

// The most bytes that a lane takes in a hello, in a job of so many workers, once `next` has been
// appended to its layout; null appends nothing. A welcome takes less.
uint64_t HistoryBytes(const Layout& layout, const LayoutBytes& bytes, const TensorSpec* next,
                      uint64_t workers);

// The most bytes of a hello without its lanes.
uint64_t HelloBytes(uint64_t workers);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PLAUSIBILITY_H_
