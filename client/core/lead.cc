// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lead.h"

#include <algorithm>

namespace basin::client {
namespace {

// A result comes later than the acknowledgement of its frame by the frames of all workers, which
// the shard's link carries one after the other, in both directions.
constexpr uint64_t kWindows = 3;
// How much longer than these windows take on the link no result may come.
constexpr int kPatience = 2;
// Threads that wait for a processor are no reason to give up.
constexpr absl::Duration kLeast = absl::Milliseconds(100);
// A link that stood still for a while looks slow until the next frames are acknowledged.
constexpr absl::Duration kMost = absl::Seconds(2);

}  // namespace

void Lead::Sent(uint64_t bytes, absl::Time now) {
  if (bytes_ == 0) since_ = now;
  bytes_ += bytes;
}

void Lead::Returned(uint64_t bytes, absl::Time now) {
  if (bytes == 0) return;
  bytes_ -= bytes;
  since_ = now;
}

absl::Time Lead::MaySendAt(uint64_t bytes, const Link& link, uint64_t window, uint32_t most) const {
  if (bytes_ == 0 || link.rate() == 0) return absl::InfinitePast();
  const uint64_t limit = std::min(kWindows * link.Window(most), window);
  if (bytes_ + bytes <= limit) return absl::InfinitePast();
  const absl::Duration taken = absl::Seconds(static_cast<double>(limit) / link.rate());
  return since_ + std::clamp(kPatience * taken, kLeast, kMost);
}

}  // namespace basin::client
