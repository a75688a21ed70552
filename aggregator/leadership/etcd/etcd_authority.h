// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A key of etcd (version 3) as the authority of several aggregators.
//
// Each write is a transaction that compares the revision and the value of the key with those that
// it replaces, and of two writers etcd refuses one. Reads are those of the majority of its members.
// It does not know which processes have ended, so a standby waits for the lease of a leader that
// was killed. The record can be lost: somebody may delete the key, or restore older data.
//
// The key has no lease of etcd's own, although a key that vanishes with its owner looks like the
// obvious way to do this:
//   - etcd counts a lease by the clock of its own leader, and from the beginning again when that
//     changes. The rule by which only one aggregator decides would then rest on a second clock
//     beside those of the aggregators (aggregator/leadership/core), and hold for this authority
//     alone.
//   - With the key, the number of the lead would vanish, which has to grow with each leader.
//   - It would not be faster: etcd's leases last for whole seconds, and at least for its own
//     election timeout.
// The key is not watched either. A standby has to read it now and then anyway, because a watch that
// is silent may be one that was lost.
//
// Thread contract and failure: as for Authority.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_AUTHORITY_H_
#define BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_AUTHORITY_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/leadership/authority.h"
#include "aggregator/leadership/etcd/etcd_client.h"

namespace basin::aggregator {

class EtcdAuthority : public Authority {
 public:
  // etcd itself may be away. Failure: FAILED_PRECONDITION for a file that cannot be used.
  static absl::StatusOr<std::unique_ptr<EtcdAuthority>> Open(const EtcdPlace& place,
                                                             const std::string& key);

  absl::StatusOr<RecordState> Read(absl::Duration timeout) override;
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration timeout) override;

 private:
  EtcdAuthority(const EtcdPlace& place, const std::string& key);

  absl::Status Trouble(const absl::Status& why) const;

  const std::string name_;  // In words.
  EtcdClient client_;
  // As it was read or written last.
  std::optional<EtcdValue> seen_;
  std::string version_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_AUTHORITY_H_
