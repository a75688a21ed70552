// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The calls of a trainer about values, which one worker serves to others.
//
// Ownership: with Hold::kCopy, the memory of a value is read during Announce only. With
// Hold::kInPlace it is the library's, to read, until the same tensor is announced again, or
// StopServing or the destructor of the worker returns; between BeginStep and EndStep it is not
// read. Thread contract and failure: those of the worker; BeginStep and EndStep alternate.

#ifndef BASIN_CLIENT_TRANSPORT_BLOB_CALLS_H_
#define BASIN_CLIENT_TRANSPORT_BLOB_CALLS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/transport/gate.h"
#include "client/transport/outcome.h"
#include "client/transport/trainer_calls.h"
#include "protocol/messages.h"

namespace basin::client {

// Whether announced memory is copied at once or read when a worker requests it.
enum class Hold : uint8_t { kCopy = 0, kInPlace = 1 };

class BlobCalls {
 public:
  // REQUIRES: the loop behind `calls`, and the gate, outlive it.
  BlobCalls(const TrainerCalls& calls, Gate& gate) : calls_(calls), gate_(gate) {}

  // Failure: kFailedPrecondition when a newer version was announced; kInvalidArgument for another
  // number of bytes than the tensor has.
  absl::Status Announce(const BlobKey& key, const TensorSpec& spec, const void* data,
                        uint64_t bytes, Hold hold);
  absl::Status StopServing(const std::string& lane, const std::string& tensor);
  // Enclose code that writes to memory that was announced in place.
  void BeginStep() { gate_.Close(); }
  void EndStep();
  // The value that `source` announced, or any worker if it is absent.
  BlobOutcome Get(const BlobKey& key, const std::optional<TensorSpec>& expected,
                  const std::optional<WorkerId>& source, absl::Duration timeout);

 private:
  const TrainerCalls calls_;
  Gate& gate_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_BLOB_CALLS_H_
