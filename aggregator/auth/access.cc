// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/auth/access.h"

#include <array>

namespace basin::aggregator {
namespace {

struct Row {
  Rpc rpc;
  const char* name;
  Scope scope;
  std::array<bool, kRoles> roles;  // By CallerRole.
};

// The authorisation table. A worker cannot look at jobs, and an operator cannot train: a token
// that leaks gives no more than its holder needed.
constexpr Row kTable[] = {
    // rpc             name             scope             worker observer admin shard
    {Rpc::kSession, "Session", Scope::kJob, {true, false, false, false}},
    {Rpc::kExchange, "Exchange", Scope::kAny, {true, false, false, false}},
    {Rpc::kGetStatus, "GetStatus", Scope::kAny, {false, true, true, false}},
    {Rpc::kListJobs, "ListJobs", Scope::kAny, {false, true, true, false}},
    {Rpc::kListMembers, "ListMembers", Scope::kJob, {false, true, true, false}},
    {Rpc::kListRounds, "ListRounds", Scope::kJob, {false, true, true, false}},
    {Rpc::kListShards, "ListShards", Scope::kAny, {false, true, true, false}},
    {Rpc::kWatchEvents, "WatchEvents", Scope::kJob, {false, true, true, false}},
    {Rpc::kGetLimits, "GetLimits", Scope::kAny, {false, true, true, false}},
    {Rpc::kDump, "Dump", Scope::kJob, {false, true, true, false}},
    {Rpc::kDrainWorker, "DrainWorker", Scope::kJob, {false, false, true, false}},
    {Rpc::kDrainService, "DrainService", Scope::kService, {false, false, true, false}},
    {Rpc::kStepDown, "StepDown", Scope::kService, {false, false, true, false}},
    {Rpc::kEvict, "Evict", Scope::kJob, {false, false, true, false}},
    {Rpc::kPause, "Pause", Scope::kJob, {false, false, true, false}},
    {Rpc::kResume, "Resume", Scope::kJob, {false, false, true, false}},
    {Rpc::kSetJob, "SetJob", Scope::kJob, {false, false, true, false}},
    {Rpc::kRecover, "Recover", Scope::kJob, {false, false, true, false}},
    // The launcher of the job, which has the token of its workers, may call these too.
    {Rpc::kReportExit, "ReportExit", Scope::kJob, {true, false, true, false}},
    // It holds what the workers of every job send.
    {Rpc::kShard, "Shard", Scope::kService, {false, false, false, true}},
};
static_assert(std::size(kTable) == kRpcs);

const Row& RowOf(Rpc rpc) { return kTable[static_cast<size_t>(rpc)]; }

}  // namespace

const char* RoleName(CallerRole role) {
  switch (role) {
    case CallerRole::kWorker:
      return "worker";
    case CallerRole::kObserver:
      return "observer";
    case CallerRole::kAdmin:
      return "admin";
    case CallerRole::kShard:
      return "shard";
  }
  return "unknown";
}

const char* RpcName(Rpc rpc) { return RowOf(rpc).name; }
Scope ScopeOf(Rpc rpc) { return RowOf(rpc).scope; }
bool Allows(CallerRole role, Rpc rpc) { return RowOf(rpc).roles[static_cast<size_t>(role)]; }

bool Grant::Covers(std::string_view job) const {
  if (jobs.empty() || jobs.back() != '*') return job == jobs;
  return job.substr(0, jobs.size() - 1) == std::string_view(jobs).substr(0, jobs.size() - 1);
}

const char* DecisionName(Decision decision) {
  switch (decision) {
    case Decision::kAllowed:
      return "allowed";
    case Decision::kNoCredential:
      return "no_credential";
    case Decision::kUnknownCredential:
      return "unknown_credential";
    case Decision::kWrongRole:
      return "wrong_role";
    case Decision::kWrongJob:
      return "wrong_job";
  }
  return "unknown";
}

Decision Decide(const Grant& grant, Rpc rpc, std::string_view job) {
  if (!Allows(grant.role, rpc)) return Decision::kWrongRole;
  switch (ScopeOf(rpc)) {
    case Scope::kAny:
      return Decision::kAllowed;
    case Scope::kService:
      return grant.CoversAllJobs() ? Decision::kAllowed : Decision::kWrongJob;
    case Scope::kJob:
      if (job.empty() ? grant.CoversAllJobs() : grant.Covers(job)) return Decision::kAllowed;
      return Decision::kWrongJob;
  }
  return Decision::kWrongJob;
}

}  // namespace basin::aggregator
