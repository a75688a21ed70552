// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The versions that both ends of a session must share.

#ifndef BASIN_PROTOCOL_VERSION_H_
#define BASIN_PROTOCOL_VERSION_H_

#include <cstdint>

namespace basin {

inline constexpr uint32_t kProtocolVersion = 1;

// The version of the arithmetic, which determines the bits of a result.
inline constexpr uint32_t kContractVersion = 1;

// Features of basin/v1/types.proto that this version has: segments in the memory of a device,
// frames of several tensors, several messages and frames in one, workers that stand for several
// trainers, payloads in several places of shared memory, checksums of the messages of a session,
// leases of samples, steps of a global batch, names of calls that are let go, and chunks that are
// placed on several shards.
inline constexpr uint64_t kFeatureDeviceMemory = uint64_t{1} << 2;
inline constexpr uint64_t kFeaturePlacement = uint64_t{1} << 5;
inline constexpr uint64_t kFeatureRuns = uint64_t{1} << 9;
inline constexpr uint64_t kFeatureBatches = uint64_t{1} << 10;
inline constexpr uint64_t kFeatureRanks = uint64_t{1} << 11;
inline constexpr uint64_t kFeaturePlaces = uint64_t{1} << 12;
inline constexpr uint64_t kFeatureChecksums = uint64_t{1} << 13;
inline constexpr uint64_t kFeatureSamples = uint64_t{1} << 14;
inline constexpr uint64_t kFeatureGlobalBatch = uint64_t{1} << 15;
inline constexpr uint64_t kFeatureLetGo = uint64_t{1} << 16;

}  // namespace basin

#endif  // BASIN_PROTOCOL_VERSION_H_
