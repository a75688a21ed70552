// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a test can ask of the library that stands in for NCCL. stand_in_nccl.cc is a shared library
// with NCCL's names over host memory, for the ranks of one process; a test loads it as the product
// loads NCCL, and gets this table from the function "standInNcclControl".
//
// A stream is whatever the test says, see set_enqueue. Communicators are non-blocking: their calls
// return before their work is done, as NCCL's do. The order in which ncclReduce adds is that of the
// ranks from the last to the first, and each addition rounds to the data type.
//
// Use of a communicator after it was aborted or destroyed ends the process, as it may with NCCL.
//
// Thread contract: any thread.

#ifndef BASIN_TESTS_ACCELERATOR_NODE_NCCL_STAND_IN_NCCL_H_
#define BASIN_TESTS_ACCELERATOR_NODE_NCCL_STAND_IN_NCCL_H_

#include "accelerator/node/nccl/abi.h"

namespace basin::accelerator::nccl {

// The ranks that a fault concerns.
constexpr int kAnyRank = -1;

struct StandInControl {
  // Gives work to a stream: `run(argument)` is called once, in the stream's order.
  void (*set_enqueue)(void (*enqueue)(Stream stream, void (*run)(void*), void* argument));

  void (*set_version)(int version);

  // The n-th call of the function from now on, by this rank, from 0 ...
  // ... returns this code and does nothing else.
  void (*fail)(const char* function, int rank, int n, Code code);
  // ... does not return until its communicator is aborted,
  void (*hang)(const char* function, int rank, int n);
  // ... or until release(), whatever is aborted.
  void (*hang_for_good)(const char* function, int rank, int n);
  void (*release)();
  // The rank's communicators report this error from now on, in ncclCommGetAsyncError.
  void (*break_rank)(int rank, Code code);
  // The next so many looks of the rank, in ncclCommGetAsyncError, see work in progress.
  void (*stay_in_progress)(int rank, int looks);

  int (*calls)(const char* function);  // Since reset().
  int (*communicators)();              // That exist.
  int (*waiting_calls)();              // Calls that hang.
  // Forgets everything. REQUIRES: no call hangs, and communicators that exist are not used.
  void (*reset)();
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_TESTS_ACCELERATOR_NODE_NCCL_STAND_IN_NCCL_H_
