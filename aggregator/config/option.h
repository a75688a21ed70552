// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One row of the option table: a key, its possible values, and its field in Settings.
//
// A key has two words or more with dots between ("round.late_warning"), and by one rule its flag
// (--round-late-warning) and its environment variable (BASIN_ROUND_LATE_WARNING).
//
// Thread contract: plain values and pure functions. Failure: INVALID_ARGUMENT names what to write
// instead, without naming the key: the caller knows the origin of the text.

#ifndef BASIN_AGGREGATOR_CONFIG_OPTION_H_
#define BASIN_AGGREGATOR_CONFIG_OPTION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/config/machine.h"
#include "aggregator/config/settings.h"

namespace basin::aggregator {

// The type of a value. `put` and `get` access Settings.
struct DurationType {
  absl::Duration least;
  absl::Duration most;
  bool may_be_none = false;  // "none" is InfiniteDuration: that never happens.
  std::function<void(Settings&, absl::Duration)> put;
  std::function<absl::Duration(const Settings&)> get;
};

// Bytes, or plain numbers.
struct NumberType {
  bool bytes = false;
  uint64_t least = 0;
  uint64_t most = 0;
  uint64_t multiple = 1;
  std::function<uint64_t(const Machine&)> automatic;  // The value of "auto"; null: not allowed.
  std::function<void(Settings&, uint64_t)> put;
  std::function<uint64_t(const Settings&)> get;
};

struct ChoiceType {
  std::vector<std::string> names;
  std::function<void(Settings&, size_t)> put;
  std::function<size_t(const Settings&)> get;
};

// An option that is on or off. Its value may also be written as yes, no, 1 or 0.
inline bool IsBoolean(const ChoiceType& type) {
  return type.names == std::vector<std::string>{"false", "true"};
}

struct TextType {
  enum class Form { kAddress, kAddresses, kPath, kLabel, kReduceDevice, kLocalSocket, kAuthority };
  Form form = Form::kPath;
  std::string& (*at)(Settings&) = nullptr;  // "none" is the empty string.
  bool may_be_none = false;
};

using OptionType = std::variant<DurationType, NumberType, ChoiceType, TextType>;

struct Option {
  std::string key;
  OptionType type;
  std::string fallback;  // The default, written as a user would.
  std::string help;      // Sentences.
};

// "--round-late-warning".
std::string FlagOf(std::string_view key);
// "BASIN_ROUND_LATE_WARNING".
std::string VariableOf(std::string_view key);

// Reads `text` and puts its value where it belongs.
absl::Status Put(const Option& option, std::string_view text, const Machine& machine,
                 Settings& settings);

// The value in effect, as Put reads it.
std::string Show(const Option& option, const Settings& settings);

// "a duration from 10ms to 1h, or none".
std::string DescribeType(const Option& option);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_OPTION_H_
