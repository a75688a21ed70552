// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/state/disk_state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat("The state file ", path, " cannot be ", what, ": ",
                                             std::generic_category().message(errno)));
}

// A file descriptor that is closed at the end of its scope.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : number_(open(path.c_str(), flags, 0600)) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool ok() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  const int number_;
};

bool WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

absl::Status WriteDurably(const std::string& path, std::string_view text) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (!file.ok()) return SystemError(path, "created");
  if (!WriteAll(file.number(), text)) return SystemError(path, "written");
  if (fsync(file.number()) != 0) return SystemError(path, "made durable");
  return absl::OkStatus();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The name of the file is as durable as its text only when the folder is.
absl::Status SyncFolder(const std::string& path) {
  const Descriptor folder(FolderOf(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!folder.ok() || fsync(folder.number()) != 0) return SystemError(path, "made durable");
  return absl::OkStatus();
}

// NOT_FOUND if there is none.
absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  const Descriptor file(path, O_RDONLY | O_CLOEXEC);
  if (!file.ok() && errno == ENOENT) return absl::NotFoundError("");
  if (!file.ok()) return SystemError(path, "opened");
  std::string text;
  std::string piece(size_t{64} << 10, '\0');
  while (text.size() <= kMaxStateBytes) {
    const ssize_t count = read(file.number(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, "read");
    if (count == 0) return text;
    text.append(piece, 0, static_cast<size_t>(count));
  }
  return absl::DataLossError("it is too large");
}

}  // namespace

DiskStateFile::DiskStateFile(std::string path, StateLock lock, size_t max_jobs, Report report)
    : path_(std::move(path)),
      max_jobs_(max_jobs),
      report_(std::move(report)),
      lock_(std::move(lock)) {}

absl::StatusOr<WrittenState> DiskStateFile::Load() {
  const absl::StatusOr<std::string> text = ReadWhole(path_);
  if (absl::IsNotFound(text.status())) return WrittenState();
  absl::StatusOr<WrittenState> state = text.ok() ? DecodeState(*text) : text.status();
  if (state.ok() && state->term < lock_.written()) {
    state = absl::DataLossError(
        absl::StrCat("its term is ", state->term, ", but term ", lock_.written(),
                     " was written to it before, so it is an older copy of the file"));
  }
  if (!state.ok()) {
    unread_ = true;
    const bool moved = SetAside().ok();
    const std::string why = absl::IsDataLoss(state.status())
                                ? absl::StrCat("The state file ", path_, " cannot be used (",
                                               state.status().message(), ")")
                                : std::string(state.status().message());
    return absl::Status(
        state.status().code(),
        absl::StrCat(why,
                     ". The aggregator ignores it, starts a new term, and asks the members for "
                     "what they remember.",
                     moved ? absl::StrCat(" The file was moved to ", Aside(), ".") : ""));
  }
  state_ = *state;
  for (const auto& [name, job] : state_.jobs) order_.push_back(name);
  return state;
}

absl::Status DiskStateFile::Begin(Term term) {
  state_.term = std::max(state_.term, term);
  return Reported(Write());
}

absl::Status DiskStateFile::Save(const SaveState& state) {
  state_.term = std::max(state_.term, state.term);
  state_.jobs[state.name] = {state.run, state.term, state.membership, state.settings};
  return WriteNewest(state.name);
}

absl::Status DiskStateFile::Save(const SaveSettings& settings) {
  state_.term = std::max(state_.term, settings.term);
  SavedState& job = state_.jobs[settings.name];
  // The members of a run without a name may be those of the run that has got one meanwhile.
  if (!job.run.empty() && job.run != settings.run) job.membership = Membership();
  job.run = settings.run;
  job.term = settings.term;
  job.settings = settings.settings;
  return WriteNewest(settings.name);
}

// The job is the last of all to be dropped for want of room.
absl::Status DiskStateFile::WriteNewest(const JobName& name) {
  order_.erase(std::remove(order_.begin(), order_.end(), name), order_.end());
  order_.push_back(name);
  while (order_.size() > max_jobs_) {
    state_.jobs.erase(order_.front());
    order_.erase(order_.begin());
  }
  return Reported(Write());
}

// A file that could not be read may be intact: it is readable again once the disk or the mode is
// repaired.
absl::Status DiskStateFile::SetAside() {
  if (!unread_) return absl::OkStatus();
  // Another process may have moved it meanwhile.
  if (std::rename(path_.c_str(), Aside().c_str()) != 0 && errno != ENOENT) {
    return SystemError(path_, "moved aside, and its content could not be read");
  }
  unread_ = false;
  return absl::OkStatus();
}

absl::Status DiskStateFile::Write() {
  if (absl::Status moved = SetAside(); !moved.ok()) return moved;
  const std::string text = EncodeState(state_);
  if (text.size() > kMaxStateBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "The state file ", path_, " would become too large: ", text.size(), " bytes."));
  }
  const std::string beside = path_ + ".new";
  absl::Status written = WriteDurably(beside, text);
  if (written.ok() && std::rename(beside.c_str(), path_.c_str()) != 0) {
    written = SystemError(path_, "replaced");
  }
  if (!written.ok()) {
    unlink(beside.c_str());
    return written;
  }
  if (absl::Status synced = SyncFolder(path_); !synced.ok()) return synced;
  lock_.NoteWritten(state_.term);
  return absl::OkStatus();
}

absl::Status DiskStateFile::Reported(absl::Status status) {
  if (status.ok() == failing_) {
    failing_ = !status.ok();
    report_(status);
  }
  return status;
}

}  // namespace basin::aggregator
