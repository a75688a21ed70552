// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Durations and sizes in a configuration, and what tools show and read besides. A number without
// its unit is an error: a wrong unit is a common mistake, and stays hidden until a job hangs.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT with a sentence that shows how to write it.

#ifndef BASIN_AGGREGATOR_TEXT_UNITS_H_
#define BASIN_AGGREGATOR_TEXT_UNITS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace basin::aggregator {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kTiB = uint64_t{1} << 40;

// "500ms", "5s", "1m30s", "1.5h". Never negative.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);

// "512B", "64MiB": a whole number and one of B, KiB, MiB, GiB, TiB.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// A whole number, digits only.
absl::StatusOr<uint64_t> ParseCount(std::string_view text);

// In the largest unit that shows the number exactly. The functions above can read the results.
std::string ShowDuration(absl::Duration duration);
std::string ShowBytes(uint64_t bytes);

// ---- measured and estimated values, with fewer digits
// ParseDuration() reads the result.
std::string ShowTime(absl::Duration time);  // "86.1us", "594ms", "2.69s".

// As ParseBytes, and with decimals, as tables show sizes: "12.5MiB". Rounded to a whole byte.
absl::StatusOr<uint64_t> ParseShownBytes(std::string_view text);

// Bits per second: "2.5Gbit/s". The unit is Mbit, Gbit or Tbit, and may be read without the "/s".
// At most 1e15, and above 0.
absl::StatusOr<double> ParseBandwidth(std::string_view text);
std::string ShowBandwidth(double bits_per_second);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_UNITS_H_
