// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "aggregator/config/units.h"
#include "proto/limits/limits.h"

namespace basin::aggregator {
namespace {

// Longer than any training job waits for anything.
constexpr absl::Duration kLongest = absl::Hours(24 * 7);

// Below this the timers of a busy machine are late more often than the peers.
constexpr absl::Duration kShortest = absl::Milliseconds(10);

struct Section {
  std::string_view name;
  std::string_view help;
};

constexpr Section kSections[] = {
    {"grpc", "Where workers connect, and how the connections behave."},
    {"admin", "Where `basinctl` connects."},
    {"http", "Where probes and Prometheus connect."},
    {"worker", "When a worker that cannot be heard counts as lost."},
    {"round", "How long rounds wait, and for whom."},
    {"job", "How long jobs wait."},
    {"recovery", "How the aggregator goes on after its own restart."},
    {"drain", "How the aggregator ends."},
    {"state", "What survives the aggregator."},
    {"memory", "How the memory is shared out."},
    {"limits", "How much there may be of everything."},
    {"reduce", "Who computes."},
    {"health", "When the aggregator calls itself unwell."},
    {"log", "What is written to standard output."},
};

// ---- How a row reaches its field.

Option Duration(std::string key, absl::Duration& (*at)(Settings&), std::string fallback,
                absl::Duration least, absl::Duration most, std::string help,
                bool may_be_none = false) {
  DurationType type;
  type.least = least;
  type.most = most;
  type.may_be_none = may_be_none;
  type.put = [at](Settings& settings, absl::Duration value) { at(settings) = value; };
  type.get = [at](const Settings& settings) {
    Settings copy = settings;
    return at(copy);
  };
  return {std::move(key), std::move(type), std::move(fallback), std::move(help)};
}

struct Range {
  uint64_t least = 0;
  uint64_t most = 0;
  uint64_t multiple = 1;
};

template <typename Number>
Option AnyNumber(bool bytes, std::string key, Number& (*at)(Settings&), std::string fallback,
                 Range range, std::string help, uint64_t (*automatic)(const Machine&)) {
  NumberType type;
  type.bytes = bytes;
  type.least = range.least;
  type.most = range.most;
  type.multiple = range.multiple;
  type.automatic = automatic;
  type.put = [at](Settings& settings, uint64_t value) {
    at(settings) = static_cast<Number>(value);
  };
  type.get = [at](const Settings& settings) -> uint64_t {
    Settings copy = settings;
    return at(copy);
  };
  return {std::move(key), std::move(type), std::move(fallback), std::move(help)};
}

template <typename Number>
Option Bytes(std::string key, Number& (*at)(Settings&), std::string fallback, Range range,
             std::string help, uint64_t (*automatic)(const Machine&) = nullptr) {
  return AnyNumber(true, std::move(key), at, std::move(fallback), range, std::move(help),
                   automatic);
}

Option Count(std::string key, uint32_t& (*at)(Settings&), std::string fallback, Range range,
             std::string help, uint64_t (*automatic)(const Machine&) = nullptr) {
  return AnyNumber(false, std::move(key), at, std::move(fallback), range, std::move(help),
                   automatic);
}

// The names are those of the enum's values from 0 on.
template <typename Enum>
Option Choice(std::string key, Enum& (*at)(Settings&), std::vector<std::string> names,
              std::string fallback, std::string help) {
  ChoiceType type;
  type.names = std::move(names);
  type.put = [at](Settings& settings, size_t index) { at(settings) = static_cast<Enum>(index); };
  type.get = [at](const Settings& settings) {
    Settings copy = settings;
    return static_cast<size_t>(at(copy));
  };
  return {std::move(key), std::move(type), std::move(fallback), std::move(help)};
}

Option Where(std::string key, std::string& (*at)(Settings&), std::string fallback, bool may_be_none,
             std::string help) {
  TextType type;
  type.form = TextType::Form::kAddress;
  type.at = at;
  type.may_be_none = may_be_none;
  return {std::move(key), type, std::move(fallback), std::move(help)};
}

Option Path(std::string key, std::string& (*at)(Settings&), std::string help) {
  TextType type;
  type.form = TextType::Form::kPath;
  type.at = at;
  type.may_be_none = true;
  return {std::move(key), type, "none", std::move(help)};
}

Config& Core(Settings& settings) { return settings.engine.core; }

// ---- What "auto" means.

// gRPC may use twice the budget, so that 40 % leaves a fifth of the memory for everything else.
uint64_t AutomaticBudget(const Machine& machine) {
  if (machine.memory_bytes == 0) return 4 * kGiB;
  return machine.memory_bytes / 5 * 2 / kMiB * kMiB;
}

// The other half of the processors moves bytes.
uint64_t AutomaticThreads(const Machine& machine) { return (machine.cpus + 1) / 2; }

// ---- The rows, by section.

void AddAddresses(std::vector<Option>& table) {
  table.push_back(Where(
      "grpc.listen", [](Settings& s) -> std::string& { return s.grpc_address; }, "127.0.0.1:29600",
      false, "Address for workers. 0.0.0.0:29600 or [::]:29600 serves other machines too."));
  table.push_back(Choice(
      "grpc.insecure", +[](Settings& s) -> bool& { return s.insecure; }, {"false", "true"}, "false",
      "Serve without encryption on addresses that other machines can reach. Whoever reaches them "
      "can then read and change gradients."));
  table.push_back(Duration(
      "grpc.keepalive_time",
      [](Settings& s) -> absl::Duration& { return s.grpc.common.keepalive_time; }, "3s",
      absl::Seconds(1), absl::Hours(1),
      "A connection on which nothing came for so long is asked for a sign of life. Clients must "
      "not ask more than twice as often."));
  table.push_back(Duration(
      "grpc.keepalive_timeout",
      [](Settings& s) -> absl::Duration& { return s.grpc.common.keepalive_timeout; }, "2s",
      absl::Milliseconds(100), absl::Hours(1),
      "A connection that does not answer for so long is closed."));
  table.push_back(Duration(
      "grpc.handshake_timeout",
      [](Settings& s) -> absl::Duration& { return s.grpc.handshake_timeout; }, "10s",
      absl::Milliseconds(100), absl::Minutes(5),
      "A connection that says nothing is dropped after so long."));
  table.push_back(Bytes(
      "grpc.window", +[](Settings& s) -> uint32_t& { return s.grpc.common.window_bytes; }, "4MiB",
      {64 * kKiB, 64 * kMiB},
      "What a peer may send on one stream before it is read. Raise it on networks with a long way "
      "and a high rate; each connection may take that much memory."));
  table.push_back(Count(
      "grpc.streams_per_connection",
      [](Settings& s) -> uint32_t& { return s.grpc.streams_per_connection; }, "16", {1, 1000},
      "Streams that one connection may carry. A worker opens a connection for each of its "
      "streams."));
  table.push_back(Where(
      "admin.listen", [](Settings& s) -> std::string& { return s.admin_address; },
      "127.0.0.1:29602", true, "Address for operators. none: there is no such service."));
  table.push_back(Where(
      "http.listen", [](Settings& s) -> std::string& { return s.http_address; }, "127.0.0.1:29601",
      true, "Address of /metrics, /livez and /readyz. none: there is no such service."));
}

void AddWaits(std::vector<Option>& table) {
  table.push_back(Duration(
      "worker.heartbeat", [](Settings& s) -> absl::Duration& { return Core(s).heartbeat; }, "500ms",
      kShortest, absl::Minutes(1), "How often workers say that they live."));
  table.push_back(Duration(
      "worker.lease", [](Settings& s) -> absl::Duration& { return Core(s).lease; }, "5s",
      absl::Milliseconds(50), kLongest,
      "A worker that says nothing for so long is lost. At least three heartbeats."));
  table.push_back(Duration(
      "worker.closed_lease", [](Settings& s) -> absl::Duration& { return Core(s).closed_lease; },
      "200ms", kShortest, kLongest,
      "The same for a worker all of whose connections its own side closed: its process is most "
      "likely gone. At most worker.lease."));
  table.push_back(Duration(
      "round.late_warning", [](Settings& s) -> absl::Duration& { return Core(s).late_warning; },
      "5s", kShortest, kLongest,
      "After so long the log, the metrics and `basinctl rounds` name whom a round waits for."));
  table.push_back(Choice(
      "round.late_policy", +[](Settings& s) -> LatePolicy& { return Core(s).late_policy; },
      {"wait", "evict"}, "wait",
      "What happens to a worker that lives but is late: rounds wait for it (rank 0 evaluates or "
      "writes a checkpoint), or it is evicted after round.evict_late_after."));
  table.push_back(Duration(
      "round.evict_late_after",
      [](Settings& s) -> absl::Duration& { return Core(s).evict_late_after; }, "none",
      absl::Milliseconds(100), kLongest,
      "How long a round waits for a late worker with round.late_policy evict.", true));
  table.push_back(Choice(
      "round.loss_policy", +[](Settings& s) -> LossPolicy& { return Core(s).loss_policy; },
      {"shrink", "abort"}, "shrink",
      "What happens to a round that loses a worker: it goes on with the others, or it is aborted "
      "and the trainers are told."));
  table.push_back(Duration(
      "round.deadlock_timeout",
      [](Settings& s) -> absl::Duration& { return Core(s).deadlock_timeout; }, "1m",
      absl::Milliseconds(500), kLongest,
      "How long all workers of a job do nothing but wait, each in a round that another one has not "
      "begun, until these rounds are aborted with an error that names them. none: for ever.",
      true));
  table.push_back(Count(
      "round.norm_alarm", [](Settings& s) -> uint32_t& { return Core(s).norm_alarm; }, "6",
      {0, 1000},
      "A worker is named in the log and counted when the norm of its gradient is so many standard "
      "deviations from what is usual in its lane (of the logarithm). 0: never."));
  table.push_back(Duration(
      "job.start_timeout", [](Settings& s) -> absl::Duration& { return Core(s).start_timeout; },
      "5m", absl::Milliseconds(100), kLongest,
      "How long a new job waits for all its workers before it starts with its min_workers."));
  table.push_back(Duration(
      "job.pause_timeout", [](Settings& s) -> absl::Duration& { return Core(s).pause_timeout; },
      "none", absl::Milliseconds(100), kLongest,
      "How long workers wait in a job that has too few of them, until they are told with an error. "
      "The round stays open.",
      true));
  table.push_back(Duration(
      "job.idle_timeout", [](Settings& s) -> absl::Duration& { return Core(s).idle_job_timeout; },
      "10m", absl::Seconds(1), kLongest,
      "A job that nobody was connected to for so long is forgotten."));
  table.push_back(Duration(
      "job.idle_lane_timeout",
      [](Settings& s) -> absl::Duration& { return Core(s).idle_lane_timeout; }, "10m",
      absl::Seconds(1), kLongest,
      "A call lane that nobody used for so long gives its memory back."));
  table.push_back(Duration(
      "recovery.window", [](Settings& s) -> absl::Duration& { return Core(s).recovery_window; },
      "8s", absl::Milliseconds(100), kLongest,
      "How long a restarted aggregator waits for the workers of a job to come back before it "
      "decides with those who have."));
  table.push_back(Choice(
      "recovery.policy", +[](Settings& s) -> RecoveryPolicy& { return Core(s).recovery_policy; },
      {"majority", "any"}, "majority",
      "Who suffices after the window: a majority of the last members, or whoever is back. With "
      "any, two aggregators can both go on, each with its part of the workers."));
  table.push_back(Duration(
      "drain.grace", [](Settings& s) -> absl::Duration& { return Core(s).drain_grace; }, "30s",
      absl::ZeroDuration(), kLongest,
      "After SIGTERM open rounds have so long to end. On Kubernetes, "
      "terminationGracePeriodSeconds must be longer."));
  table.push_back(Path(
      "state.file", [](Settings& s) -> std::string& { return s.state_path; },
      "A file in which the members of each job are written down before they are told. With it a "
      "restarted aggregator knows for whom to wait. none: it asks the workers."));
}

void AddBounds(std::vector<Option>& table) {
  table.push_back(Bytes(
      "memory.budget", +[](Settings& s) -> uint64_t& { return Core(s).memory_bytes; }, "auto",
      {64 * kMiB, 1024 * kTiB},
      "For gradients that wait, results that are on their way and what is known of both. gRPC may "
      "use as much again. auto: 40 % of the memory of the control group or the machine.",
      AutomaticBudget));
  table.push_back(Bytes(
      "memory.frame", +[](Settings& s) -> uint64_t& { return Core(s).frame_bytes; }, "1MiB",
      {kChunkBytes, kMaxPayloadBytes, kChunkBytes},
      "Payload of one message. 1MiB is the fastest on most machines."));
  table.push_back(Bytes(
      "memory.window", +[](Settings& s) -> uint64_t& { return Core(s).window_bytes; }, "16MiB",
      {kChunkBytes, kTiB},
      "What a worker may send ahead of the others on one lane, when there is room. No more than "
      "grpc.window per data stream is on its way at a time, 8MiB for the usual two; what is beyond "
      "lets workers be out of step, and what waits here has left the cache when it is needed."));
  table.push_back(Bytes(
      "memory.result_window", +[](Settings& s) -> uint64_t& { return Core(s).result_window_bytes; },
      "8MiB", {kChunkBytes, kTiB},
      "Results of one lane that not everybody has acknowledged yet: as much as can be on its way "
      "to a worker (grpc.window per data stream, and a worker opens two). Raise both together "
      "where the rate times the round trip is more."));
  table.push_back(Bytes(
      "memory.idle_buffers", +[](Settings& s) -> uint64_t& { return s.engine.idle_buffer_bytes; },
      "256MiB", {0, kTiB}, "Memory of results that is kept for the next ones."));
  table.push_back(Count(
      "limits.jobs", [](Settings& s) -> uint32_t& { return Core(s).max_jobs; }, "64", {1, 10000},
      "Jobs at a time."));
  table.push_back(Count(
      "limits.workers", [](Settings& s) -> uint32_t& { return Core(s).max_workers; }, "10000",
      {1, kMaxWorkers}, "Workers of one job."));
  table.push_back(Count(
      "limits.lanes", [](Settings& s) -> uint32_t& { return Core(s).max_lanes; }, "64",
      {1, kMaxLanes}, "Lanes of one job that are in use."));
  table.push_back(Count(
      "limits.lane_names", [](Settings& s) -> uint32_t& { return Core(s).max_lane_names; }, "1024",
      {1, kMaxLanes}, "Lanes of one job, with those that were idle for long."));
  table.push_back(Count(
      "limits.tensors", [](Settings& s) -> uint32_t& { return Core(s).max_tensors; }, "65536",
      {1, kMaxTensors}, "Tensors of one lane."));
  table.push_back(Bytes(
      "limits.lane_bytes", +[](Settings& s) -> uint64_t& { return Core(s).max_lane_bytes; }, "1TiB",
      {kChunkBytes, 64 * kTiB}, "One copy of the tensors of a lane."));
  table.push_back(Count(
      "limits.values", [](Settings& s) -> uint32_t& { return Core(s).max_values; }, "65536",
      {1, 1000000}, "Broadcast values of one job."));
  table.push_back(Count(
      "reduce.threads", [](Settings& s) -> uint32_t& { return s.engine.reduce_threads; }, "auto",
      {1, 256},
      "Threads that add up gradients. auto: half of the processors that the control group or the "
      "machine gives.",
      AutomaticThreads));
  table.push_back(Duration(
      "health.stall", [](Settings& s) -> absl::Duration& { return Core(s).stall_threshold; },
      "500ms", kShortest, absl::Minutes(1),
      "The aggregator woke so much later than it meant to: it was stopped, and extends every "
      "deadline by what it missed."));
  table.push_back(Duration(
      "health.live_within", [](Settings& s) -> absl::Duration& { return s.live_within; }, "10s",
      absl::Milliseconds(100), absl::Hours(1),
      "/livez fails when an event has waited longer than this for the event loop."));
  table.push_back(Choice(
      "log.level", +[](Settings& s) -> LogLevel& { return s.log_level; },
      {"debug", "info", "warning", "error"}, "info",
      "The least important lines that are written. debug: every round; info: every change of "
      "jobs, workers and members."));
}

}  // namespace

std::vector<Option> OptionTable() {
  std::vector<Option> table;
  AddAddresses(table);
  AddWaits(table);
  AddBounds(table);
  return table;
}

std::string_view SectionOf(std::string_view key) { return key.substr(0, key.find('.')); }

std::string_view SectionHelp(std::string_view section) {
  const auto* found = std::find_if(std::begin(kSections), std::end(kSections),
                                   [&](const Section& row) { return row.name == section; });
  return found == std::end(kSections) ? std::string_view() : found->help;
}

}  // namespace basin::aggregator
