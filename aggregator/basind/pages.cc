// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/pages.h"

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/basind/memory_use.h"
#include "aggregator/statusz/statusz.h"
#include "aggregator/telemetry/ask.h"
#include "aggregator/telemetry/snapshot.h"
#include "aggregator/text/units.h"

namespace basin::aggregator {
namespace {

// Shorter than a scraper's patience, which is 10 s.
constexpr std::chrono::seconds kSnapshotTimeout{2};

// The sum over the ports for workers and operators.
uint64_t AtBoth(const PageSources& sources, Counter TransportCounters::*counter) {
  return sources.server.counters().*counter +
         (sources.admin == nullptr ? 0 : uint64_t{sources.admin->counters().*counter});
}

std::vector<Total> TotalsOf(const PageSources& sources) {
  const TransportCounters& counters = sources.server.counters();
  std::vector<Total> totals = TotalsOfTransport(counters);
  for (const Total& total : std::initializer_list<Total>{
           {"basin_foreign_connections_total",
            "Connections that did not begin with gRPC, or with TLS where tls.cert is set.",
            AtBoth(sources, &TransportCounters::foreign_connections)},
           {"basin_tls_failures_total", "Connections with TLS that ended before their first call.",
            AtBoth(sources, &TransportCounters::tls_failures)},
           {"basin_floods_total",
            "Connections that were closed because they sent too much before their first valid "
            "message, "
            "or because their address had too many that had sent none.",
            AtBoth(sources, &TransportCounters::floods)},
           {"basin_accept_failures_total",
            "Times that no file descriptor was left for another connection.",
            AtBoth(sources, &TransportCounters::accept_failures) + sources.http.accept_failures},
           {"basin_http_tls_failures_total",
            "Connections to http.listen whose TLS handshake failed.", sources.http.tls_failures},
           {"basin_http_uncertified_requests_total",
            "Requests to http.listen without the client certificate that http.tls_client_ca "
            "requires.",
            sources.http.uncertified},
       }) {
    totals.push_back(total);
  }
  totals.push_back({"basin_layout_messages_bytes",
                    "Descriptions of large layouts that some worker has not read yet.",
                    sources.server.layout_bytes(), "", Total::Kind::kGauge});
  totals.push_back({"basin_shared_device_bytes",
                    "Memory of workers' devices in which gradients are read.",
                    sources.server.shared_device_bytes(), "", Total::Kind::kGauge});
  for (int i = 1; i < kDecisions; ++i) {
    const auto reason = static_cast<Decision>(i);
    totals.push_back({"basin_auth_refusals_total", "Calls that the grants in auth.file refused.",
                      sources.gatekeeper.refused(reason), DecisionName(reason)});
  }
  for (const Total& total : sources.more_totals()) totals.push_back(total);
  if (const int64_t expiry = sources.certificate_expiry; expiry != 0) {
    totals.push_back(
        {"basin_certificate_expiry_timestamp_seconds",
         "When the certificate of grpc.listen, admin.listen or http.listen expires, or the last "
         "authority of their clients.",
         static_cast<uint64_t>(expiry), "", Total::Kind::kGauge});
  }
  return totals;
}

}  // namespace

HttpPage LivePage(absl::Duration delay, absl::Duration within) {
  if (delay <= within) return {200, "text/plain; charset=utf-8", "ok\n"};
  return {503, "text/plain; charset=utf-8",
          absl::StrCat("The event loop has not answered for ", ShowDuration(delay), ".\n")};
}

HttpPage ReadyPage(const absl::Status& ready) {
  if (ready.ok()) return {200, "text/plain; charset=utf-8", "ok\n"};
  return {503, "text/plain; charset=utf-8", absl::StrCat(ready.message(), "\n")};
}

std::vector<Total> TotalsOfTransport(const TransportCounters& counters) {
  std::vector<Total> totals = {
      {"basin_received_messages_total", "Messages received over gRPC.", counters.messages_received},
      {"basin_received_bytes_total", "Bytes of all received messages.", counters.bytes_received},
      {"basin_sent_messages_total", "Messages sent over gRPC.", counters.messages_sent},
      {"basin_sent_bytes_total", "Bytes of all sent messages.", counters.bytes_sent},
      {"basin_malformed_messages_total", "Session messages that were malformed.",
       counters.malformed_messages},
      {"basin_malformed_frames_total", "Data frames that were malformed.",
       counters.malformed_frames},
      {"basin_damaged_frames_total",
       "Data frames with a wrong checksum or sequence number, and session messages with a wrong or "
       "missing checksum.",
       counters.damaged_frames},
      {"basin_silent_calls_total", "Streams whose first message did not arrive in time.",
       counters.silent_calls},
      {"basin_unknown_tokens_total", "Data streams whose session does not exist.",
       counters.unknown_tokens},
      {"basin_local_sessions_total", "Sessions of workers that shared memory with the aggregator.",
       counters.local_sessions},
      {"basin_local_frames_total", "Data frames of workers whose payload was in shared memory.",
       counters.local_frames},
      {"basin_device_frames_total",
       "Data frames of workers whose payload was in shared memory of a device.",
       counters.device_frames},
      {"basin_local_results_total",
       "Result frames to workers whose payload was in shared memory, once per worker.",
       counters.local_results},
      {"basin_local_refusals_total",
       "Connections of the local socket that presented no valid token, or broke its rules.",
       counters.local_refused},
      {"basin_slow_readers_total", "Streams that were ended because their peer did not read.",
       counters.slow_readers},
  };
  totals.push_back({"basin_outbox_bytes",
                    "Messages that wait for workers to read them, as if each had its own copy.",
                    counters.outbox_bytes, "", Total::Kind::kGauge});
  totals.push_back({"basin_inbox_bytes", "Messages of workers that wait to be handled.",
                    counters.inbox_bytes + counters.inbox_frame_bytes, "", Total::Kind::kGauge});
  return totals;
}

absl::Duration ProbeLoop(Engine& engine) {
  engine.Inspect([](const Runner&, absl::Time) {});
  return engine.InboxDelay();
}

HttpServer::Pages ProbesOf(const PageSources& sources) {
  HttpServer::Pages probes;
  probes["/livez"] = [sources] { return LivePage(ProbeLoop(sources.engine), sources.live_within); };
  probes["/readyz"] = [sources] { return ReadyPage(sources.ready()); };
  probes["/standbyz"] = [sources] { return ReadyPage(sources.standby()); };
  return probes;
}

HttpServer::Pages PagesOf(const PageSources& sources) {
  HttpServer::Pages pages;
  pages["/metrics"] = [sources] {
    // Nothing when the loop hangs, which is a metric too.
    std::optional<Snapshot> snapshot =
        Ask<Snapshot>(sources.engine, kSnapshotTimeout,
                      [](const Runner& runner, absl::Time now) { return LookAt(runner, now); });
    if (snapshot.has_value()) {
      snapshot->memory =
          MemoryUseOf(snapshot->loop_memory, sources.engine, sources.server, sources.events);
    }
    return HttpPage{200, "text/plain; version=0.0.4; charset=utf-8",
                    sources.metrics.Text(snapshot, sources.engine.InboxDelay(), TotalsOf(sources))};
  };
  pages["/statusz"] =
      [statusz = std::make_shared<Statusz>(sources.engine, sources.events, sources.version)] {
        const Statusz::Page& page = statusz->Look();
        return HttpPage{page.ok ? 200 : 503, "text/html; charset=utf-8", page.html};
      };
  return pages;
}

}  // namespace basin::aggregator
