// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The identity of this worker, and the timeouts and bounds of its side.
//
// Thread contract: a plain value, constant after construction of the Client.

#ifndef BASIN_CLIENT_CORE_CONFIG_H_
#define BASIN_CLIENT_CORE_CONFIG_H_

#include <cstdint>

#include "absl/time/time.h"
#include "protocol/limits/limits.h"
#include "protocol/messages.h"

namespace basin::client {

struct Config {
  JobName job;
  RunId run;  // Empty: the run in progress.
  WorkerId worker;
  Nonce nonce = 0;     // Random, chosen once per process.
  bool fresh = false;  // The launcher vouches that the run is new.
  JobSettings settings;
  uint64_t features = 0;  // The runner sets those that it has.
  // The trainers that the worker stands for at first, and the number of this process among them,
  // from 0.
  uint32_t ranks = 1;
  uint32_t local_rank = 0;
  JoinGroup group;
  std::string software;  // The versions that it runs, for operators.

  uint32_t frame_tensors = 1024;  // In one frame, where the aggregator has the feature.
  uint32_t streams = 2;           // Data streams, each on its own connection; at least 1.
  bool follows_link = true;       // Frames and window follow what the link acknowledges.
  uint64_t jitter_seed = 1;  // Spreads the reconnects of workers that lost the same aggregator.

  std::string aggregator;                                  // Its addresses, for texts,
  uint32_t addresses = 1;                                  // and how many, which are tried in turn.
  absl::Duration answer_warning = absl::Seconds(2);        // Warns that no answer has come.
  absl::Duration backoff_first = absl::Milliseconds(100);  // After the attempt made at once.
  absl::Duration backoff_limit = absl::Seconds(2);
  absl::Duration leave_timeout = absl::Seconds(2);  // For the aggregator to confirm a leave.
  absl::Duration value_retry = absl::Seconds(2);    // Ask again for value chunks that do not come.

  uint32_t max_lanes = kMaxLanes;    // The aggregator has limits of its own.
  uint32_t max_tensors = 65536;      // Per lane.
  uint32_t max_values = 65536;       // Announced values, and gets in progress.
  uint32_t max_fetches = 8;          // Values whose chunks are on their way at once.
  uint32_t blob_window_chunks = 16;  // Chunks of one value that are asked for at once.
  uint32_t register_batch = 1024;    // Tensors in one Register message.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CONFIG_H_
