// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/serve.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <random>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/admin/admin_server.h"
#include "aggregator/basind/descriptors.h"
#include "aggregator/basind/every_second.h"
#include "aggregator/basind/leading.h"
#include "aggregator/basind/memory_use.h"
#include "aggregator/basind/pages.h"
#include "aggregator/basind/port_guard.h"
#include "aggregator/basind/process.h"
#include "aggregator/basind/refusals.h"
#include "aggregator/basind/signals.h"
#include "aggregator/basind/worker_port.h"
#include "aggregator/core/term.h"
#include "aggregator/engine/choose_device.h"
#include "aggregator/http/http_server.h"
#include "aggregator/state/disk_state_file.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/log.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/telemetry/reporter.h"
#include "aggregator/telemetry/stacks.h"
#include "aggregator/text/address.h"
#include "aggregator/text/units.h"
#include "aggregator/transport/grpc_log.h"
#include "aggregator/transport/server.h"
#include "kernels/cpu/cpu_reducer.h"
#include "proto/wire/protobuf_log.h"
#include "runtime/clock.h"

namespace basin::aggregator {
namespace {

// A few MiB. A large job that starts has some hundred events of one level, and the largest group
// gives way first (aggregator/telemetry/events.h).
constexpr size_t kRememberedEvents = 4096;

// The stacks of all threads are logged once in this time.
constexpr absl::Duration kStacksEvery = absl::Minutes(1);

// Opens the state file and loads the state of an earlier process. A file that is damaged or cannot
// be read is reported and ignored.
std::unique_ptr<DiskStateFile> OpenStateFile(const Settings& settings, StateLock lock, Log& log,
                                             Metrics& metrics, Config& core) {
  Term saved = lock.written();
  std::unique_ptr<DiskStateFile> file;
  if (core.state_file) {
    file = std::make_unique<DiskStateFile>(
        settings.state_path, std::move(lock), core.max_jobs, [&log](const absl::Status& status) {
          if (status.ok()) {
            Report(log, LogLevel::kInfo, "state_file_works",
                   "The state file can be written again.");
          } else {
            Report(
                log, LogLevel::kError, "state_file_broken",
                absl::StrCat(
                    status.message(),
                    ". Training continues; a restarted aggregator will ask the workers instead."));
          }
        });
    absl::StatusOr<WrittenState> state = file->Load();
    if (state.ok()) {
      saved = std::max(saved, state->term);
      core.saved = std::move(state->jobs);
    } else {
      Report(log, LogLevel::kError, "state_file_damaged", std::string(state.status().message()));
    }
  }
  std::random_device random;
  core.term_random = random();
  core.term = FirstTerm(absl::Now(), saved, core.term_random);
  // The log has it already.
  if (file != nullptr && !file->Begin(core.term).ok()) metrics.CountStateFileFailure();
  return file;
}

// Other machines could not use the socket anyway.
bool UsesLocalSocket(const Settings& settings) {
  if (settings.local_socket != kAutomatic) return !settings.local_socket.empty();
  const absl::StatusOr<Address> address = ParseAddress(settings.grpc_address);
  return address.ok() && IsLoopback(*address);
}

// The parts in the order in which they depend on each other; they end the other way round.
class Service {
 public:
  Service(const Settings& settings, std::string version, StateLock state_lock,
          std::unique_ptr<kernels::Reducer> reducer, ReduceChoice choice)
      : descriptors_(RaiseDescriptors()),
        settings_(settings),
        version_(std::move(version)),
        log_(settings.log_level, WriteToStandardOutput),
        // Lines of protobuf about messages of peers, once a minute for all of them.
        protobuf_log_([this](const std::string& text) {
          refusals_.OnceAMinute("protobuf", "protobuf", text);
        }),
        metrics_(version_),
        events_(kRememberedEvents),
        reporter_(log_, metrics_, events_),
        state_file_(OpenStateFile(settings, std::move(state_lock), log_, metrics_, settings_.core)),
        reducer_(std::move(reducer)),
        reduce_device_(choice.Describe(*reducer_)),
        devices_(std::move(choice.devices)),
        engine_(OptionsOfEngine(), clock_, *reducer_, reporter_, state_file_.get(), devices_.get()),
        server_(Options()) {
    if (!choice.why.empty()) Report(log_, LogLevel::kInfo, "reduce_device", choice.why);
  }

