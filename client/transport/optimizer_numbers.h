// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers of a trainer's optimizer, with which it begins a round.
//
// Thread contract: a pure function.

#ifndef BASIN_CLIENT_TRANSPORT_OPTIMIZER_NUMBERS_H_
#define BASIN_CLIENT_TRANSPORT_OPTIMIZER_NUMBERS_H_

#include <string>

#include "client/core/event.h"

namespace basin::client {

// `text`: one number in each line; empty: they are not compared. Equal texts have equal hashes on
// all workers.
void SetOptimizer(BeginRound& begin, const std::string& text);

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_OPTIMIZER_NUMBERS_H_
