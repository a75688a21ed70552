// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether a round's value counts a worker.
//
// Thread contract: a pure function.

#ifndef BASIN_PROTOCOL_COUNTED_H_
#define BASIN_PROTOCOL_COUNTED_H_

#include <algorithm>

#include "protocol/round.h"

namespace basin {

// In this life: an earlier or a later one with the same id is another contributor.
inline bool IsCounted(const RoundValue& value, const WorkerId& worker,
                      const Incarnation& incarnation) {
  const auto by_id = [](const Contributor& contributor, const WorkerId& id) {
    return contributor.worker < id;
  };
  const auto found =
      std::lower_bound(value.contributors.begin(), value.contributors.end(), worker, by_id);
  return found != value.contributors.end() && found->worker == worker &&
         found->incarnation == incarnation;
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_COUNTED_H_
