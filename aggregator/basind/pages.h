// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The pages of the HTTP port.
//
//   /metrics   for Prometheus
//   /statusz   for people
//   /livez     200 while the event loop works; not "rounds progress", or a slow trainer would
//              restart the aggregator
//   /readyz    200 while workers are served: not before the aggregator leads, and not when it
//              begins to end
//   /standbyz  the same, and 200 also while another aggregator leads and this one can take over
//
// Thread contract: the pages are called from any thread.

#ifndef BASIN_AGGREGATOR_BASIND_PAGES_H_
#define BASIN_AGGREGATOR_BASIND_PAGES_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/admin/admin_server.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/engine/engine.h"
#include "aggregator/http/http_server.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/transport/server.h"

namespace basin::aggregator {

// The sources of the pages. REQUIRES: all of them outlive the server.
struct PageSources {
  Engine& engine;
  const EventHistory& events;
  const Metrics& metrics;
  const GrpcServer& server;
  const HttpCounters& http;
  const Gatekeeper& gatekeeper;
  const std::atomic<int64_t>& certificate_expiry;  // Unix seconds; 0: without TLS.
  const AdminServer* admin;                        // Null: operators are not served.
  std::function<absl::Status()> ready;             // Why workers are not served, as a sentence.
  std::function<absl::Status()> standby;           // The same, and why it cannot take over.
  std::function<std::vector<Total>()> more_totals;
  absl::Duration live_within;
  const std::string& version;
};

// Those of the port for workers alone.
std::vector<Total> TotalsOfTransport(const TransportCounters& counters);

// How long the event loop has not answered. A loop that hangs with nothing to do shows at a later
// call, because each gives it something to do.
absl::Duration ProbeLoop(Engine& engine);

// That of /livez: whether the event loop, which has not answered for `delay`, is late.
HttpPage LivePage(absl::Duration delay, absl::Duration within);
// That of /readyz.
HttpPage ReadyPage(const absl::Status& ready);

HttpServer::Pages ProbesOf(const PageSources& sources);
HttpServer::Pages PagesOf(const PageSources& sources);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_PAGES_H_
