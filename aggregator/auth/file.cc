// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/auth/file.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/text_file.h"

namespace basin::aggregator {

absl::StatusOr<AuthFile> ReadAuthFile(const std::string& path) {
  const auto refused = [&](const absl::Status& why) {
    return absl::InvalidArgumentError(absl::StrCat("auth.file is ", path, ": ", why.message(),
                                                   "; docs/operations.md describes the file"));
  };
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return refused(text.status());
  absl::StatusOr<Grants> grants = Grants::Parse(*text);
  if (!grants.ok()) return refused(grants.status());
  if (grants->size() == 0) {
    return refused(absl::InvalidArgumentError(
        "it grants nothing, so it may have been cut off; to revoke every grant, write a line for a "
        "new token that nobody has"));
  }
  // A hash that was cut off has too few digits, but a name that was cut off is another name.
  const std::string_view rest = std::string_view(*text).substr(text->rfind('\n') + 1);
  if (!rest.empty() && rest.find("sha256:") == std::string_view::npos) {
    return refused(absl::InvalidArgumentError(
        "its last line has no end, so it may have been cut off; end every line"));
  }
  return AuthFile{*std::move(text), *std::move(grants)};
}

}  // namespace basin::aggregator
