// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The record by which an authority names the leader: the one aggregator, of several, that decides.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_CORE_RECORD_H_
#define BASIN_AGGREGATOR_LEADERSHIP_CORE_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "absl/time/time.h"

namespace basin::aggregator {

// The holder of a record that stands where there was none. Nobody leads, but somebody may not know
// yet that it does not.
inline constexpr char kNobody[] = "nobody";

struct LeaderRecord {
  // Grows with each change of the leader, and is the upper part of its term. At least the unix
  // seconds of the change, so that it goes on growing after the authority has lost the record.
  uint64_t fence = 0;
  // The process that leads; different for each process. Empty: the last one has given it up.
  std::string holder;
  std::string address;  // Where workers reach the holder.
  // How long the record counts after its last change.
  absl::Duration lease;
  // Whose aggregators may lead: standby.deployment. Empty: it has no name.
  std::string deployment = {};
  auto Fields() const { return std::tie(fence, holder, address, lease, deployment); }
};

// The record as an authority has it now.
struct RecordState {
  std::optional<LeaderRecord> record;  // Absent: nobody has led, or the authority has lost it.
  // Differs between any two states of the record, also if their contents are equal. Empty if there
  // is nothing; what has a version but no record can be replaced by one.
  std::string version;
  // The authority vouches that the process of the holder has ended.
  bool holder_ended = false;
  auto Fields() const { return std::tie(record, version, holder_ended); }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_CORE_RECORD_H_
