// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A Lease of Kubernetes as the authority of aggregators in pods.
//
// Each write names the resourceVersion that it replaces, and of two writers the API server refuses
// one. It does not know which pods have ended, so a standby waits for the lease of a leader that
// was killed. The record can be lost: somebody may delete the Lease.
//
// The token of the service account is read for each request, and the certificate of the API
// server's authority for each connection, because both are replaced while the pod runs.
//
// Thread contract and failure: as for Authority.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_KUBERNETES_AUTHORITY_H_
#define BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_KUBERNETES_AUTHORITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/http/https_client.h"
#include "aggregator/leadership/authority.h"
#include "aggregator/text/address.h"

namespace basin::aggregator {

// How a pod reaches the API server.
struct KubernetesPlace {
  Address server;
  std::string account;  // The folder of the service account: token, ca.crt and namespace.
};

class KubernetesAuthority : public Authority {
 public:
  // `space`: the namespace of the Lease; empty: that of the account. Failure: FAILED_PRECONDITION
  // where there is no API server or no account.
  static absl::StatusOr<std::unique_ptr<KubernetesAuthority>> Open(const KubernetesPlace& place,
                                                                   std::string space,
                                                                   const std::string& name);

  absl::StatusOr<RecordState> Read(absl::Duration timeout) override;
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration timeout) override;

 private:
  KubernetesAuthority(const KubernetesPlace& place, const std::string& space,
                      const std::string& name);

  absl::StatusOr<HttpPage> Ask(HttpsRequest request, absl::Duration timeout);
  // Why the server did not do it.
  absl::Status Refused(const HttpPage& answer) const;
  absl::Status Trouble(const std::string& what) const;

  // Constant after construction.
  const KubernetesPlace place_;
  const std::string name_;       // In words.
  const std::string path_;       // Of the Lease,
  const std::string all_;        // and of all of its namespace.
  const std::string new_lease_;  // What a Lease that does not exist yet begins with.

  HttpsClient client_;
  std::string lease_;  // The object as it was read or written last; empty: there was none.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_KUBERNETES_KUBERNETES_AUTHORITY_H_
