// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What both ends of a session must have in common.

#ifndef BASIN_PROTO_VOCABULARY_VERSION_H_
#define BASIN_PROTO_VOCABULARY_VERSION_H_

#include <cstdint>

namespace basin {

inline constexpr uint32_t kProtocolVersion = 1;

// Of the arithmetic: which bits a reduction comes to.
inline constexpr uint32_t kContractVersion = 1;

}  // namespace basin

#endif  // BASIN_PROTO_VOCABULARY_VERSION_H_
