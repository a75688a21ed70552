// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The packets of the connections between the ranks of one node (proto/basin/v1/group.proto).
//
// Thread contract: pure functions. Failure: INVALID_ARGUMENT for bytes that no rank sends.

#ifndef BASIN_ACCELERATOR_NODE_LINKS_PACKET_H_
#define BASIN_ACCELERATOR_NODE_LINKS_PACKET_H_

#include <cstddef>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "accelerator/node/core/event.h"

namespace basin::accelerator::node {

// A rank with a lower number is here: connect to it.
struct Knock {
  GroupMember member;

  auto Fields() const { return std::tie(member); }
};

using Packet = std::variant<Knock, Hello, Message>;

// Longer texts in a message are cut, so that every packet that is written can be read.
constexpr size_t kMostPacketBytes = size_t{64} << 10;

std::string WritePacket(const Packet& packet);
absl::StatusOr<Packet> ReadPacket(absl::string_view bytes);

}  // namespace basin::accelerator::node

#endif  // BASIN_ACCELERATOR_NODE_LINKS_PACKET_H_
