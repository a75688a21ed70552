// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Typed reasons that travel to a worker, and the kinds of things worth a counter and a log line.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_PROTOCOL_ERROR_H_
#define BASIN_PROTOCOL_ERROR_H_

#include <cstdint>
#include <string>
#include <tuple>

#include "protocol/fields.h"

namespace basin {

enum class ErrorCode : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,      // The message breaks the protocol or a limit.
  kMismatch = 2,             // Shape, dtype, op, scale or setting differs from the others'.
  kRunConflict = 3,          // Another run of the job is in progress.
  kSuperseded = 4,           // A newer process has taken this worker id. Fatal to the process.
  kLineageConflict = 5,      // The worker's history is not the job's. Fatal to the process.
  kEvicted = 6,              // Lost for too long, or by command: rejoin with state.
  kStale = 7,                // For a round that has a verdict, or from an older session.
  kContributionChanged = 8,  // A chunk came again with other bytes.
  kDataCorrupt = 9,          // A digest did not match twice.
  kResourceExhausted = 10,   // Refused at admission; the text has the numbers.
  kPaused = 11,              // Below min_workers, or suspended by an operator.
  kRoundAborted = 12,        // The round's verdict is ABORTED; local gradients are kept.
  kOutcomeUnknown = 13,      // The client's own deadline passed without a verdict.
  kDeadlineExceeded = 14,    // A broadcast value or a membership did not come in time.
  kUnavailable = 15,         // The aggregator is draining, recovering, or cannot be reached.
  kVersionMismatch = 16,     // Protocol or arithmetic contract versions do not fit.
  kFailedPrecondition = 17,  // The call is not allowed in this state.
  kNotFound = 18,
};

const char* ErrorCodeName(ErrorCode code);

// True when nothing this process does can help: it must exit.
constexpr bool IsFatal(ErrorCode code) {
  return code == ErrorCode::kSuperseded || code == ErrorCode::kLineageConflict;
}

// Why a round was aborted.
enum class AbortCause : uint8_t {
  kUnspecified = 0,
  kNoContributor = 1,  // The next round may have the same gradients.
  kLoss = 2,           // Under the loss policy `abort`.
  kDeadlock = 3,       // The workers wait for each other.
  kReduction = 4,      // A tensor cannot be reduced.
  kStepAgain = 5,      // Samples of a step of a global batch were missing; the step comes again.
  kMismatch = 6,       // The workers make different unnamed calls.
};

// A code and a text that names job, worker and tensor, and ends with what to do next.
struct Error {
  ErrorCode code = ErrorCode::kOk;
  std::string text;
  AbortCause abort_cause = AbortCause::kUnspecified;  // With kRoundAborted.
  auto Fields() const { return std::tie(code, text, abort_cause); }
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_ERROR_H_
