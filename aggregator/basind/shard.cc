// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/shard.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "aggregator/basind/descriptors.h"
#include "aggregator/basind/pages.h"
#include "aggregator/basind/port_guard.h"
#include "aggregator/basind/process.h"
#include "aggregator/basind/refusals.h"
#include "aggregator/basind/signals.h"
#include "aggregator/basind/worker_port.h"
#include "aggregator/engine/choose_device.h"
#include "aggregator/http/http_server.h"
#include "aggregator/shard/coordinator_link.h"
#include "aggregator/shard/shard_engine.h"
#include "aggregator/telemetry/log.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/text/address.h"
#include "aggregator/text/units.h"
#include "aggregator/transport/grpc_log.h"
#include "aggregator/transport/server.h"
#include "kernels/cpu/cpu_reducer.h"
#include "protocol/limits/names.h"
#include "runtime/clock.h"

namespace basin::aggregator {
namespace {

constexpr std::chrono::seconds kLookTimeout{2};

// That of the host in the form of a label, unless one is given.
absl::StatusOr<std::string> NameOf(const ShardSettings& settings) {
  if (!settings.name.empty()) return settings.name;
  std::string name = absl::AsciiStrToLower(HostName());
  if (CheckWorkerId(name).ok()) return name;
  return absl::InvalidArgumentError(absl::StrCat(
      "The name of the host, ", QuoteForError(name),
      ", cannot be that of a shard: at most 63 lower-case letters, digits, - and . are allowed. "
      "Set --name."));
}

// Where workers reach a shard that listens at `listens`.
std::string EndpointOf(const ShardSettings& settings, const std::string& listens) {
  if (!settings.advertise.empty()) return settings.advertise;
  const absl::StatusOr<Address> address = ParseAddress(listens);
  if (!address.ok() || (address->host != "0.0.0.0" && address->host != "::")) return listens;
  return ToString({HostName(), address->port});
}

LinkOptions LinkOptionsOf(const Settings& settings, const std::string& name,
                          const std::string& version) {
  LinkOptions options;
  options.coordinators = absl::StrSplit(settings.shard.coordinators, ',');
  options.tls = settings.shard.tls;
  options.token_file = settings.shard.token_file;
  options.grpc = settings.grpc.common;
  options.hello.name = name;
  options.hello.software = absl::StrCat("basind ", version);
  options.hello.memory = settings.core.memory_bytes;
  return options;
}

class ShardService {
 public:
  ShardService(const Settings& settings, std::string name, std::string version,
               std::unique_ptr<kernels::Reducer> reducer, ReduceChoice choice)
      : descriptors_(RaiseDescriptors()),
        settings_(settings),
        name_(std::move(name)),
        version_(std::move(version)),
        log_(settings.log_level, WriteToStandardOutput),
        metrics_(version_),
        reducer_(std::move(reducer)),
        devices_(std::move(choice.devices)),
        link_(LinkOptionsOf(settings_, name_, version_)),
        engine_(name_, OptionsOfThreads(), clock_, *reducer_, devices_.get(), link_,
                [this](const char* event, bool warning, const std::string& reason) {
                  Report(log_, warning ? LogLevel::kWarning : LogLevel::kInfo, event, reason);
                }),
        server_(OptionsOfWorkerPort(settings_, version_, descriptors_, guard_, refusals_)) {}

  absl::Status Start() {
    if (absl::Status opened = guard_.Open(); !opened.ok()) return opened;
    engine_.Start(server_);
    const absl::StatusOr<int> port = server_.Start(engine_);
    if (!port.ok()) return port.status();
    const std::string listens = WithPort(settings_.grpc_address, *port);
    const std::string endpoint = EndpointOf(settings_.shard, listens);
    std::string http = "none";
    if (!settings_.http_address.empty()) {
      if (absl::Status started = StartHttp(http); !started.ok()) return started;
    }
    LogLine line;
    line.event = "serving";
    line.reason = absl::StrCat("basind ", version_, " is shard ", name_, " of the aggregator at ",
                               settings_.shard.coordinators, "; it serves workers on ", listens,
                               ", which reach it at ", endpoint, ", probes and metrics on ", http,
                               "; ", Describe(descriptors_), ".");
    line.addresses["grpc"] = listens;
    if (http != "none") line.addresses["http"] = http;
    log_.Write(line);
    guard_.Watch();
    link_.Start(engine_, endpoint);
    return absl::OkStatus();
  }

  void Stop(int signal) {
    stopping_ = true;
    guard_.StopWatching();
    Report(log_, LogLevel::kInfo, "ending",
           absl::StrCat(signal == SIGINT ? "SIGINT" : "SIGTERM",
                        ": this shard holds what open rounds have here for up to ",
                        ShowDuration(settings_.core.drain_grace),
                        " (drain.grace), and nothing of later ones; a second signal ends it at "
                        "once."));
    engine_.ExpectEnd();
    const bool drained = link_.Drain(settings_.core.drain_grace);
    End();
    Report(log_, drained ? LogLevel::kInfo : LogLevel::kWarning, "ended",
           drained ? "All data streams have ended."
                   : "The time of the drain is over, and what rounds have here is pushed again to "
                     "the others.");
  }

