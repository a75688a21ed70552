// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The identity of this process, from the variables of the launcher that has started it.
//
// Launchers nest, as torchrun in a task of srun, and each leaves its variables to the process. The
// innermost has started the process, so it decides. Launchers of which neither is known to be the
// inner one have to agree.
//
// Thread contract: pure functions. Failure: INVALID_ARGUMENT, with the variables, their values and
// what to do.

#ifndef BASIN_CLIENT_CORE_LAUNCHER_H_
#define BASIN_CLIENT_CORE_LAUNCHER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace basin::client {

// The value of a variable of the environment; absent if it is not set, or empty.
using Variables = absl::FunctionRef<std::optional<std::string>(const char* name)>;

// Which worker a process is.
struct LaunchedIdentity {
  uint32_t rank = 0;
  std::optional<uint32_t> size;  // The number of workers; not every launcher says it.
  std::string decision;          // Why others that are set do not count. Empty: all agree.
};

// Absent: no launcher has said it. basin-run says it by the options of a worker.
absl::StatusOr<std::optional<LaunchedIdentity>> ReadIdentity(Variables variables);

// Where a process is among the workers of its machine. Machines are those of the launcher, which
// may start several on one host. Each value is as the launcher wrote it, unless it had to be
// computed.
struct LaunchedPlace {
  const char* rank_variable = "LOCAL_RANK";
  const char* size_variable = "LOCAL_WORLD_SIZE";
  std::optional<std::string> local_rank;
  std::optional<std::string> local_size;
  bool numbers_machines = true;         // False: one that does not, so that only some ranks know.
  std::optional<std::string> machine;   // Its number, from 0.
  std::optional<std::string> machines;  // How many there are.
};

// All absent: no launcher has said it.
LaunchedPlace ReadPlace(Variables variables);

// Tells machines of one host apart, with the same text on all workers of a machine. A number that
// some of them have computed, and others could not, does not.
std::string MachineOnHost(const LaunchedPlace& place);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LAUNCHER_H_
