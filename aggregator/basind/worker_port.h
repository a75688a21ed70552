// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The options of the server for workers that the aggregator and a shard have in common.
//
// Thread contract: one thread. Ownership: guard and refusals outlive the server. Failure: none.

#ifndef BASIN_AGGREGATOR_BASIND_WORKER_PORT_H_
#define BASIN_AGGREGATOR_BASIND_WORKER_PORT_H_

#include <string>

#include "aggregator/basind/descriptors.h"
#include "aggregator/basind/port_guard.h"
#include "aggregator/basind/refusals.h"
#include "aggregator/config/settings.h"
#include "aggregator/transport/server.h"

namespace basin::aggregator {

// REQUIRES: `guard` opens before the server starts.
ServerOptions OptionsOfWorkerPort(const Settings& settings, const std::string& version,
                                  const Descriptors& descriptors, PortGuard& guard,
                                  Refusals& refusals);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_WORKER_PORT_H_
