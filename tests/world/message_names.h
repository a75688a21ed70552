// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The names of message types, such as "Commit" or "Verdict", by their index in the variant.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_WORLD_MESSAGE_NAMES_H_
#define BASIN_TESTS_WORLD_MESSAGE_NAMES_H_

#include <cstddef>
#include <variant>

#include "protocol/messages.h"

namespace basin::world {

inline const char* ToAggregatorName(size_t index) {
  static constexpr const char* kNames[] = {
      "Hello",        "Ready",         "Heartbeat",   "Register", "LayoutSeen",      "Begin",
      "Skip",         "Commit",        "Withdraw",    "Staged",   "ResultAck",       "Need",
      "Busy",         "Abandon",       "Finished",    "Leave",    "Announce",        "Get",
      "LeaseSamples", "ReturnSamples", "ReportBatch", "LetGo",    "ShardUnreachable"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == std::variant_size_v<ToAggregator>);
  return kNames[index];
}

inline const char* ToWorkerName(size_t index) {
  static constexpr const char* kNames[] = {
      "Welcome",       "MembershipChanged", "LaneLayout", "Credit",
      "Pull",          "AttemptRestarted",  "Prepared",   "Supply",
      "Verdict",       "Rejected",          "Ended",      "Drain",
      "Ask",           "ValueKnown",        "GetFailed",  "HeldUp",
      "SamplesLeased", "BatchReported",     "LetGo",      "LaneGone",
      "Placement"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == std::variant_size_v<ToWorker>);
  return kNames[index];
}

inline const char* NameOf(const ToAggregator& message) { return ToAggregatorName(message.index()); }
inline const char* NameOf(const ToWorker& message) { return ToWorkerName(message.index()); }

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_MESSAGE_NAMES_H_
