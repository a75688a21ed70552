// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Reads and replaces the value of one key in etcd, over gRPC, at whichever of its members answers.
//
// A member that did not carry out a request is left: its connection is closed, and the next request
// goes to the next member. So a certificate, or a name whose address has changed, counts at the
// next attempt. A read that failed is repeated at the other members within its time. A replacement
// is sent once, because one whose answer is lost may have happened.
//
// All members must belong to one cluster: two clusters would have a leader each. The client holds
// on to the cluster that answered first, and refuses answers of another one.
//
// Thread contract: one thread. A request blocks for `timeout` or a little more.
// Failure: UNAVAILABLE with the members and the reasons, without a period at its end; a replacement
// may have happened then.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_CLIENT_H_
#define BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

// How this process reaches etcd.
struct EtcdPlace {
  std::vector<std::string> endpoints;  // host:port of each member.
  ClientTls tls;                       // Read for each connection.
  std::string user_path;  // A file with NAME:PASSWORD, read for each login. Empty: no login.
};

// Checks what can be checked without etcd. Failure: FAILED_PRECONDITION with the option, the file
// and what to do.
absl::Status CheckEtcdPlace(const EtcdPlace& place);

struct EtcdValue {
  std::string value;
  int64_t revision = 0;  // That of etcd when it was written.
};

class EtcdClient {
 public:
  // REQUIRES: there is an endpoint.
  EtcdClient(EtcdPlace place, std::string key);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // As the majority of the cluster has it now; none: there is no such key.
  absl::StatusOr<std::optional<EtcdValue>> Get(absl::Duration timeout);

  // Puts a value in the place of `before`, which must be there unchanged (none: there must be no
  // such key). Returns it with its revision; none: the key has another value, and nothing was done.
  absl::StatusOr<std::optional<EtcdValue>> Replace(const std::optional<EtcdValue>& before,
                                                   const std::string& value,
                                                   absl::Duration timeout);

 private:
  class Member;

  // One request to one member.
  template <typename Method, typename Request, typename Response>
  absl::Status Ask(size_t member, Method method, const Request& request, Response& response,
                   absl::Duration timeout);
  // Leaves the member, whose request failed; the next one is asked from now on.
  void Leave(size_t member);

  // Constant after construction.
  const EtcdPlace place_;
  const std::string key_;

  std::vector<std::unique_ptr<Member>> members_;  // In the order of the endpoints; null: closed.
  size_t next_ = 0;                               // The member that is asked next.
  uint64_t cluster_ = 0;                          // 0: none has answered.
  std::string cluster_seen_at_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_ETCD_ETCD_CLIENT_H_
