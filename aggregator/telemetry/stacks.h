// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What each thread of this process does at the moment, for the log of a process that hangs.
//
// Every thread is interrupted by a signal of its own (SIGRTMIN), whose handler notes the addresses
// on its stack. Calls of the kernel that a signal interrupts go on, or end with EINTR.
//
// Thread contract: ShowStacks on one thread at a time. Failure: a thread that does not answer
// within a second is named without its stack.

#ifndef BASIN_AGGREGATOR_TELEMETRY_STACKS_H_
#define BASIN_AGGREGATOR_TELEMETRY_STACKS_H_

#include <functional>
#include <string>

namespace basin::aggregator {

// Installs the handler. REQUIRES: called before ShowStacks.
void PrepareStacks();

// Passes one text for each thread but the calling one to `show`, innermost function first:
// "basin-loop (thread 17): basind+0x3f2a1 basin::aggregator::Engine::Run(); basind+0x...". A
// stripped program has only the places; docs/operations.md says how the symbols of a release
// translate them.
void ShowStacks(const std::function<void(const std::string& stack)>& show);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_STACKS_H_
