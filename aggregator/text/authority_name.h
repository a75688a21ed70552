// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The value of standby.authority: what names the leader of several aggregators.
//
// Thread contract: safe from any thread. Failure: INVALID_ARGUMENT with the allowed values.

#ifndef BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_
#define BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace basin::aggregator {

struct AuthorityName {
  enum class Kind { kDirectory, kLease, kEtcd };
  Kind kind = Kind::kDirectory;

  std::string directory;  // An absolute path of this machine.

  // A Lease of Kubernetes.
  std::string space;  // Its namespace; empty: that of this pod.
  std::string lease;

  // A key of etcd.
  std::vector<std::string> endpoints;  // host:port of its members.
  std::string key;
};

absl::StatusOr<AuthorityName> ParseAuthorityName(std::string_view text);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_
