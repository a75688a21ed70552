// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Translation of values that both directions of a session share. Like types.h.
//
// Internal to the wire layer.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_SESSION_TYPES_H_
#define BASIN_PROTO_WIRE_SESSION_TYPES_H_

#include "basin/v1/session.pb.h"
#include "proto/wire/checker.h"
#include "proto/wire/types.h"
#include "protocol/messages.h"

namespace basin::wire {

BASIN_WIRE_ENUM(Role, 1);
BASIN_WIRE_ENUM(RoundPhase, 1);
BASIN_WIRE_ENUM(LeaseOutcome, 1);

void Encode(const JobSettings& in, v1::JobSettings* out);
JobSettings Decode(const v1::JobSettings& in, Checker& checker);

// In both directions.
void Encode(const LetGo& in, v1::LetGo* out);
LetGo Decode(const v1::LetGo& in, Checker& checker);

void Encode(const LaneLayout& in, v1::LaneLayout* out);
void Encode(const Welcome& in, v1::Welcome* out);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_TYPES_H_
