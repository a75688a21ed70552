// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The shuffled order of an epoch, for trainers that have none of their own: a permutation that each
// worker computes position by position, without memory and without a message.
//
// Thread contract: a pure function.

#ifndef BASIN_CLIENT_CORE_SHUFFLE_H_
#define BASIN_CLIENT_CORE_SHUFFLE_H_

#include <cstdint>

#include "protocol/samples.h"

namespace basin::client {

// The index of the sample at this position: for each epoch a permutation of 0 to samples - 1, whose
// seed is `epoch.order`. basin.h promises its arithmetic, so it never changes.
// REQUIRES: position < epoch.samples.
uint64_t Shuffled(const SampleEpoch& epoch, uint64_t position);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_SHUFFLE_H_
