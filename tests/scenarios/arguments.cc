// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/arguments.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace basin::scenarios {

Arguments::Arguments(std::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(std::string(line), ' ', absl::SkipEmpty());
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      words_.push_back(word);
    } else if (!options_.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
      Fail(absl::StrCat("option ", word.substr(0, equals), " is given twice"));
    }
  }
}

std::string Arguments::NextWord() {
  if (words_.empty()) return "";
  std::string word = words_.front();
  words_.erase(words_.begin());
  return word;
}

std::vector<std::string> Arguments::RestOfWords() { return std::exchange(words_, {}); }

bool Arguments::Flag(std::string_view word) {
  const auto it = std::find(words_.begin(), words_.end(), word);
  if (it == words_.end()) return false;
  words_.erase(it);
  return true;
}

std::optional<std::string> Arguments::Option(const std::string& key) {
  const auto it = options_.find(key);
  if (it == options_.end()) return std::nullopt;
  std::string value = std::move(it->second);
  options_.erase(it);
  return value;
}

std::string Arguments::Text(const std::string& key, const std::string& otherwise) {
  return Option(key).value_or(otherwise);
}

std::optional<uint64_t> Arguments::MaybeNumber(const std::string& key) {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return std::nullopt;
  uint64_t value = 0;
  if (!absl::SimpleAtoi(*text, &value)) Fail(absl::StrCat(key, "=", *text, " is not a number"));
  return value;
}

uint64_t Arguments::Number(const std::string& key, uint64_t otherwise) {
  return MaybeNumber(key).value_or(otherwise);
}

double Arguments::Real(const std::string& key, double otherwise) {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return otherwise;
  double value = 0;
  if (!absl::SimpleAtod(*text, &value)) Fail(absl::StrCat(key, "=", *text, " is not a number"));
  return value;
}

absl::Duration Arguments::Duration(const std::string& key, absl::Duration otherwise) {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return otherwise;
  absl::Duration value;
  if (!absl::ParseDuration(*text, &value)) {
    Fail(absl::StrCat(key, "=", *text, " is not a duration"));
  }
  return value;
}

uint64_t Arguments::Bytes(const std::string& key, uint64_t otherwise) {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return otherwise;
  absl::string_view digits = *text;
  uint64_t unit = 1;
  if (absl::ConsumeSuffix(&digits, "KiB")) unit = 1024;
  if (absl::ConsumeSuffix(&digits, "MiB")) unit = 1024 * 1024;
  uint64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value)) Fail(absl::StrCat(key, "=", *text, " is not a size"));
  return value * unit;
}

std::vector<std::string> Arguments::List(const std::string& key) {
  const std::optional<std::string> text = Option(key);
  if (!text.has_value()) return {};
  return absl::StrSplit(*text, ',', absl::SkipEmpty());
}

void Arguments::Fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

std::string Arguments::Finish() {
  if (!words_.empty()) Fail(absl::StrCat("does not know the word ", words_.front()));
  if (!options_.empty()) Fail(absl::StrCat("does not know the option ", options_.begin()->first));
  return error_;
}

}  // namespace basin::scenarios