  absl::StatusOr<Endpoints> Start() {
    Endpoints endpoints;
    if (absl::Status opened = guard_.Open(); !opened.ok()) return opened;
    if (!settings_.standby.authority.empty()) {
      absl::StatusOr<std::unique_ptr<Leading>> leading =
          Leading::Open(settings_, boot_clock_, gate_, engine_, server_,
                        [this](LogLevel level, const char* event, const std::string& reason) {
                          Report(log_, level, event, reason);
                        });
      if (!leading.ok()) return leading.status();
      leading_ = *std::move(leading);
      engine_.DecideWhile(gate_);
    }
    const absl::StatusOr<int> port = server_.Start(engine_);
    if (!port.ok()) return port.status();
    endpoints.grpc = WithPort(settings_.grpc_address, *port);
    if (!settings_.admin_address.empty()) {
      if (absl::Status started = StartAdmin(endpoints); !started.ok()) return started;
    }
    if (!settings_.http_address.empty()) {
      if (absl::Status started = StartHttp(endpoints); !started.ok()) return started;
    }
    return endpoints;
  }

  void BeReady(const Endpoints& endpoints) {
    ready_ = true;
    LogLine line;
    line.event = "serving";
    line.reason = absl::StrCat(
        "basind ", version_, " serves workers on ", endpoints.grpc, ", operators on ",
        endpoints.admin.empty() ? "none" : endpoints.admin, ", probes and metrics on ",
        endpoints.http.empty() ? "none" : endpoints.http, "; term ", settings_.core.term,
        ", memory ", ShowBytes(settings_.core.memory_bytes), "; ", Describe(descriptors_), ".");
    line.addresses["grpc"] = endpoints.grpc;
    if (!endpoints.admin.empty()) line.addresses["admin"] = endpoints.admin;
    if (!endpoints.http.empty()) line.addresses["http"] = endpoints.http;
    log_.Write(line);
    if (leading_ != nullptr) leading_->Start(endpoints.grpc);
    PrepareStacks();
    watchdog_ = std::make_unique<EverySecond>("basin-watchdog", [this] { WatchLoop(); });
    guard_.Watch();
  }

  void Drain(int signal) {
    ready_ = false;
    guard_.StopWatching();
    Report(log_, LogLevel::kInfo, "ending",
           absl::StrCat(signal == SIGINT ? "SIGINT" : "SIGTERM", ": open rounds have up to ",
                        ShowDuration(settings_.core.drain_grace),
                        " to end; a second signal exits at once."));
    // With an authority, sessions end when another aggregator leads, so that workers find it.
    server_.EndRounds(/*keeps_sessions=*/leading_ != nullptr);
    if (leading_ != nullptr) leading_->Stop();
    server_.Drain();
    watchdog_.reset();
    if (admin_ != nullptr) admin_->Stop();
    server_.Stop();
    Report(log_, LogLevel::kInfo, "ended", "All sessions have ended.");
  }

 private:
  EngineOptions OptionsOfEngine() {
    EngineOptions options;
    options.core = settings_.core;
    options.reduce_threads = settings_.reduce_threads;
    options.idle_buffer_bytes = settings_.idle_buffer_bytes;
    // A quarter of the budget, besides it.
    if (UsesLocalSocket(settings_)) {
      options.shared_result_bytes = settings_.core.memory_bytes / 4;
    }
    options.most_arenas = descriptors_.arenas();
    return options;
  }

