// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/state/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// The text is one number of this width, so that a new one replaces all of the earlier one.
constexpr int kTermDigits = 20;

}  // namespace

absl::StatusOr<StateLock> StateLock::Take(const std::string& state_path) {
  const std::string path = state_path + ".lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return StateLock();
  StateLock lock(file);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return StateLock();  // A file system without locks.
    return absl::FailedPreconditionError(
        absl::StrCat("state.file is ", state_path, ", which another basind uses (it holds ", path,
                     "). Each aggregator needs a state file of its own; end the other one, or "
                     "choose another file."));
  }
  char text[kTermDigits] = {};
  const ssize_t count = pread(file, text, sizeof text, 0);
  const std::string_view read(text, count > 0 ? static_cast<size_t>(count) : 0);
  if (!absl::SimpleAtoi(absl::string_view(read.data(), read.size()), &lock.written_)) {
    lock.written_ = 0;  // A new file, or one that was damaged.
  }
  return lock;
}

StateLock::~StateLock() {
  if (file_ >= 0) close(file_);
}

StateLock::StateLock(StateLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), written_(other.written_) {}

StateLock& StateLock::operator=(StateLock&& other) noexcept {
  std::swap(file_, other.file_);
  written_ = other.written_;
  return *this;
}

void StateLock::NoteWritten(Term term) {
  if (file_ < 0 || term <= written_) return;
  std::string text = absl::StrCat(term, "\n");
  text.insert(0, kTermDigits - (text.size() - 1), '0');
  if (pwrite(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    written_ = term;
  }
}

}  // namespace basin::aggregator
