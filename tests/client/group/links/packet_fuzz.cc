// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A packet that is read is written again to the same content, and within the limits.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "client/group/core/settings.h"
#include "client/group/links/packet.h"

namespace group = basin::client::group;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto packet =
      group::ReadPacket(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!packet.ok()) return 0;
  const std::string written = group::WritePacket(*packet);
  const auto again = group::ReadPacket(written);
  if (!again.ok() || group::WritePacket(*again) != written) std::abort();
  if (const auto* const hello = std::get_if<group::Hello>(&*packet)) {
    if (hello->member.rank < 0 || hello->member.rank >= group::kMostRanks) std::abort();
  }
  return 0;
}
