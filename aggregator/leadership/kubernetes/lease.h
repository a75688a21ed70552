// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The record of the leader as an object of Kubernetes, a Lease of coordination.k8s.io/v1:
//
//   metadata.resourceVersion       the version
//   spec.holderIdentity            the holder; empty: it has given the lead up
//   spec.leaseTransitions          the fence, less kFirstFence; absent: nobody has led
//   spec.leaseDurationSeconds      the lease, in whole seconds
//   spec.acquireTime, renewTime    for people: aggregators go by their own clocks
//   annotation basin/address       where workers reach the holder
//
// Everything else in the object stays as it is.
//
// Thread contract: pure functions. Failure: UNAVAILABLE with what is wrong with the object.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_LEASE_H_
#define BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/leadership/core/record.h"

namespace basin::aggregator {

// The unix seconds at the beginning of 2020. leaseTransitions has 31 bits, and a fence is at least
// the unix seconds of its time, so it would not last beyond 2038; like this it does until 2088.
inline constexpr uint64_t kFirstFence = 1577836800;

// The record in the JSON of a Lease.
absl::StatusOr<RecordState> StateInLease(const std::string& lease);

// The JSON of the Lease for a record that replaces the version. `lease`: the object as it was read;
// empty: there is none yet. `now`: by the wall clock. Failure: also for a fence that the object
// cannot have.
absl::StatusOr<std::string> LeaseWith(const LeaderRecord& record, const std::string& version,
                                      const std::string& lease, absl::Time now);

// A Lease that does not exist yet, with no record.
std::string NewLease(const std::string& space, const std::string& name);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_LEASE_H_
