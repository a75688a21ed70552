// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The value of standby.authority: what names the leader of several aggregators.
//
// Thread contract: safe from any thread. Failure: INVALID_ARGUMENT with the allowed values.

#ifndef BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_
#define BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace basin::aggregator {

// A directory, or a Lease of Kubernetes.
struct AuthorityName {
  std::string directory;  // An absolute path of this machine. Empty: it is a Lease.
  std::string space;      // The namespace of the Lease; empty: that of this pod.
  std::string lease;
};

absl::StatusOr<AuthorityName> ParseAuthorityName(std::string_view text);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_AUTHORITY_NAME_H_
