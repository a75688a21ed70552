// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/authority_name.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

absl::StatusOr<AuthorityName> ParseAuthorityName(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  const bool good = text.size() <= kMaxTextBytes && IsPrintable(text) &&
                    absl::ConsumePrefix(&rest, "file:") && rest.size() > 1 && rest[0] == '/';
  if (good) return AuthorityName{std::string(absl::StripSuffix(rest, "/"))};
  return absl::InvalidArgumentError(
      "it must be none, or file: and the absolute path of a directory, such as "
      "file:/run/basin/leader");
}

}  // namespace basin::aggregator
