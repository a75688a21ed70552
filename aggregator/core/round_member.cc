// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_member.h"

#include <algorithm>

namespace basin::aggregator {

void Reception::Owe(uint32_t chunks, absl::Time now) {
  if (owed_ == 0) {
    StartClock(now);
    behind_ = chunks;
  }
  owed_ += chunks;
}

void Reception::OweLess(uint32_t chunks) {
  owed_ -= std::min(owed_, chunks);
  behind_ = std::min(behind_, owed_);
}

bool Reception::Take(uint32_t flat, absl::Time now, bool collects) {
  if (!acked_.Set(flat)) return false;
  progress_ = now;
  if (owed_ > 0) --owed_;
  if (behind_ > 0 && --behind_ == 0 && collects) {
    behind_ = owed_;
    behind_since_ = now;
  }
  return true;
}

void Reception::Fetched(uint32_t most, absl::Time now) {
  if (fetched_ >= most) return;
  ++fetched_;
  progress_ = now;
}

}  // namespace basin::aggregator
