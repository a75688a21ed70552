// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/auth/file.h"

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
  return AuthFile{*std::move(text), *std::move(grants)};
}

}  // namespace basin::aggregator
