// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Shows an answer again and again: as one screen on a terminal, one after the other elsewhere.
//
// Thread contract: the main thread, which sleeps between two answers.

#ifndef BASIN_AGGREGATOR_CTL_WATCH_H_
#define BASIN_AGGREGATOR_CTL_WATCH_H_

#include <functional>

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

// Whether a person reads the answers as they change.
bool OnTerminal();

// Calls `show` every --interval, --times times, or until it fails.
absl::Status Repeat(const Arguments& arguments, const std::function<absl::Status()>& show);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_WATCH_H_
