// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The end of gRPC in this process. What its last object leaves (threads, descriptors) is taken down
// on one of its own threads, which the destructor of that object does not wait for.
//
// Thread contract: any thread but those of gRPC. Failure: none.

#ifndef BASIN_RUNTIME_GRPC_ENDING_H_
#define BASIN_RUNTIME_GRPC_ENDING_H_

#include "absl/time/time.h"

namespace basin {

// Whether any object of gRPC is left in this process.
bool IsGrpcInUse();

// Returns when there is none, or after this time.
void AwaitGrpcEnd(absl::Duration most);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_ENDING_H_
