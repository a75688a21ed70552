// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The signals that end the program: the first one asks it to, the second one insists.
//
// Thread contract: BlockSignals from the main thread before any other is started, so that all
// inherit it; the rest from one thread.

#ifndef BASIN_AGGREGATOR_BASIND_SIGNALS_H_
#define BASIN_AGGREGATOR_BASIND_SIGNALS_H_

namespace basin::aggregator {

// SIGTERM and SIGINT are blocked until they are taken; SIGPIPE is ignored, because the reader of a
// log or a socket may have gone.
void BlockSignals();

// Waits for SIGTERM or SIGINT. Returns its number.
int AwaitSignal();

// From now on one more of them ends the process at once, with 128 and its number.
void EndAtNextSignal();

// Acts like SIGTERM.
void RequestEnd();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_SIGNALS_H_
