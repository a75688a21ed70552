// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/authority_name.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "aggregator/text/address.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

namespace {

// Names of objects of Kubernetes have the form of a worker's id.
bool IsNameOfObject(const std::string& text) { return CheckWorkerId(text).ok(); }

bool IsEndpoint(const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  return address.ok() && address->port != 0;
}

bool IsKey(absl::string_view text) {
  return text.size() > 1 && text.front() == '/' && text.back() != '/' &&
         text.find(' ') == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<AuthorityName> ParseAuthorityName(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  AuthorityName name;
  bool good = text.size() <= kMaxTextBytes && IsPrintable(text);
  if (absl::ConsumePrefix(&rest, "file:")) {
    name.kind = AuthorityName::Kind::kDirectory;
    name.directory = std::string(absl::StripSuffix(rest, "/"));
    good = good && !name.directory.empty() && rest[0] == '/';
  } else if (absl::ConsumePrefix(&rest, "kubernetes:")) {
    name.kind = AuthorityName::Kind::kLease;
    const std::vector<std::string> parts = absl::StrSplit(rest, '/');
    name.lease = parts.back();
    if (parts.size() > 1) name.space = parts.front();
    good = good && parts.size() <= 2 && IsNameOfObject(name.lease) &&
           (parts.size() == 1 || IsNameOfObject(name.space));
  } else if (absl::ConsumePrefix(&rest, "etcd:")) {
    name.kind = AuthorityName::Kind::kEtcd;
    const size_t slash = std::min(rest.find('/'), rest.size());
    name.endpoints = absl::StrSplit(rest.substr(0, slash), ',');
    name.key = std::string(rest.substr(slash));
    good = good && IsKey(name.key) &&
           std::all_of(name.endpoints.begin(), name.endpoints.end(), IsEndpoint);
  } else {
    good = false;
  }
  if (good) return name;
  return absl::InvalidArgumentError(
      "it must be none, file: and the absolute path of a directory, such as "
      "file:/run/basin/leader, kubernetes: and the namespace and name of a Lease, such as "
      "kubernetes:training/basin, or etcd: with the addresses of its members and a key, such as "
      "etcd:etcd-0:2379,etcd-1:2379/basin/leader");
}

}  // namespace basin::aggregator
