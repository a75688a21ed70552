// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The worker behind basin.h: client::Worker with a network, a clock, a log and a descriptor, and
// the knowledge of which process it belongs to.
//
// Thread contract: as basin.h.

#ifndef BASIN_CLIENT_C_WORKER_H_
#define BASIN_CLIENT_C_WORKER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "accelerator/node/runner/runner.h"
#include "client/c/include/basin/basin.h"
#include "client/c/options.h"
#include "client/c/report.h"
#include "client/c/timeline_file.h"
#include "client/device/transfers.h"
#include "client/transport/grpc/connector.h"
#include "client/transport/row_calls.h"
#include "client/transport/states.h"
#include "client/transport/worker.h"
#include "protocol/samples.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

struct basin_worker {
 public:
  // Failure: as basin_connect.
  static absl::StatusOr<std::unique_ptr<basin_worker>> Connect(basin::c::Settings settings,
                                                               basin::c::Log log);
  ~basin_worker();
  // Deletes the worker; on another thread when this one is its own, which would wait for itself.
  static void Close(std::unique_ptr<basin_worker> worker);
  basin_worker(const basin_worker&) = delete;
  basin_worker& operator=(const basin_worker&) = delete;

  // Whether this is the process that connected. A child of it has no threads, and locks may never
  // be released, so it must not use this.
  bool here() const;

  basin::client::Worker& client() { return *worker_; }
  basin::client::States& states() { return *states_; }
  basin::client::RowCalls& rows() { return *rows_; }
  // For tensors on a device.
  basin::client::DeviceTransfers& transfers() {
    uses_devices_ = true;
    return *transfers_;
  }
  // The same if it was ever used, else null: a round of tensors on the host needs none of it.
  basin::client::DeviceTransfers* used_transfers() {
    return uses_devices_ ? transfers_.get() : nullptr;
  }
  const std::string& id() const { return id_; }
  const std::string& job() const { return job_; }
  const std::string& run() const { return run_; }
  const basin::c::GroupSettings& group() const { return group_; }
  // Tells the other ranks of the node why this one has no group, until the worker is closed or
  // there is another such reason.
  void KeepReporting(std::unique_ptr<basin::accelerator::node::Runner> why_not);
  // The positions that basin_samples_next gave last in this lane, which its rounds name; without
  // ranges there are none.
  void SetBatch(uint32_t lane, basin::SampleProgress batch);
  basin::SampleProgress Batch(uint32_t lane) const;
  // The arrays of the last unnamed call of this lane, which its rounds are compared by; none: it is
  // not a lane of unnamed calls.
  void SetCall(uint32_t lane, std::vector<basin::TensorSpec> arrays);
  std::optional<std::vector<basin::TensorSpec>> Call(uint32_t lane) const;
  const basin::c::Log& log() const { return log_; }
  int event_fd() const { return event_fd_; }

 private:
  basin_worker(const basin::c::Settings& settings, basin::c::Log log);
  // As the destructor. After the last worker of the process it also waits for the end of gRPC's
  // threads and descriptors, if nothing else uses it, so that one worker after the other does not
  // collect them.
  static void Delete(std::unique_ptr<basin_worker> worker);
  void Signal() const;

  const pid_t process_;
  const bool alone_;  // Nothing in the process used gRPC before.
  const std::string id_;
  const std::string job_;
  const std::string run_;
  const basin::c::GroupSettings group_;
  const basin::c::Log log_;
  int event_fd_ = -1;
  basin::MonotonicClock clock_;
  basin::c::Report report_;
  std::unique_ptr<basin::c::TimelineFile> timeline_;  // Null: there is none.
  std::unique_ptr<basin::client::GrpcConnector> connector_;
  std::unique_ptr<basin::client::States> states_;  // The worker reads its value to the end.
  std::unique_ptr<basin::client::Worker> worker_;
  std::unique_ptr<basin::client::RowCalls> rows_;
  std::atomic<bool> uses_devices_{false};
  std::unique_ptr<basin::client::DeviceTransfers> transfers_;
  mutable basin::Mutex mutex_;
  std::unique_ptr<basin::accelerator::node::Runner> why_not_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, basin::SampleProgress> batches_ ABSL_GUARDED_BY(mutex_);         // By lane.
  std::map<uint32_t, std::vector<basin::TensorSpec>> calls_ ABSL_GUARDED_BY(mutex_);  // By lane.
};

namespace basin::c {

// FAILED_PRECONDITION in a child, INVALID_ARGUMENT for null.
absl::Status Check(const basin_worker* worker);

inline absl::Duration Timeout(int64_t nanoseconds) {
  return nanoseconds < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
}

// Copies a string with its zero, truncated to `size`; returns its length.
size_t CopyText(const std::string& text, char* to, size_t size);

// A null string is an empty one.
inline std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Converts an enumerator of basin.h to the enum of the library, which has fewer bits. C passes any
// int, so it is checked first. INVALID_ARGUMENT above `most`, the last enumerator; `what` is the
// subject of the text.
template <typename To, typename From>
absl::StatusOr<To> EnumOf(const std::string& what, From given, From most) {
  const auto number = static_cast<int64_t>(given);
  if (number < 0 || number > static_cast<int64_t>(most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", number, ". The enumerators of basin.h go up to ",
                     static_cast<int64_t>(most), "; use one of them."));
  }
  return static_cast<To>(number);
}

// INVALID_ARGUMENT for an array that is missing.
absl::StatusOr<std::vector<SampleRange>> RangesOf(const basin_sample_range* ranges, size_t count);

// INVALID_ARGUMENT for an array of sizes that is missing, and for an unknown dtype.
absl::StatusOr<TensorSpec> SpecOf(const basin_tensor* tensor);

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_WORKER_H_
