// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC's names for peers, such as "ipv4:10.0.0.1:5000".
//
// Thread contract: a pure function.

#ifndef BASIN_RUNTIME_GRPC_PEER_H_
#define BASIN_RUNTIME_GRPC_PEER_H_

#include <string>

namespace basin {

// The name without its kind and its port.
std::string AddressIn(const std::string& peer);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_PEER_H_
