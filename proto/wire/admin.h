// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether a request of basin/v1/admin.proto is one: magic number, version, names and bounds. Every
// handler calls it first, because a damaged request can arrive as one of zeros.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT names the field and the rule; FAILED_PRECONDITION for another protocol
// version.

#ifndef BASIN_PROTO_WIRE_ADMIN_H_
#define BASIN_PROTO_WIRE_ADMIN_H_

#include "absl/status/status.h"

namespace basin::v1 {
class DrainServiceRequest;
class DrainWorkerRequest;
class DumpRequest;
class EvictRequest;
class GetLimitsRequest;
class GetStatusRequest;
class ListJobsRequest;
class ListMembersRequest;
class ListRoundsRequest;
class ListShardsRequest;
class PauseRequest;
class RecoverRequest;
class ReportExitRequest;
class ResumeRequest;
class SetJobRequest;
class StepDownRequest;
class WatchEventsRequest;
}  // namespace basin::v1

namespace basin::wire {

absl::Status Check(const v1::GetStatusRequest& request);
absl::Status Check(const v1::ListJobsRequest& request);
absl::Status Check(const v1::ListMembersRequest& request);
absl::Status Check(const v1::ListRoundsRequest& request);
absl::Status Check(const v1::ListShardsRequest& request);
absl::Status Check(const v1::WatchEventsRequest& request);
absl::Status Check(const v1::GetLimitsRequest& request);
absl::Status Check(const v1::DumpRequest& request);
absl::Status Check(const v1::DrainWorkerRequest& request);
absl::Status Check(const v1::DrainServiceRequest& request);
absl::Status Check(const v1::StepDownRequest& request);
absl::Status Check(const v1::EvictRequest& request);
absl::Status Check(const v1::PauseRequest& request);
absl::Status Check(const v1::ResumeRequest& request);
absl::Status Check(const v1::SetJobRequest& request);
absl::Status Check(const v1::RecoverRequest& request);
absl::Status Check(const v1::ReportExitRequest& request);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_ADMIN_H_
