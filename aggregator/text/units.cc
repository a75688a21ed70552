// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/units.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace basin::aggregator {
namespace {

struct ByteUnit {
  std::string_view name;
  uint64_t bytes;
};

constexpr ByteUnit kByteUnits[] = {{"B", 1},
                                   {"KiB", uint64_t{1} << 10},
                                   {"MiB", uint64_t{1} << 20},
                                   {"GiB", uint64_t{1} << 30},
                                   {"TiB", uint64_t{1} << 40}};

size_t DigitsOf(std::string_view text) {
  return std::find_if_not(text.begin(), text.end(), absl::ascii_isdigit) - text.begin();
}

// absl's numbers and times take absl's string_view, which need not be the standard one.
absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (!text.empty() && DigitsOf(text) == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("it needs a unit: ", Abseil(text), "s, ",
                                                   Abseil(text), "ms, ", Abseil(text), "m or ",
                                                   Abseil(text), "h"));
  }
  // Only texts that begin with a digit: absl also accepts signs and "inf".
  const bool number = !text.empty() && (absl::ascii_isdigit(text.front()) || text.front() == '.');
  if (!number || !absl::ParseDuration(Abseil(text), &duration)) {
    return absl::InvalidArgumentError("write a duration such as 500ms, 5s, 1m30s or 2h");
  }
  if (duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError("it is longer than the largest duration");
  }
  return duration;
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const size_t digits = DigitsOf(text);
  if (digits > 0 && digits == text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("it needs a unit: ", Abseil(text), "B, ",
                                                   Abseil(text), "KiB, ", Abseil(text), "MiB or ",
                                                   Abseil(text), "GiB"));
  }
  const std::string_view unit = text.substr(digits);
  const auto* found = std::find_if(std::begin(kByteUnits), std::end(kByteUnits),
                                   [&](const ByteUnit& known) { return known.name == unit; });
  if (digits == 0 || found == std::end(kByteUnits)) {
    return absl::InvalidArgumentError(
        "write a size such as 512KiB, 64MiB or 4GiB: a whole number and one of B, KiB, MiB, GiB, "
        "TiB");
  }
  uint64_t number = 0;
  if (!absl::SimpleAtoi(Abseil(text.substr(0, digits)), &number) ||
      number > std::numeric_limits<uint64_t>::max() / found->bytes) {
    return absl::InvalidArgumentError("it is larger than the largest size");
  }
  return number * found->bytes;
}

absl::StatusOr<uint64_t> ParseCount(std::string_view text) {
  uint64_t number = 0;
  if (text.empty() || DigitsOf(text) != text.size() || !absl::SimpleAtoi(Abseil(text), &number)) {
    return absl::InvalidArgumentError("write a whole number such as 64");
  }
  return number;
}

std::string ShowDuration(absl::Duration duration) {
  return duration == absl::ZeroDuration() ? "0s" : absl::FormatDuration(duration);
}

std::string ShowTime(absl::Duration time) {
  // %.3g writes an exponent from 999.5 on.
  constexpr double kLarge = 999.5;
  const double milliseconds = absl::ToDoubleMilliseconds(time);
  const double seconds = absl::ToDoubleSeconds(time);
  if (milliseconds < kLarge) return absl::StrFormat("%.3g ms", milliseconds);
  return seconds < kLarge ? absl::StrFormat("%.3g s", seconds) : absl::StrFormat("%.0f s", seconds);
}

std::string ShowBytes(uint64_t bytes) {
  const ByteUnit* unit = kByteUnits;
  for (const ByteUnit& larger : kByteUnits) {
    if (bytes > 0 && bytes % larger.bytes == 0) unit = &larger;
  }
  return absl::StrCat(bytes / unit->bytes, Abseil(unit->name));
}

}  // namespace basin::aggregator
