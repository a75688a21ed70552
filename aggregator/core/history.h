// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether what a worker says it remembers can be so. Recovery builds lanes, terms and members from
// hellos alone, so nothing in one may lead it outside its bounds.
//
// Thread contract: pure function.

#ifndef BASIN_AGGREGATOR_CORE_HISTORY_H_
#define BASIN_AGGREGATOR_CORE_HISTORY_H_

#include <string>

#include "aggregator/core/config.h"
#include "proto/vocabulary/messages.h"

namespace basin::aggregator {

// Why this hello cannot be right, as the end of a sentence; empty when it can.
std::string WhyNotPlausible(const Hello& hello, const Config& config);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_HISTORY_H_