  // Also after a Start that failed.
  void End() {
    link_.Stop();
    server_.Stop();
    engine_.Stop();
  }

 private:
  ByteThreadsOptions OptionsOfThreads() const {
    ByteThreadsOptions options;
    options.reduce_threads = settings_.reduce_threads;
    options.idle_buffer_bytes = settings_.idle_buffer_bytes;
    return options;
  }

  // What the loop sees; nothing when it hangs.
  std::optional<ShardSnapshot> Look() {
    struct Answer {
      Mutex mutex;
      Condition done;
      std::optional<ShardSnapshot> snapshot ABSL_GUARDED_BY(mutex);
    };
    const auto answer = std::make_shared<Answer>();
    engine_.Inspect([answer](const ShardSnapshot& snapshot) {
      MutexLock lock(answer->mutex);
      answer->snapshot = snapshot;
      answer->done.NotifyAll();
    });
    const auto until = std::chrono::steady_clock::now() + kLookTimeout;
    MutexLock lock(answer->mutex);
    while (!answer->snapshot.has_value() && std::chrono::steady_clock::now() < until) {
      answer->done.WaitUntil(answer->mutex, until);
    }
    return answer->snapshot;
  }

  std::vector<Total> Totals() {
    std::vector<Total> totals = TotalsOfTransport(server_.counters());
    const std::optional<ShardSnapshot> look = Look();
    if (!look.has_value()) return totals;
    const auto gauge = [&totals](const char* name, const char* help, uint64_t value) {
      totals.push_back({name, help, value, "", Total::Kind::kGauge});
    };
    gauge("basin_shard_linked", "Whether the shard is connected with its coordinator.",
          look->linked ? 1 : 0);
    gauge("basin_shard_parked_bytes", "Contributions that wait to be reduced.", look->parked_bytes);
    gauge("basin_shard_result_bytes", "Results that a worker may still need.", look->result_bytes);
    gauge("basin_streams", "Data streams.", look->streams);
    gauge("basin_shard_unanswered_frames", "Frames that wait for the coordinator.",
          look->unanswered_frames);
    totals.push_back({"basin_shard_links_total",
                      "How often the shard was connected with a coordinator.", look->links});
    for (const Total& total : TotalsOfBytes(look->counters)) totals.push_back(total);
    return totals;
  }

  absl::Status StartHttp(std::string& where) {
    HttpOptions options;
    options.address = *ParseAddress(settings_.http_address);
    options.counters = &http_counters_;
    options.tls = guard_.http_tls();
    options.report = [this](const std::string& address, const std::string& what) {
      refusals_.OfPeer(address, "", what);
    };
    HttpServer::Pages probes;
    probes["/livez"] = [this] {
      engine_.Inspect([](const ShardSnapshot&) {});
      return LivePage(engine_.InboxDelay(), settings_.live_within);
    };
    probes["/readyz"] = [this] {
      return ReadyPage(stopping_ ? absl::UnavailableError("The shard is draining.") : link_.view());
    };
    HttpServer::Pages pages;
    pages["/metrics"] = [this] {
      return HttpPage{200, "text/plain; version=0.0.4; charset=utf-8",
                      metrics_.Text(std::nullopt, engine_.InboxDelay(), Totals())};
    };
    absl::StatusOr<std::unique_ptr<HttpServer>> http =
        HttpServer::Start(std::move(options), std::move(probes), std::move(pages));
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    where = ToString(http_->address());
    return absl::OkStatus();
  }

  const Descriptors descriptors_;
  const Settings settings_;
  const std::string name_;
  const std::string version_;
  std::atomic<bool> stopping_{false};
  MonotonicClock clock_;
  Log log_;
  Refusals refusals_{log_};
  Metrics metrics_;
  std::unique_ptr<kernels::Reducer> reducer_;
  std::unique_ptr<accelerator::ReduceDevices> devices_;
  CoordinatorLink link_;
  ShardEngine engine_;
  PortGuard guard_{settings_, log_, [this] { server_.EndRevoked(); }};
  GrpcServer server_;
  HttpCounters http_counters_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace

absl::Status ServeShard(const Settings& settings, const std::string& version) {
  if (settings.shard.coordinators.empty()) {
    return absl::InvalidArgumentError(
        "A shard needs the address of its aggregator: set --coordinator=HOST:PORT to that of "
        "grpc.listen there");
  }
  absl::StatusOr<std::string> name = NameOf(settings.shard);
  if (!name.ok()) return name.status();
  KeepMemoryOfMessages();
  SilenceGrpcLog();
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  absl::StatusOr<ReduceChoice> choice =
      ChooseReduceDevices(settings.reduce_device, settings.reduce_threads,
                          settings.core.memory_bytes, CudaDevices(), *reducer);
  if (!choice.ok()) return choice.status();
  // Jobs share what the devices leave.
  Settings rest = settings;
  rest.core.memory_bytes -= choice->pinned_bytes();
  ShardService service(rest, *std::move(name), version, std::move(reducer), *std::move(choice));
  if (absl::Status started = service.Start(); !started.ok()) {
    service.End();
    return started;
  }
  const int signal = AwaitSignal();
  EndAtNextSignal();
  service.Stop(signal);
  return absl::OkStatus();
}

}  // namespace basin::aggregator
