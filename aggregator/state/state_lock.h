// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The right of one process to use a state file, as a lock of the file "<path>.lock". The kernel
// releases it when the process ends, however it ends. The lock file also has the highest term that
// was written to the state file, so that an older copy of that file is recognised.
//
// Thread contract: as its owner, the state file.

#ifndef BASIN_AGGREGATOR_STATE_STATE_LOCK_H_
#define BASIN_AGGREGATOR_STATE_STATE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "protocol/ids.h"

namespace basin::aggregator {

class StateLock {
 public:
  // Failure: FAILED_PRECONDITION if another process holds it. Where no lock can be had, because the
  // folder is not there or cannot be written, the result holds none: the state file cannot be
  // written there either, which is reported.
  static absl::StatusOr<StateLock> Take(const std::string& state_path);

  StateLock() = default;  // Holds none.
  ~StateLock();
  StateLock(StateLock&& other) noexcept;
  StateLock& operator=(StateLock&& other) noexcept;

  // The highest term that was written to the state file; 0 if none is known.
  Term written() const { return written_; }
  // The state file has this term now, durably. A failure costs only the recognition.
  void NoteWritten(Term term);

 private:
  explicit StateLock(int file) : file_(file) {}

  int file_ = -1;
  Term written_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATE_STATE_LOCK_H_
