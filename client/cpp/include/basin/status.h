// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The outcome of a call: a Status, or a Result, which is a Status or a value. No exceptions.
//
//   basin::Result<basin::Worker> worker = basin::Worker::Connect(options);
//   if (!worker.ok()) {
//     std::cerr << worker.status().message() << "\n";
//     return worker.status().exit_code();
//   }
//   worker->Ready();
//
// Thread contract: plain values.

#ifndef BASIN_STATUS_H_
#define BASIN_STATUS_H_

#include <basin/basin.h>

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace basin {
inline namespace abi1 {

// The codes of basin.h, which explains each.
enum class Code {
  kOk = BASIN_OK,
  kInvalidArgument = BASIN_INVALID_ARGUMENT,
  kMismatch = BASIN_MISMATCH,
  kRunConflict = BASIN_RUN_CONFLICT,
  kSuperseded = BASIN_SUPERSEDED,
  kLineageConflict = BASIN_LINEAGE_CONFLICT,
  kEvicted = BASIN_EVICTED,
  kStale = BASIN_STALE,
  kContributionChanged = BASIN_CONTRIBUTION_CHANGED,
  kDataCorrupt = BASIN_DATA_CORRUPT,
  kResourceExhausted = BASIN_RESOURCE_EXHAUSTED,
  kPaused = BASIN_PAUSED,
  kRoundAborted = BASIN_ROUND_ABORTED,
  kOutcomeUnknown = BASIN_OUTCOME_UNKNOWN,
  kDeadlineExceeded = BASIN_DEADLINE_EXCEEDED,
  kUnavailable = BASIN_UNAVAILABLE,
  kVersionMismatch = BASIN_VERSION_MISMATCH,
  kFailedPrecondition = BASIN_FAILED_PRECONDITION,
  kNotFound = BASIN_NOT_FOUND,
};

// Why a round was aborted; see basin.h.
enum class AbortCause {
  kOther = BASIN_ABORT_OTHER,
  kNoContributor = BASIN_ABORT_NO_CONTRIBUTOR,
  kLoss = BASIN_ABORT_LOSS,
  kDeadlock = BASIN_ABORT_DEADLOCK,
  kReduction = BASIN_ABORT_REDUCTION,
  kStepAgain = BASIN_ABORT_STEP_AGAIN,
};

// "OUTCOME_UNKNOWN".
inline const char* CodeName(Code code) { return basin_code_name(static_cast<basin_code>(code)); }

class [[nodiscard]] Status {
 public:
  Status() = default;

  // A copy of an error of the C interface; OK for null.
  explicit Status(const basin_error* error) {
    if (error == nullptr) return;
    code_ = static_cast<Code>(basin_error_code(error));
    message_ = basin_error_message(error);
    fatal_ = basin_error_is_fatal(error) != 0;
    restart_helps_ = basin_error_restart_helps(error) != 0;
    abort_cause_ = static_cast<AbortCause>(basin_error_abort_cause(error));
  }

  // An error of the trainer's own, for the library to pass on. REQUIRES: `code` is not kOk.
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // A text that names job, worker, lane and tensor, and ends with what to do next.
  const std::string& message() const { return message_; }
  // This process can do nothing about it, and must exit.
  bool fatal() const { return fatal_; }
  // A restart of this process may help.
  bool restart_helps() const { return restart_helps_; }
  // Why a round was aborted, with Code::kRoundAborted.
  AbortCause abort_cause() const { return abort_cause_; }

  // The exit code of a program that ends with it: 75 if a restart helps, 78 if something else must
  // be corrected first, otherwise 1; 0 if OK.
  int exit_code() const { return basin_exit_code(static_cast<basin_code>(code_)); }

  // For calls whose failure does not matter to the caller.
  void IgnoreError() const {}

 private:
  Code code_ = Code::kOk;
  std::string message_;
  bool fatal_ = false;
  bool restart_helps_ = false;
  AbortCause abort_cause_ = AbortCause::kOther;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that `return status;` and `return value;` both work. REQUIRES: `status` is not OK.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : value_(std::move(value)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& operator*() & {
    assert(ok());
    return *value_;
  }
  const T& operator*() const& {
    assert(ok());
    return *value_;
  }
  T&& operator*() && {
    assert(ok());
    return *std::move(value_);
  }
  T* operator->() {
    assert(ok());
    return &*value_;
  }
  const T* operator->() const {
    assert(ok());
    return &*value_;
  }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {

// Takes the error of one call of the C interface:  Taken error;  f(..., error.out());  error.Take()
class Taken {
 public:
  Taken() = default;
  ~Taken() { basin_error_free(error_); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  basin_error** out() { return &error_; }
  Status Take() const { return Status(error_); }

 private:
  basin_error* error_ = nullptr;
};

}  // namespace internal
}  // namespace abi1
}  // namespace basin

#endif  // BASIN_STATUS_H_
