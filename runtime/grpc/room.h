// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which connection is closed when another one comes and there are too many. The source that has
// most of them pays, so that a flood does not displace a probe from elsewhere.
//
// Thread contract: pure functions. Failure: none.

#ifndef BASIN_RUNTIME_GRPC_ROOM_H_
#define BASIN_RUNTIME_GRPC_ROOM_H_

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace basin {

struct HeldConnection {
  std::string_view source;  // SourceOf its address: what is counted as one.
  bool may_go = true;       // It waits for its client, not for its answer.
};

struct ConnectionRoom {
  bool comes = true;               // Whether the new connection is taken.
  std::optional<size_t> in_place;  // The connection that is closed for it.
};

// `held` has the oldest first. Among `most` connections, a source may have `most_of_an_address`.
ConnectionRoom RoomFor(std::string_view source, const std::vector<HeldConnection>& held,
                       size_t most, size_t most_of_an_address);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_ROOM_H_
