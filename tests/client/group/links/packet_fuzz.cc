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
  // A text may have been shortened once.
  const auto again = group::ReadPacket(group::WritePacket(*packet));
  if (!again.ok()) std::abort();
  const auto third = group::ReadPacket(group::WritePacket(*again));
  if (!third.ok() || !(*third == *again)) std::abort();
  if (const auto* const hello = std::get_if<group::Hello>(&*packet)) {
    if (hello->member.rank < 0 || hello->member.rank >= group::kMostRanks) std::abort();
  }
  return 0;
}
