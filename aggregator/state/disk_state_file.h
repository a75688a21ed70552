// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of each job on disk, so that a restarted aggregator knows which workers to wait for.
// A generation is announced only after it was written here.
//
// The file is always complete: a new text is written beside it, made durable, and renamed to it.
// The old file stays until then, and after any failure. A file that could not be read is not
// replaced but moved aside, and nothing is written until that succeeds. The same holds for a file
// whose term is lower than one that was written before: somebody put an older copy there, and its
// members may be long gone.
//
// Thread contract: Save from one thread at a time; the rest before the first Save.
// Failure: a status that names the file, the step and the system's reason. A save that failed loses
// nothing but itself: the next one writes everything again.

#ifndef BASIN_AGGREGATOR_STATE_DISK_STATE_FILE_H_
#define BASIN_AGGREGATOR_STATE_DISK_STATE_FILE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/engine/engine.h"
#include "aggregator/state/format.h"
#include "aggregator/state/state_lock.h"

namespace basin::aggregator {

class DiskStateFile : public StateFile {
 public:
  // Called when saving begins to fail (with why) and when it works again (OK). From the thread of
  // Save; it must not block.
  using Report = std::function<void(const absl::Status& status)>;

  // `lock`: that of `path`. `max_jobs`: if there are more, the jobs that were saved longest ago are
  // forgotten.
  DiskStateFile(std::string path, StateLock lock, size_t max_jobs, Report report);

  // The state of an earlier process; empty if there is no file. DATA_LOSS if the file is damaged or
  // older than what was written, UNAVAILABLE if it cannot be read: it is then moved to
  // "<path>.damaged", and its content is not used.
  absl::StatusOr<WrittenState> Load();

  // Writes the term of this process, with the loaded state. Shows early whether the file can be
  // written.
  absl::Status Begin(Term term);

  absl::Status Save(const SaveState& state) override;
  absl::Status Save(const SaveSettings& settings) override;

 private:
  std::string Aside() const { return path_ + ".damaged"; }
  absl::Status SetAside();
  absl::Status WriteNewest(const JobName& name);
  absl::Status Write();
  absl::Status Reported(absl::Status status);

  // Constant after construction.
  const std::string path_;
  const size_t max_jobs_;
  const Report report_;

  StateLock lock_;
  WrittenState state_;
  std::vector<JobName> order_;  // The one that was saved longest ago first.
  bool unread_ = false;         // A file is there that was not read and was not moved aside.
  bool failing_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATE_DISK_STATE_FILE_H_
