// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a status carries its typed detail: the payload of an absl::Status under this name is the
// encoded basin.v1.StatusDetail that travels beside a gRPC status.
//
// Thread contract: a constant.

#ifndef BASIN_PROTO_STATUS_DETAIL_H_
#define BASIN_PROTO_STATUS_DETAIL_H_

namespace basin {

inline constexpr char kStatusDetailUrl[] = "basin.v1.StatusDetail";

}  // namespace basin

#endif  // BASIN_PROTO_STATUS_DETAIL_H_
