// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The record of the leader as the value of a key of etcd: an object of JSON, so that `etcdctl get`
// shows who leads.
//
//   format     "basin-leader 1"
//   holder     the leader; empty: it has given the lead up
//   address    where workers reach it
//   fence      the number of the lead
//   lease_ns   how long the record counts after its last change
//   acquired, renewed  for people: aggregators go by their own clocks
//   nonce      random, so that no two states of the record are equal
//
// Thread contract: pure functions. Failure: UNAVAILABLE with what is wrong with the value.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_VALUE_H_
#define BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_VALUE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/leadership/core/record.h"

namespace basin::aggregator {

struct EtcdRecord {
  LeaderRecord record;
  std::string acquired;
  std::string nonce;
};

absl::StatusOr<EtcdRecord> RecordInValue(const std::string& value);

// The value for a record. `before`: the value that it replaces, which says since when its holder
// leads; empty: there is none. `now`: by the wall clock.
std::string ValueOf(const LeaderRecord& record, const std::string& nonce, const std::string& before,
                    absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_VALUE_H_
