// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The running aggregator: everything that a configuration asks for, from its start to the signal
// that ends it.
//
// Thread contract: called from the main thread, which it keeps. Failure: a status that names the
// part that could not be started; nothing runs then.

#ifndef BASIN_AGGREGATOR_BASIND_SERVE_H_
#define BASIN_AGGREGATOR_BASIND_SERVE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "aggregator/config/settings.h"

namespace basin::aggregator {

// Where it listens, with the real ports; empty where it does not.
struct Endpoints {
  std::string grpc;
  std::string admin;
  std::string http;
};

// Serves until SIGTERM or SIGINT, then lets open rounds end. `serving` is called once when workers
// can come. REQUIRES: BlockSignals was called, and no other thread runs.
absl::Status Serve(const Settings& settings, const std::string& version,
                   const std::function<void(const Endpoints&)>& serving);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_SERVE_H_
