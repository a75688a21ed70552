// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/text/nearest.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

bool FlagReader::Next() {
  if (at_ == rest_.size()) return false;
  const std::string& argument = rest_[at_++];
  const size_t equals = absl::StartsWith(argument, "-") ? argument.find('=') : std::string::npos;
  has_value_ = equals != std::string::npos;
  name_ = argument.substr(0, equals);
  value_ = has_value_ ? argument.substr(equals + 1) : "";
  return true;
}

bool FlagReader::ReadValue() {
  if (has_value_) return true;
  if (at_ == rest_.size() || absl::StartsWith(rest_[at_], "--")) return false;
  value_ = rest_[at_++];
  return true;
}

std::string DidYouMean(const std::string& prefix, const std::string& name,
                       const std::vector<std::string>& known) {
  std::vector<std::string> rest;
  rest.reserve(known.size());
  for (const std::string& candidate : known) rest.push_back(candidate.substr(prefix.size()));
  const bool has_prefix = absl::StartsWith(name, prefix);
  const std::string nearest = Nearest(has_prefix ? name.substr(prefix.size()) : name, rest);
  return nearest.empty() ? "see --help" : absl::StrCat("did you mean ", prefix, nearest, "?");
}

std::string WhyNoFlag(const std::string& name, const std::vector<std::string>& known) {
  return absl::StrCat(QuoteForError(name), " is not a flag; ", DidYouMean("--", name, known));
}

}  // namespace basin::aggregator
