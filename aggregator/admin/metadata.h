// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The metadata of the admin service's answers.
//
// Thread contract: constants.

#ifndef BASIN_AGGREGATOR_ADMIN_METADATA_H_
#define BASIN_AGGREGATOR_ADMIN_METADATA_H_

namespace basin::aggregator {

// In the initial metadata of WatchEvents: the number of the newest event when the call began.
inline constexpr char kLastEventMetadata[] = "basin-last-event";

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_METADATA_H_
