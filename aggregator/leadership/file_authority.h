// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A directory as the authority of the aggregators of one machine.
//
// Each state of the record is a file whose name is its number, and the highest number counts. A
// writer makes the file with the next number under another name and links it, which fails if
// another writer was faster. So nobody holds a lock while it writes, and a process that is stopped
// at any moment keeps nobody from writing. Each state names the one that it replaced. So a writer
// that finds a higher number than its own knows whether others have gone on from its state, or had
// gone on before: then it has not written.
//
// Each process also holds a lock on a file of its own as long as it lives, which the kernel
// releases when it ends, however it ends. So a standby need not wait for the lease of a leader that
// was killed. This holds for one machine and one boot of it; for a record of another one, the lease
// counts.
//
// Thread contract: as for Authority. Failure: UNAVAILABLE names the directory and the system's
// reason. A file that cannot be read is a record that names nobody.

#ifndef BASIN_AGGREGATOR_LEADERSHIP_FILE_AUTHORITY_H_
#define BASIN_AGGREGATOR_LEADERSHIP_FILE_AUTHORITY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "aggregator/leadership/authority.h"

namespace basin::aggregator {

class FileAuthority : public Authority {
 public:
  // Makes the directory if it is not there. `holder`: the name of this process in records.
  // Failure: UNAVAILABLE when it cannot be made or written.
  static absl::StatusOr<std::unique_ptr<FileAuthority>> Open(const std::string& directory,
                                                             const std::string& holder);
  ~FileAuthority() override;
  FileAuthority(const FileAuthority&) = delete;
  FileAuthority& operator=(const FileAuthority&) = delete;

  absl::StatusOr<RecordState> Read(absl::Duration timeout) override;
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration timeout) override;
  void Leave() override;

 private:
  // The file with the highest number, as it was read.
  struct Newest {
    uint64_t number = 0;  // 0: there is none.
    RecordState state;
  };

  FileAuthority(std::string directory, std::string holder)
      : directory_(std::move(directory)), holder_(std::move(holder)) {}

  absl::StatusOr<uint64_t> HighestNumber() const;
  // The file of a state. Failure: also NOT_FOUND.
  absl::StatusOr<std::string> ReadState(uint64_t number) const;
  absl::StatusOr<Newest> ReadNewest() const;
  absl::Status MakeDirectory() const;
  // Holds the lock of this process, on a file that is still in the directory.
  absl::Status Live();
  bool HasEnded(const std::string& holder) const;
  // Removes states of the record before `number`, and lock files of processes that have ended.
  void RemoveOld(uint64_t number) const;
  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  absl::Status Cannot(const std::string& what) const;

  // Constant after construction.
  const std::string directory_;
  const std::string holder_;

  int alive_ = -1;  // The locked file.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_LEADERSHIP_FILE_AUTHORITY_H_
