// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of NCCL's binary interface that is used, declared here so that Basin is built without
// nccl.h and runs without libnccl.so.2. Values and layouts are those of NCCL 2.18 and are valid in
// every later 2.x: enumerators keep their values, and a library reads as much of a configuration as
// its `size` and `version` declare.
//
// Thread contract: plain values.

#ifndef BASIN_ACCELERATOR_NODE_NCCL_ABI_H_
#define BASIN_ACCELERATOR_NODE_NCCL_ABI_H_

#include <climits>
#include <cstddef>

namespace basin::accelerator::nccl {

struct OpaqueComm;
using Comm = OpaqueComm*;  // ncclComm_t
using Stream = void*;      // cudaStream_t

enum Code : int {  // ncclResult_t
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int {  // ncclDataType_t
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };  // ncclRedOp_t

struct UniqueId {  // ncclUniqueId
  char bytes[128];
};

struct Config {  // ncclConfig_t of 2.18
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  // Chosen by NCCL.
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
static_assert(sizeof(Config) == 48 && offsetof(Config, net_name) == 32);

// Before, a communicator cannot be aborted by another thread than the one that uses it.
constexpr int kLeastVersion = 21901;

// The functions, by their names in the library.
struct Functions {
  Code (*GetVersion)(int* version);
  const char* (*GetErrorString)(Code code);
  const char* (*GetLastError)(Comm comm);
  Code (*GetUniqueId)(UniqueId* id);
  Code (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Code (*CommFinalize)(Comm comm);
  Code (*CommDestroy)(Comm comm);
  Code (*CommAbort)(Comm comm);
  Code (*CommGetAsyncError)(Comm comm, Code* error);
  Code (*GroupStart)();
  Code (*GroupEnd)();
  Code (*Send)(const void* from, size_t count, DataType type, int peer, Comm comm, Stream stream);
  Code (*Recv)(void* to, size_t count, DataType type, int peer, Comm comm, Stream stream);
  Code (*Reduce)(const void* from, void* to, size_t count, DataType type, RedOp op, int root,
                 Comm comm, Stream stream);
  Code (*Broadcast)(const void* from, void* to, size_t count, DataType type, int root, Comm comm,
                    Stream stream);
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_ACCELERATOR_NODE_NCCL_ABI_H_
