// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/units.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

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

struct BandwidthUnit {
  std::string_view name;
  double bits;
};

constexpr BandwidthUnit kBandwidthUnits[] = {{"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
constexpr double kMostBandwidth = 1e15;

size_t DigitsOf(std::string_view text) {
  return std::find_if_not(text.begin(), text.end(), absl::ascii_isdigit) - text.begin();
}

// absl's numbers and times take absl's string_view, which need not be the standard one.
absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

// A number, and the unit behind it.
struct Measured {
  double number = 0;
  std::string_view unit;
};

// Nothing for a text that does not begin with digits, which may have a decimal point.
std::optional<Measured> ReadMeasured(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  Measured read;
  if (!absl::SimpleAtod(Abseil(text.substr(0, end)), &read.number)) return std::nullopt;
  read.unit = text.substr(end);
  return read;
}

// Three digits, or more of a whole number. Never an exponent, which no unit can be behind.
std::string ThreeDigits(double number) {
  if (number >= 100) return absl::StrFormat("%.0f", number);
  if (number >= 0.001 || number == 0) return absl::StrFormat("%.3g", number);
  // The digits that "%.3g" would show, at their place behind the point.
  const int places = std::min(2 - static_cast<int>(std::floor(std::log10(number))), 12);
  std::string text = absl::StrFormat("%.*f", places, number);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

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
  if (time < absl::ZeroDuration()) return "-" + ShowTime(-time);
  if (time == absl::ZeroDuration()) return "0ms";
  // From 999.5 of a unit on, three digits are those of the next one.
  if (time < absl::Nanoseconds(999.5)) return ThreeDigits(absl::ToDoubleNanoseconds(time)) + "ns";
  if (time < absl::Nanoseconds(999'500)) {
    return ThreeDigits(absl::ToDoubleMicroseconds(time)) + "us";
  }
  if (time < absl::Microseconds(999'500)) {
    return ThreeDigits(absl::ToDoubleMilliseconds(time)) + "ms";
  }
  return ThreeDigits(absl::ToDoubleSeconds(time)) + "s";
}

absl::StatusOr<uint64_t> ParseShownBytes(std::string_view text) {
  if (text.find('.') == std::string_view::npos) return ParseBytes(text);
  const std::optional<Measured> read = ReadMeasured(text);
  for (const ByteUnit& unit : kByteUnits) {
    if (!read.has_value() || unit.name != read->unit) continue;
    const double bytes = read->number * static_cast<double>(unit.bytes);
    // 2^64, the first number that is too large, is exact.
    if (bytes >= std::ldexp(1.0, 64)) break;
    return static_cast<uint64_t>(std::round(bytes));
  }
  return absl::InvalidArgumentError(
      "write a size such as 512KiB, 64MiB or 1.5GiB: a number and one of B, KiB, MiB, GiB, TiB");
}

absl::StatusOr<double> ParseBandwidth(std::string_view text) {
  const std::optional<Measured> read = ReadMeasured(text);
  for (const BandwidthUnit& unit : kBandwidthUnits) {
    if (!read.has_value()) break;
    if (Abseil(read->unit) != Abseil(unit.name) &&
        Abseil(read->unit) != absl::StrCat(Abseil(unit.name), "/s")) {
      continue;
    }
    const double bits = read->number * unit.bits;
    if (bits > 0 && bits <= kMostBandwidth) return bits;
  }
  return absl::InvalidArgumentError(
      "write a number above 0 and a unit, Mbit/s, Gbit/s or Tbit/s, for example 2.5Gbit/s");
}

std::string ShowBandwidth(double bits_per_second) {
  const BandwidthUnit* shown = kBandwidthUnits;
  for (const BandwidthUnit& unit : kBandwidthUnits) {
    if (bits_per_second >= unit.bits) shown = &unit;
  }
  return absl::StrCat(ThreeDigits(bits_per_second / shown->bits), Abseil(shown->name), "/s");
}

std::string ShowBytes(uint64_t bytes) {
  const ByteUnit* unit = kByteUnits;
  for (const ByteUnit& larger : kByteUnits) {
    if (bytes > 0 && bytes % larger.bytes == 0) unit = &larger;
  }
  return absl::StrCat(bytes / unit->bytes, Abseil(unit->name));
}

}  // namespace basin::aggregator
