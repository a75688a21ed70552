// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A packet that is read is written again to the same content, and within the limits.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "accelerator/node/core/settings.h"
#include "accelerator/node/links/packet.h"

namespace node = basin::accelerator::node;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto packet =
      node::ReadPacket(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!packet.ok()) return 0;
  // A text may have been shortened once.
  const auto again = node::ReadPacket(node::WritePacket(*packet));
  if (!again.ok()) std::abort();
  const auto third = node::ReadPacket(node::WritePacket(*again));
  if (!third.ok() || !(*third == *again)) std::abort();
  if (const auto* const hello = std::get_if<node::Hello>(&*packet)) {
    if (hello->member.rank < 0 || hello->member.rank >= node::kMostRanks) std::abort();
  }
  return 0;
}
