// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/admin.h"

#include "absl/strings/str_cat.h"
#include "basin/v1/admin.pb.h"
#include "proto/wire/checker.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"

namespace basin::wire {
namespace {

// Checks the header, and then the fields.
template <typename Request, typename Fields>
absl::Status CheckWith(const Request& request, Fields fields) {
  Checker checker;
  {
    Checker::Scope scope(checker, "header");
    checker.Equal("magic", request.header().magic(), kMagic);
    checker.Required("protocol_version", request.header().protocol_version());
  }
  if (checker.ok() && request.header().protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("protocol version ", request.header().protocol_version(),
                     " was requested, but this is ", kProtocolVersion));
  }
  fields(checker);
  return checker.status();
}

template <typename Request>
absl::Status CheckHeader(const Request& request) {
  return CheckWith(request, [](Checker&) {});
}

template <typename Request>
absl::Status CheckJob(const Request& request) {
  return CheckWith(request, [&](Checker& checker) { checker.Job("job", request.job()); });
}

// Empty: all jobs.
template <typename Request>
absl::Status CheckJobIfAny(const Request& request) {
  return CheckWith(request, [&](Checker& checker) {
    if (!request.job().empty()) checker.Job("job", request.job());
  });
}

template <typename Request>
absl::Status CheckJobAndWorker(const Request& request) {
  return CheckWith(request, [&](Checker& checker) {
    checker.Job("job", request.job());
    checker.Worker("worker", request.worker());
  });
}

}  // namespace

absl::Status Check(const v1::GetStatusRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::ListJobsRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::ListMembersRequest& request) { return CheckJob(request); }
absl::Status Check(const v1::ListShardsRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::WatchEventsRequest& request) { return CheckJobIfAny(request); }
absl::Status Check(const v1::GetLimitsRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::DumpRequest& request) { return CheckJobIfAny(request); }
absl::Status Check(const v1::DrainWorkerRequest& request) { return CheckJobAndWorker(request); }
absl::Status Check(const v1::DrainServiceRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::StepDownRequest& request) { return CheckHeader(request); }
absl::Status Check(const v1::EvictRequest& request) { return CheckJobAndWorker(request); }
absl::Status Check(const v1::PauseRequest& request) { return CheckJob(request); }
absl::Status Check(const v1::ResumeRequest& request) { return CheckJob(request); }
absl::Status Check(const v1::RecoverRequest& request) { return CheckJob(request); }

absl::Status Check(const v1::ListRoundsRequest& request) {
  return CheckWith(request, [&](Checker& checker) {
    checker.Job("job", request.job());
    if (!request.lane().empty()) checker.Name("lane", request.lane());
    checker.AtMost("last", request.last(), kMaxPastRounds);
  });
}

absl::Status Check(const v1::SetJobRequest& request) {
  return CheckWith(request, [&](Checker& checker) {
    checker.Job("job", request.job());
    const bool policy = request.loss_policy() != v1::LOSS_POLICY_UNSPECIFIED ||
                        request.late_policy() != v1::LATE_POLICY_UNSPECIFIED;
    if (!request.has_min_workers() && !request.has_max_workers() && !policy) {
      checker.Fail("min_workers", "or max_workers or a policy is required");
    }
    if (!v1::LossPolicy_IsValid(request.loss_policy())) {
      checker.Fail("loss_policy", "is unknown");
    }
    if (!v1::LatePolicy_IsValid(request.late_policy())) {
      checker.Fail("late_policy", "is unknown");
    }
    const auto workers = [&](const char* field, bool present, uint32_t count) {
      if (present) checker.AtMost(field, checker.Required(field, count), kMaxWorkers);
    };
    workers("min_workers", request.has_min_workers(), request.min_workers());
    workers("max_workers", request.has_max_workers(), request.max_workers());
    if (request.has_min_workers() && request.has_max_workers() &&
        request.min_workers() > request.max_workers()) {
      checker.Fail("min_workers", "is above max_workers");
    }
  });
}

absl::Status Check(const v1::ReportExitRequest& request) {
  constexpr int32_t kLastSignal = 64;
  return CheckWith(request, [&](Checker& checker) {
    checker.Job("job", request.job());
    checker.Worker("worker", request.worker());
    if (request.exit_status() < -kLastSignal || request.exit_status() > 255) {
      checker.Fail("exit_status", "must be 0 to 255, or minus a signal");
    }
  });
}

}  // namespace basin::wire
