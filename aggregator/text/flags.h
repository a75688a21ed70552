// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the programs read a command line: --flag=value, --flag value, --flag, and words.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_TEXT_FLAGS_H_
#define BASIN_AGGREGATOR_TEXT_FLAGS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace basin::aggregator {

// The arguments of one command line, from left to right. REQUIRES: they outlive the reader.
class FlagReader {
 public:
  explicit FlagReader(const std::vector<std::string>& arguments) : rest_(arguments) {}

  // Reads the next argument. False at the end.
  bool Next();
  // Whether it is a flag, and not a word.
  bool is_flag() const { return name_.substr(0, 1) == "-"; }
  // What is before the first '=' of a flag; a word as a whole.
  const std::string& name() const { return name_; }
  // Whether it has a value behind '='.
  bool has_value() const { return has_value_; }
  // Reads the value of a flag: what is behind '=', or else the next argument unless that begins
  // with "--". False if it has none.
  bool ReadValue();
  const std::string& value() const { return value_; }

 private:
  const std::vector<std::string>& rest_;
  size_t at_ = 0;
  std::string name_;
  std::string value_;
  bool has_value_ = false;
};

// What to do about an unknown name, as the end of a sentence about it: "did you mean --lease?", or
// "see --help". All known names have the prefix, so it does not count for the distance.
std::string DidYouMean(const std::string& prefix, const std::string& name,
                       const std::vector<std::string>& known);

// The sentence about an unknown flag: "--leese" is not a flag; did you mean --lease?
std::string WhyNoFlag(const std::string& name, const std::vector<std::string>& known);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_FLAGS_H_
