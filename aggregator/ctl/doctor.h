// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl doctor`: why an aggregator cannot be reached, step by step. It makes calls that change
// nothing; a token that is refused is logged by the aggregator, as each refused token is.
//
// Thread contract: the main thread, which waits for each step at most --timeout.

#ifndef BASIN_AGGREGATOR_CTL_DOCTOR_H_
#define BASIN_AGGREGATOR_CTL_DOCTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"
#include "aggregator/ctl/reach.h"

namespace basin::aggregator {

enum class Verdict : uint8_t { kOk, kWarning, kFailed, kSkipped };

// The outcome of one step.
struct Finding {
  std::string step;  // "name", "tcp", "mtu", "tls", "token", "round trip", "clock", "version".
  Verdict verdict = Verdict::kOk;
  std::string what;
  std::string fix;      // What to do about it; empty if nothing.
  absl::Status status;  // A failed step's: its code becomes the exit code.
};

// The findings about one address.
struct Diagnosis {
  std::string of;  // "operators" or "workers".
  std::string address;
  std::vector<Finding> findings;
};

// About the packets on the way to the host, from which no failure follows.
Finding JudgePackets(const PacketSize& size, const std::string& host);

// The job that the token is checked for is that of the arguments; empty: for none.
Diagnosis DiagnoseOperators(const Arguments& arguments);
Diagnosis DiagnoseWorkers(const Arguments& arguments);

// Failure: the status of the first failed finding.
absl::Status RunDoctor(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_DOCTOR_H_