  ServerOptions Options() {
    ServerOptions options =
        OptionsOfWorkerPort(settings_, version_, descriptors_, guard_, refusals_);
    options.local = UsesLocalSocket(settings_);
    options.local_bytes = settings_.core.memory_bytes;
    if (settings_.local_socket != kAutomatic) options.local_socket = settings_.local_socket;
    if (!settings_.standby.authority.empty()) options.refusal = NobodyLeadsYet();
    options.on_local_refused = [this](const std::string& what) {
      refusals_.OnceAMinute("local_socket_refused", "local_socket_refused", what);
    };
    options.on_local_failed = [this](const std::string& why) {
      Report(log_, LogLevel::kWarning, "local_socket_failed", why);
    };
    if (devices_ != nullptr && devices_->CanOpen()) options.devices = devices_.get();
    options.on_device_refused = [this](const std::string& why) {
      refusals_.OnceAMinute("device_memory_refused", "device_memory_refused",
                            absl::StrCat("The memory of a worker's device is not read: ", why,
                                         ". Its gradients come through memory of the host."));
    };
    options.on_descriptors = [this](bool waits) { ReportDescriptors(waits); };
    return options;
  }

  // Logs what all threads do when the event loop hangs. A process that was stopped as a whole needs
  // a moment to catch up, so the second look counts.
  void WatchLoop() {
    const absl::Duration delay = ProbeLoop(engine_);
    const int looks = delay > settings_.live_within ? loop_hangs_ + 1 : 0;
    const int before = std::exchange(loop_hangs_, looks);
    const absl::Time now = clock_.Now();
    if (looks == 2 && now - stacks_shown_ > kStacksEvery) {
      stacks_shown_ = now;
      Report(
          log_, LogLevel::kError, "loop_stuck",
          absl::StrCat("The event loop has not answered for ", ShowDuration(delay),
                       ", so /livez fails. The next lines are what each thread does; send them to "
                       "the developers, with the version."));
      ShowStacks(
          [this](const std::string& stack) { Report(log_, LogLevel::kError, "stack", stack); });
    }
    if (looks == 0 && before >= 2) {
      Report(log_, LogLevel::kWarning, "loop_works", "The event loop answers again.");
    }
  }

  void ReportDescriptors(bool waits) {
    Note note;
    note.kind = waits ? NoteKind::kDescriptorsShort : NoteKind::kDescriptorsFree;
    note.text =
        waits ? absl::StrCat(
                    "No file descriptor is left for another connection of a worker: there are ",
                    Describe(descriptors_),
                    ". New connections wait until others end; training continues. Raise the hard "
                    "limit (ulimit -Hn, LimitNOFILE in a systemd unit), or find the peer that "
                    "opens so many.")
              : "File descriptors for connections of workers are available again.";
    Report(log_, LevelOf(note.kind), NoteKindName(note.kind), note.text);
    events_.Add(note, clock_.Now());
  }

  AdminOptions Admin() {
    AdminOptions options;
    options.address = settings_.admin_address;
    options.tls = guard_.grpc_certificates();
    options.gatekeeper = guard_.gatekeeper();
    options.report = [this](const std::string& address, const std::string& kind,
                            const std::string& what) { refusals_.OfPeer(address, kind, what); };
    options.on_change = [this](const std::string& job, const std::string& what) {
      LogLine line;
      line.level = LogLevel::kWarning;
      line.event = "operator_change";
      line.job = job;
      line.reason = what;
      log_.Write(line);
    };
    options.kept_descriptors = descriptors_.kept_for_probes();
    options.handshake_timeout = settings_.grpc.handshake_timeout;
    options.version = version_;
    options.reduce_device = reduce_device_;
    options.end = RequestEnd;
    if (leading_ != nullptr) {
      options.step_down = [this] { return leading_->StepDown(); };
      options.leader = [this] {
        return LeaderInWords{leading_->view().leads, leading_->InWords()};
      };
    }
    options.memory_use = [this](const LoopMemory& loop) {
      return MemoryUseOf(loop, engine_, server_, events_);
    };
    return options;
  }

  absl::Status StartAdmin(Endpoints& endpoints) {
    absl::StatusOr<std::unique_ptr<AdminServer>> admin =
        AdminServer::Start(Admin(), engine_, events_);
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
    endpoints.admin = WithPort(settings_.admin_address, admin_->port());
    return absl::OkStatus();
  }

