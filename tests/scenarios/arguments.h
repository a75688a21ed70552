// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The words of one command: "begin w1 w2 op=SUM" has the verb, two words and one option. A handler
// takes what it knows; a word that is left over or does not parse is an error of the script.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_SCENARIOS_ARGUMENTS_H_
#define BASIN_TESTS_SCENARIOS_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace basin::scenarios {

class Arguments {
 public:
  explicit Arguments(std::string_view line);

  // Returns the next word that is not an option; empty if there is none.
  std::string NextWord();
  std::vector<std::string> RestOfWords();
  // Returns whether this word is among the rest, and takes it.
  bool Flag(std::string_view word);

  std::optional<std::string> Option(const std::string& key);
  std::string Text(const std::string& key, const std::string& otherwise);
  uint64_t Number(const std::string& key, uint64_t otherwise);
  std::optional<uint64_t> MaybeNumber(const std::string& key);
  double Real(const std::string& key, double otherwise);
  absl::Duration Duration(const std::string& key, absl::Duration otherwise);
  // Parses "768KiB", "2MiB" or plain bytes.
  uint64_t Bytes(const std::string& key, uint64_t otherwise);
  std::vector<std::string> List(const std::string& key);

  void Fail(const std::string& why);
  // Checks that everything was taken. Returns an empty text if the command was right.
  std::string Finish();
  bool failed() const { return !error_.empty(); }

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::string> options_;
  std::string error_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_ARGUMENTS_H_
