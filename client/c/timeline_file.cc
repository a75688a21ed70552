// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/timeline_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"

namespace basin::c {
namespace {

absl::Time WallClock() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return absl::TimeFromTimespec(now);
}

// A name of its own in the folder, so that a process that was started again does not replace the
// trace of the one before it. In a container the process id alone is always the same.
std::string FileIn(const std::string& folder, const client::Config& worker) {
  const std::string job = absl::StrReplaceAll(worker.job, {{"/", "_"}});
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", job, ".", worker.worker, ".",
                      absl::FormatTime("%Y%m%dT%H%M%S", WallClock(), absl::UTCTimeZone()), ".",
                      getpid(), ".json");
}

bool IsFolder(const std::string& path) {
  struct stat found = {};
  return path.back() == '/' || (stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode));
}

absl::Status CannotWrite(const std::string& path, const std::string& why, const std::string& fix) {
  return absl::InvalidArgumentError(absl::StrCat("timeline (BASIN_TIMELINE) is ", path,
                                                 ", which cannot be written: ", why, ". ", fix));
}

constexpr char kNameAFolder[] =
    "Name a folder that exists and that this process may write to, or a file in such a folder.";

}  // namespace

absl::StatusOr<std::unique_ptr<TimelineFile>> TimelineFile::Open(const Settings& settings, Log log,
                                                                 const std::string& who) {
  const std::string& given = settings.timeline.path;
  std::string path = IsFolder(given) ? FileIn(given, settings.core) : given;
  // Without waiting, in case it is a pipe that nobody reads.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return CannotWrite(given, std::strerror(errno), kNameAFolder);
  // A child that was forked holds no lock of its parent, so the trainer's children do not keep the
  // next process from writing.
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  struct stat found = {};
  const bool regular = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  // Something else may be locked by any process.
  const bool taken =
      regular && fcntl(file, F_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES);
  if (taken || !regular || ftruncate(file, 0) != 0) {
    const std::string why = !regular ? "it is not a file" : std::strerror(errno);
    close(file);
    return taken ? CannotWrite(given, "another process writes it",
                               "Name a folder, in which each worker writes a file of its own.")
                 : CannotWrite(given, why, kNameAFolder);
  }
  std::unique_ptr<TimelineFile> opened(new TimelineFile(file, path, settings, log, who));
  if (const std::string why = opened->Write(opened->text_.Begin()); !why.empty()) {
    return CannotWrite(given, why, "Make room for it, or name another folder.");
  }
  opened->Report(BASIN_LOG_INFO, absl::StrCat("Writes a timeline to ", path, "."));
  opened->thread_ = std::thread([self = opened.get()] {
    pthread_setname_np(pthread_self(), "basin-timeline");
    self->Run();
  });
  return opened;
}

TimelineFile::TimelineFile(int file, std::string path, const Settings& settings, Log log,
                           std::string who)
    : file_(file),
      path_(std::move(path)),
      max_bytes_(settings.timeline.max_bytes),
      who_(std::move(who)),
      timeline_(std::make_shared<client::Timeline>(
          [clock = MonotonicClock()] { return clock.Now(); }, settings.timeline.every)),
      text_({static_cast<uint64_t>(getpid()), settings.core.job, settings.core.worker,
             WallClock() - clock_.Now()},
            max_bytes_),
      log_(log) {}

TimelineFile::~TimelineFile() {
  timeline_->End();
  if (thread_.joinable()) thread_.join();
  close(file_);
}

void TimelineFile::Silence() {
  MutexLock lock(mutex_);
  log_ = Log();
}

void TimelineFile::Report(basin_log_level level, const std::string& text) {
  MutexLock lock(mutex_);
  log_(level, absl::StrCat(who_, ": ", text));
}

std::string TimelineFile::Write(const std::string& text) const {
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(file_, text.data() + written, text.size() - written);
    if (count > 0) {
      written += static_cast<size_t>(count);
    } else if (count == 0 || errno != EINTR) {
      return count == 0 ? "the disk took nothing" : std::strerror(errno);
    }
  }
  return "";
}

void TimelineFile::Run() {
  while (true) {
    const client::Timeline::Batch batch = timeline_->Take();
    std::string text = text_.Next(batch, clock_.Now());
    if (batch.ended && !text_.full()) text += text_.End(clock_.Now());
    const std::string why = Write(text);
    if (!why.empty()) {
      Report(BASIN_LOG_WARNING, absl::StrCat("The timeline ", path_, " cannot be written: ", why,
                                             ". It ends here; the training continues."));
    } else if (text_.full()) {
      Report(BASIN_LOG_WARNING,
             absl::StrCat("The timeline ", path_, " has its ", max_bytes_,
                          " bytes (timeline_max_bytes, BASIN_TIMELINE_MAX_BYTES), and ends here. "
                          "Raise the bound, or record fewer rounds with timeline_every "
                          "(BASIN_TIMELINE_EVERY)."));
    }
    if (!why.empty() || text_.full() || batch.ended) break;
  }
  timeline_->End();
}

}  // namespace basin::c