  absl::Status WhyNotReady() const {
    return ready_ && leading_ != nullptr ? leading_->Ready() : WhyNotServing();
  }
  absl::Status WhyNoStandby() const {
    return ready_ && leading_ != nullptr ? leading_->ReadyToTakeOver() : WhyNotServing();
  }
  absl::Status WhyNotServing() const {
    if (ready_) return absl::OkStatus();
    return absl::UnavailableError("Starting or stopping: workers are not served.");
  }

  // Without an authority, an aggregator always leads.
  std::vector<Total> LeaderTotals() const {
    return leading_ == nullptr ? std::vector<Total>() : leading_->Totals();
  }

  absl::Status StartHttp(Endpoints& endpoints) {
    HttpOptions options;
    options.address = *ParseAddress(settings_.http_address);
    options.counters = &http_counters_;
    options.tls = guard_.http_tls();
    options.report = [this](const std::string& address, const std::string& what) {
      refusals_.OfPeer(address, "", what);
    };
    const PageSources sources{engine_,
                              events_,
                              metrics_,
                              server_,
                              http_counters_,
                              guard_.refusals(),
                              guard_.certificate_expiry(),
                              admin_.get(),
                              [this] { return WhyNotReady(); },
                              [this] { return WhyNoStandby(); },
                              [this] { return LeaderTotals(); },
                              settings_.live_within,
                              version_};
    absl::StatusOr<std::unique_ptr<HttpServer>> http =
        HttpServer::Start(std::move(options), ProbesOf(sources), PagesOf(sources));
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    endpoints.http = ToString(http_->address());
    return absl::OkStatus();
  }

  const Descriptors descriptors_;
  Settings settings_;
  const std::string version_;
  std::atomic<bool> ready_{false};
  MonotonicClock clock_;
  BootClock boot_clock_;  // For the lead alone.
  Gate gate_{boot_clock_};
  Log log_;
  Refusals refusals_{log_};
  wire::ProtobufLog protobuf_log_;
  Metrics metrics_;
  EventHistory events_;
  Reporter reporter_;
  std::unique_ptr<DiskStateFile> state_file_;
  std::unique_ptr<kernels::Reducer> reducer_;
  const std::string reduce_device_;  // In words.
  std::unique_ptr<accelerator::ReduceDevices> devices_;
  Engine engine_;
  PortGuard guard_{settings_, log_, [this] { server_.EndRevoked(); }};
  GrpcServer server_;
  std::unique_ptr<Leading> leading_;  // Null: it always leads.
  std::unique_ptr<AdminServer> admin_;
  HttpCounters http_counters_;
  std::unique_ptr<HttpServer> http_;

  // For the thread of `watchdog_`.
  int loop_hangs_ = 0;  // Looks in a row at which the loop did not answer.
  absl::Time stacks_shown_ = absl::InfinitePast();
  std::unique_ptr<EverySecond> watchdog_;
};

}  // namespace

absl::Status Serve(const Settings& settings, const std::string& version,
                   const std::function<void(const Endpoints&)>& serving) {
  KeepMemoryOfMessages();
  SilenceGrpcLog();
  StateLock state_lock;
  if (settings.core.state_file) {
    absl::StatusOr<StateLock> taken = StateLock::Take(settings.state_path);
    if (!taken.ok()) return taken.status();
    state_lock = *std::move(taken);
  }
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  absl::StatusOr<ReduceChoice> choice =
      ChooseReduceDevices(settings.reduce_device, settings.reduce_threads,
                          settings.core.memory_bytes, CudaDevices(), *reducer);
  if (!choice.ok()) return choice.status();
  // Jobs share what the devices leave.
  Settings rest = settings;
  rest.core.memory_bytes -= choice->pinned_bytes();
  Service service(rest, version, std::move(state_lock), std::move(reducer), *std::move(choice));
  const absl::StatusOr<Endpoints> endpoints = service.Start();
  if (!endpoints.ok()) return endpoints.status();
  serving(*endpoints);
  service.BeReady(*endpoints);
  const int signal = AwaitSignal();
  EndAtNextSignal();
  service.Drain(signal);
  return absl::OkStatus();
}

}  // namespace basin::aggregator
