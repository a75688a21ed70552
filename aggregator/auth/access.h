// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Access control: the table of roles and RPCs, and the decision about one call.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_AUTH_ACCESS_H_
#define BASIN_AGGREGATOR_AUTH_ACCESS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace basin::aggregator {

enum class CallerRole : uint8_t {
  kWorker = 0,    // Trains.
  kObserver = 1,  // Looks.
  kAdmin = 2,     // Looks, and changes.
  kShard = 3,     // Holds gradients and results of every job for the aggregator.
};
inline constexpr int kRoles = 4;

const char* RoleName(CallerRole role);

// The calls of basin.v1.
enum class Rpc : uint8_t {
  kSession = 0,
  kExchange,
  kGetStatus,
  kListJobs,
  kListMembers,
  kListRounds,
  kListShards,
  kWatchEvents,
  kGetLimits,
  kDump,
  kDrainWorker,
  kDrainService,
  kStepDown,
  kEvict,
  kPause,
  kResume,
  kSetJob,
  kRecover,
  kReportExit,
  kShard,
};
inline constexpr int kRpcs = 20;

const char* RpcName(Rpc rpc);

// What a call is about, and so which jobs a caller must have been granted.
enum class Scope : uint8_t {
  kJob,      // One job; all jobs if the call names none.
  kService,  // All jobs.
  kAny,      // Nothing in particular: the answer has only the caller's jobs.
};

// One line of the file of grants.
struct Grant {
  std::string name;  // For the log. Never the token.
  CallerRole role = CallerRole::kWorker;
  std::string jobs;  // A job's name, or the beginning of names before "*"; "*" is every job.

  bool CoversAllJobs() const { return jobs == "*"; }
  bool Covers(std::string_view job) const;
};

enum class Decision : uint8_t {
  kAllowed = 0,
  kNoCredential,       // The caller presented nothing.
  kUnknownCredential,  // Nothing is granted to what it presented.
  kWrongRole,
  kWrongJob,
};
inline constexpr int kDecisions = 5;

// The label of a metric: "no_credential".
const char* DecisionName(Decision decision);

// Whether the holder of `grant` may call `rpc` about `job`. Empty: about no single job.
Decision Decide(const Grant& grant, Rpc rpc, std::string_view job);

// Whether the role may make the call at all.
bool Allows(CallerRole role, Rpc rpc);
Scope ScopeOf(Rpc rpc);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_AUTH_ACCESS_H_
