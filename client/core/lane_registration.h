// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The tensors of a lane: the trainer registers them, and the aggregator gives them indexes. A
// tensor that is refused or gets its index changes the round in flight, too.

#ifndef BASIN_CLIENT_CORE_LANE_REGISTRATION_H_
#define BASIN_CLIENT_CORE_LANE_REGISTRATION_H_

#include <string>
#include <vector>

#include "client/core/lane.h"

namespace basin::client {

// An error that is not kOk refuses the call, and nothing has changed.
Error WhyNotRegister(const Lane& lane, const Config& config, LaneKind kind,
                     const std::vector<TensorSpec>& tensors);
void Register(Lane& lane, const Scope& scope, const std::vector<TensorSpec>& tensors);
// A new session has opened.
void SendRegister(const Lane& lane, const Scope& scope);
// The aggregator has expired the lane: names it again, once for each round.
void RegisterAgain(Lane& lane, const Scope& scope);
Finding OnLayout(Lane& lane, const Scope& scope, const LaneLayout& layout);
// The aggregator refuses to register the tensor; "": every one that has no index.
void OnRegistrationRefused(Lane& lane, const Scope& scope, const std::string& tensor,
                           const Error& error);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_REGISTRATION_H_
