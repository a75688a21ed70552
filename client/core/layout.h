// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A lane's layout, taken from the messages of an aggregator.
//
// Thread contract: pure functions.

#ifndef BASIN_CLIENT_CORE_LAYOUT_H_
#define BASIN_CLIENT_CORE_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "protocol/layout.h"

namespace basin::client {

// No tensor is larger, so that its chunks can be counted with room to spare.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 44;

// Whether a tensor can be registered: its size is known and within kMaxTensorBytes.
bool HasUsableSize(const TensorSpec& spec);

// Takes entries first, first + 1, ... Those that are known must be the same as before. Returns
// whether they fit; if not, nothing changes.
bool Extend(Layout& layout, uint32_t first, const std::vector<TensorSpec>& tensors, uint32_t limit);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LAYOUT_H_
