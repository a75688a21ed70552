// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/checker.h"

#include "absl/strings/str_cat.h"

namespace basin::wire {

void Checker::Fail(const char* field, std::string_view problem) {
  if (!status_.ok()) return;
  std::string path;
  for (const Step& step : path_) {
    absl::StrAppend(&path, step.field);
    if (step.index >= 0) absl::StrAppend(&path, "[", step.index, "]");
    path.push_back('.');
  }
  absl::StrAppend(&path, field, " ");
  path.append(problem);
  status_ = absl::InvalidArgumentError(path);
}

std::string Checker::Obeying(const char* field, const std::string& text,
                             absl::Status (*rule)(std::string_view)) {
  if (const absl::Status status = rule(text); !status.ok()) {
    Fail(field, absl::StrCat("is no ", status.message()));
    return {};
  }
  return text;
}

void Checker::FailAbove(const char* field, uint64_t value, uint64_t bound) {
  Fail(field, absl::StrCat("is ", value, ", more than ", bound));
}

void Checker::FailEntries(const char* field, uint64_t bound) {
  Fail(field, absl::StrCat("has more than ", bound, " entries"));
}

void Checker::FailUnequal(const char* field, uint64_t value, uint64_t expected) {
  Fail(field, absl::StrCat("is ", value, " instead of ", expected));
}

void Checker::FailEnum(const char* field, int wire, int last) {
  Fail(field, wire == 0 ? std::string("is required")
                        : absl::StrCat("is ", wire, ", which is not in 1 to ", last));
}

}  // namespace basin::wire
