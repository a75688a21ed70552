// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/room.h"

#include <map>

namespace basin {

ConnectionRoom RoomFor(std::string_view source, const std::vector<HeldConnection>& held,
                       size_t most, size_t most_of_an_address) {
  std::map<std::string_view, size_t> counts;
  for (const HeldConnection& each : held) ++counts[each.source];
  const bool crowded = counts[source] >= most_of_an_address;
  if (!crowded && held.size() < most) return {};
  ConnectionRoom room;
  size_t fullest = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    const size_t count = counts[held[i].source];
    if (!held[i].may_go || count <= fullest || (crowded && held[i].source != source)) continue;
    fullest = count;
    room.in_place = i;
  }
  room.comes = room.in_place.has_value();
  return room;
}

}  // namespace basin
