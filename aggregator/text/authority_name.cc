// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/authority_name.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

namespace {

// Names of objects of Kubernetes have the form of a worker's id.
bool IsNameOfObject(const std::string& text) { return CheckWorkerId(text).ok(); }

}  // namespace

absl::StatusOr<AuthorityName> ParseAuthorityName(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  AuthorityName name;
  bool good = text.size() <= kMaxTextBytes && IsPrintable(text);
  if (absl::ConsumePrefix(&rest, "file:")) {
    name.directory = std::string(absl::StripSuffix(rest, "/"));
    good = good && !name.directory.empty() && rest[0] == '/';
  } else if (absl::ConsumePrefix(&rest, "kubernetes:")) {
    const std::vector<std::string> parts = absl::StrSplit(rest, '/');
    name.lease = parts.back();
    if (parts.size() > 1) name.space = parts.front();
    good = good && parts.size() <= 2 && IsNameOfObject(name.lease) &&
           (parts.size() == 1 || IsNameOfObject(name.space));
  } else {
    good = false;
  }
  if (good) return name;
  return absl::InvalidArgumentError(
      "it must be none, file: and the absolute path of a directory, such as "
      "file:/run/basin/leader, or kubernetes: and the namespace and name of a Lease, such as "
      "kubernetes:training/basin");
}

}  // namespace basin::aggregator
