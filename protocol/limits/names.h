// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The rules for names, and the conversion of foreign texts for display.
//
// Names reach logs, metric labels, file names and web pages, so their characters are checked once,
// when they arrive.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT, with the name escaped and cut, so that the error itself is harmless.

#ifndef BASIN_PROTOCOL_LIMITS_NAMES_H_
#define BASIN_PROTOCOL_LIMITS_NAMES_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace basin {

// `[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?`, or two of these around one slash.
absl::Status CheckJobName(std::string_view name);

// `[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?`.
absl::Status CheckWorkerId(std::string_view id);

// 1 to 128 of `[A-Za-z0-9._:-]`, beginning with a letter or digit. Empty: the run in progress.
absl::Status CheckRunId(std::string_view id);

// Lane and tensor names: 1 to 256 bytes of printable UTF-8.
absl::Status CheckName(std::string_view name);

// Whether `text` is UTF-8 in which every character can be shown as itself on one line: no control
// characters, separators of lines, changes of direction, invisible marks or noncharacters.
bool IsPrintable(std::string_view text);

// `text` with every byte that is not part of a printable character replaced by '?', cut at a
// character's end to at most `max_bytes`.
std::string PrintableText(std::string_view text, size_t max_bytes);

// `text` escaped to ASCII and cut, for an error that quotes it.
std::string QuoteForError(std::string_view text);

}  // namespace basin

#endif  // BASIN_PROTOCOL_LIMITS_NAMES_H_
