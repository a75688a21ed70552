// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The requests of the admin service, as a list of types, and a good one of each.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_PROTO_ADMIN_REQUESTS_H_
#define BASIN_TESTS_PROTO_ADMIN_REQUESTS_H_

#include <string_view>

#include "basin/v1/admin.pb.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"

namespace basin::testing {

template <typename... Request>
struct RequestList {
  template <template <typename...> class List>
  using As = List<Request...>;

  static constexpr int kCount = sizeof...(Request);

  static bool Contains(std::string_view name) {
    return ((Request::descriptor()->name() == name) || ...);
  }
  // Calls visit(Request{}) for the type with this index.
  template <typename Visit>
  static void VisitNumber(int index, Visit visit) {
    int i = 0;
    ((i++ == index ? visit(Request{}) : void()), ...);
  }
};

using AdminRequests =
    RequestList<v1::GetStatusRequest, v1::ListJobsRequest, v1::ListMembersRequest,
                v1::ListRoundsRequest, v1::ListShardsRequest, v1::WatchEventsRequest,
                v1::GetLimitsRequest, v1::DumpRequest, v1::DrainWorkerRequest,
                v1::DrainServiceRequest, v1::StepDownRequest, v1::EvictRequest, v1::PauseRequest,
                v1::ResumeRequest, v1::SetJobRequest, v1::RecoverRequest, v1::ReportExitRequest>;

// Names and numbers that are good in every request that has them.
template <typename Request>
Request GoodRequest() {
  Request request;
  request.mutable_header()->set_magic(kMagic);
  request.mutable_header()->set_protocol_version(kProtocolVersion);
  const auto set = [&](const char* field, const char* text) {
    const auto* descriptor = Request::descriptor()->FindFieldByName(field);
    if (descriptor != nullptr) request.GetReflection()->SetString(&request, descriptor, text);
  };
  set("job", "team/bert");
  set("worker", "trainer-0");
  set("lane", "gradients");
  set("reason", "maintenance");
  for (const char* field : {"min_workers", "max_workers", "last"}) {
    const auto* descriptor = Request::descriptor()->FindFieldByName(field);
    if (descriptor != nullptr) request.GetReflection()->SetUInt32(&request, descriptor, 4);
  }
  return request;
}

}  // namespace basin::testing

#endif  // BASIN_TESTS_PROTO_ADMIN_REQUESTS_H_
