// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "aggregator/text/units.h"
#include "protocol/limits/limits.h"

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
    {"grpc", "The address for workers, and the settings of their connections."},
    {"local", "Shared memory with workers on the same machine."},
    {"tls", "Encryption of the connections of workers and of `basinctl`."},
    {"auth", "Tokens and roles."},
    {"admin", "The address for `basinctl`."},
    {"http", "The address for probes, Prometheus and the status page."},
    {"worker",
     "Heartbeats, when a silent worker counts as lost, and workers that fail again and again."},
    {"round", "Late and lost workers, deadlocks, and unusual gradients."},
    {"job", "Timeouts of jobs."},
    {"recovery", "Recovery after a restart of the aggregator."},
    {"standby", "Several aggregators of which one leads, and another takes over."},
    {"shard", "Only for `basind shard`: a process that holds bytes for an aggregator."},
    {"shards", "What an aggregator does with the shards that connect to it."},
    {"drain", "Shutdown of the aggregator, or of a shard."},
    {"state", "State that survives a restart of the aggregator."},
    {"memory", "The memory budget and its parts."},
    {"limits", "Upper limits."},
    {"reduce", "Threads and devices that add up gradients."},
    {"health", "Thresholds for the health of the aggregator."},
    {"log", "Output on standard output."},
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

Option Device(std::string key, std::string& (*at)(Settings&), std::string help) {
  TextType type;
  type.form = TextType::Form::kReduceDevice;
  type.at = at;
  return {std::move(key), type, "cpu", std::move(help)};
}

Config& Core(Settings& settings) { return settings.core; }

// ---- What "auto" means.

// gRPC may use twice the budget, so that 40 % leaves a fifth of the memory for everything else.
uint64_t AutomaticBudget(const Machine& machine) {
  if (machine.memory_bytes == 0) return 4 * kGiB;
  return machine.memory_bytes / 5 * 2 / kMiB * kMiB;
}

// The other half of the processors moves bytes.
uint64_t AutomaticThreads(const Machine& machine) { return (machine.cpus + 1) / 2; }

// Few large messages cost less than many. Configure lowers it where there is little memory.
uint64_t AutomaticFrame(const Machine&) { return kMaxPayloadBytes; }

// ---- The rows, by section.

void AddAddresses(std::vector<Option>& table) {
  table.push_back(Where(
      "grpc.listen", [](Settings& s) -> std::string& { return s.grpc_address; }, "127.0.0.1:29600",
      false, "Address for workers. 0.0.0.0:29600 or [::]:29600 serves other machines too."));
  table.push_back(Choice(
      "grpc.insecure", +[](Settings& s) -> bool& { return s.insecure; }, {"false", "true"}, "false",
      "Allow addresses that other machines can reach, without encryption. Every machine that "
      "reaches them can read and change gradients."));
  table.push_back(Duration(
      "grpc.keepalive_time",
      [](Settings& s) -> absl::Duration& { return s.grpc.common.keepalive_time; }, "3s",
      absl::Seconds(1), absl::Hours(1),
      "A connection that has received nothing for this time is pinged. Clients must not ping more "
      "than twice as often."));
  table.push_back(Duration(
      "grpc.keepalive_timeout",
      [](Settings& s) -> absl::Duration& { return s.grpc.common.keepalive_timeout; }, "2s",
      absl::Milliseconds(100), absl::Hours(1),
      "A connection that does not answer a ping within this time is closed."));
  table.push_back(Duration(
      "grpc.handshake_timeout",
      [](Settings& s) -> absl::Duration& { return s.grpc.handshake_timeout; }, "10s",
      absl::Milliseconds(100), absl::Minutes(5),
      "A new connection that sends nothing within this time is dropped."));
  table.push_back(Bytes(
      "grpc.window", +[](Settings& s) -> uint32_t& { return s.grpc.common.window_bytes; }, "4MiB",
      {64 * kKiB, 64 * kMiB},
      "The bytes that a peer may send on one stream before they are read. Raise it on networks "
      "with a long round trip and a high rate; each connection can use that much memory."));
  table.push_back(Count(
      "grpc.streams_per_connection",
      [](Settings& s) -> uint32_t& { return s.grpc.streams_per_connection; }, "16", {1, 1000},
      "The largest number of streams on one connection. A worker opens a connection for each of "
      "its streams."));
  table.push_back(Where(
      "admin.listen", [](Settings& s) -> std::string& { return s.admin_address; },
      "127.0.0.1:29602", true, "Address for operators. none: do not serve it."));
  table.push_back(Where(
      "http.listen", [](Settings& s) -> std::string& { return s.http_address; }, "127.0.0.1:29601",
      true,
      "Address of /metrics, /statusz, /livez, /readyz and /standbyz. none: do not serve it."));
  table.push_back(Path(
      "http.tls_cert", [](Settings& s) -> std::string& { return s.http_tls.cert; },
      "PEM file with a certificate for http.listen, then its chain; it may be the file of "
      "tls.cert. "
      "With it, scrapers, probes and browsers must use https. It is read again every second, as "
      "are the other two."));
  table.push_back(Path(
      "http.tls_key", [](Settings& s) -> std::string& { return s.http_tls.key; },
      "PEM file with the private key of http.tls_cert, without a password."));
  table.push_back(Path(
      "http.tls_client_ca", [](Settings& s) -> std::string& { return s.http_tls.client_ca; },
      "PEM file with certificate authorities. With it, /metrics and /statusz are only for clients "
      "with a certificate of one of them. /livez, /readyz and /standbyz need none, because a "
      "kubelet has none."));
}

void AddLocal(std::vector<Option>& table) {
  TextType type;
  type.form = TextType::Form::kLocalSocket;
  type.at = [](Settings& s) -> std::string& { return s.local_socket; };
  type.may_be_none = true;
  table.push_back(
      {"local.listen", type, "auto",
       "Unix socket at which workers on this machine share memory with the aggregator, so that "
       "gradients do not travel through the kernel's network. auto: if grpc.listen is a loopback "
       "address, one in a new directory in TMPDIR or /tmp that only the user of basind can enter; "
       "otherwise none. A path on a shared volume also serves other containers. none: all workers "
       "use the network, as does one that cannot reach the socket. The results that workers share "
       "take up to a quarter of memory.budget besides it. If a GPU reduces (reduce.device), "
       "memory of GPUs is shared as well."});
}

void AddTls(std::vector<Option>& table) {
  table.push_back(Path(
      "tls.cert", [](Settings& s) -> std::string& { return s.tls.cert; },
      "PEM file with the certificate of this server, then its chain. With it, workers and basinctl "
      "must connect with TLS. It is read again every second, so it can be replaced at any time, "
      "as can the other two."));
  table.push_back(Path(
      "tls.key", [](Settings& s) -> std::string& { return s.tls.key; },
      "PEM file with the private key of tls.cert, without a password."));
  table.push_back(Path(
      "tls.client_ca", [](Settings& s) -> std::string& { return s.tls.client_ca; },
      "PEM file with certificate authorities. With it, a client must present a certificate of one "
      "of them (mTLS)."));
}

void AddAuth(std::vector<Option>& table) {
  table.push_back(Path(
      "auth.file", [](Settings& s) -> std::string& { return s.auth_path; },
      "File that grants roles (worker, observer, admin, shard) for jobs to tokens and "
      "certificates; "
      "`basinctl token new` prints a line. With it, every worker and operator needs a grant. It is "
      "read again every second; calls without a grant end then."));
}

void AddWaits(std::vector<Option>& table) {
  table.push_back(Duration(
      "worker.heartbeat", [](Settings& s) -> absl::Duration& { return Core(s).heartbeat; }, "500ms",
      kShortest, absl::Minutes(1), "The interval between the heartbeats of a worker."));
  table.push_back(Duration(
      "worker.lease", [](Settings& s) -> absl::Duration& { return Core(s).lease; }, "5s",
      absl::Milliseconds(50), kLongest,
      "A worker that sends nothing for this time is lost. At least three times worker.heartbeat."));
  table.push_back(Duration(
      "worker.unreachable_lease",
      [](Settings& s) -> absl::Duration& { return Core(s).unreachable_lease; }, "1500ms",
      absl::Milliseconds(50), kLongest,
      "Like worker.lease, for a worker whose machine does not even acknowledge what the kernel "
      "sends: it has no power or no network. A process that is stopped or starved has a kernel "
      "that "
      "acknowledges. Raise this where machines are paused as a whole, or networks fail for longer. "
      "Counts as three times worker.heartbeat if it is less, and as worker.lease if it is more."));
  table.push_back(Duration(
      "worker.closed_lease", [](Settings& s) -> absl::Duration& { return Core(s).closed_lease; },
      "75ms", kShortest, kLongest,
      "Like worker.lease, for a worker that has closed all its connections: its process has most "
      "likely exited. A worker that lives reconnects within four round trips of its network; raise "
      "this where these take longer. At most worker.lease."));
  table.push_back(Count(
      "worker.fruitless_joins", [](Settings& s) -> uint32_t& { return Core(s).fruitless_joins; },
      "5", {0, 1000},
      "A worker that joined others that go on this many times in a row, and was lost each time "
      "before a round counted it, is refused for worker.join_pause. 0: never."));
  table.push_back(Duration(
      "worker.join_pause", [](Settings& s) -> absl::Duration& { return Core(s).join_pause; }, "10m",
      absl::Seconds(1), kLongest,
      "How long such a worker is refused. Then it may join once more."));
  table.push_back(Duration(
      "round.late_warning", [](Settings& s) -> absl::Duration& { return Core(s).late_warning; },
      "5s", kShortest, kLongest,
      "When a round has waited this long, the log, the metrics and `basinctl rounds` name the "
      "workers that it waits for."));
  table.push_back(Choice(
      "round.late_policy", +[](Settings& s) -> LatePolicy& { return Core(s).late_policy; },
      {"wait", "evict", "leave_out", "carry"}, "wait",
      "How to treat a worker that is alive but late. wait: rounds wait for it (rank 0 may evaluate "
      "or write a checkpoint); evict: it is evicted after round.evict_late_after; leave_out: once "
      "round.quorum_percent of the contributions are complete, a round waits for the others only "
      "for round.grace, and goes on without those of whoever is late; carry: the same, and the "
      "next contribution of that worker has its late gradients as well, if its client adds them, "
      "as basin.torch does. leave_out and carry leave nobody out of the rounds of a job whose "
      "min_workers is its max_workers, as it is by default, or whose quorum is all of its "
      "workers."));
  table.push_back(Duration(
      "round.evict_late_after",
      [](Settings& s) -> absl::Duration& { return Core(s).evict_late_after; }, "none",
      absl::Milliseconds(100), kLongest,
      "The time after which a late worker is evicted, with round.late_policy evict.", true));
  table.push_back(Count(
      "round.quorum_percent", [](Settings& s) -> uint32_t& { return Core(s).quorum_percent; }, "66",
      {1, 100},
      "With round.late_policy leave_out or carry: the percentage of a round's contributions, "
      "rounded up, that must be complete before a late one may be left out; never fewer than the "
      "job's min_workers. 100: none is left out."));
  table.push_back(Duration(
      "round.grace", [](Settings& s) -> absl::Duration& { return Core(s).grace; }, "100ms",
      kShortest, kLongest,
      "With round.late_policy leave_out or carry: how long a round waits at least for late "
      "contributions after that. It waits for the median lateness of the last 16 late "
      "contributions plus three times the median distance from it, if that is longer, but for at "
      "most 16 times this."));
  table.push_back(Choice(
      "round.loss_policy", +[](Settings& s) -> LossPolicy& { return Core(s).loss_policy; },
      {"shrink", "abort"}, "shrink",
      "What happens to a round that loses a worker. shrink: it continues with the others; abort: "
      "it is aborted, and the trainers receive an error."));
  table.push_back(Duration(
      "round.deadlock_timeout",
      [](Settings& s) -> absl::Duration& { return Core(s).deadlock_timeout; }, "5s",
      absl::Milliseconds(500), kLongest,
      "When every worker of a job waits in a round that another worker has not begun, the rounds "
      "are aborted after this time, with an error that names them. none: never.",
      true));
  table.push_back(Count(
      "round.norm_alarm", [](Settings& s) -> uint32_t& { return Core(s).norm_alarm; }, "6",
      {0, 1000},
      "A worker is reported in the log and the metrics when the logarithm of its gradient's norm "
      "is this many standard deviations from the lane's usual value. 0: never."));
  table.push_back(Duration(
      "job.start_timeout", [](Settings& s) -> absl::Duration& { return Core(s).start_timeout; },
      "5m", absl::Milliseconds(100), kLongest,
      "How long a new job waits for all its workers before it starts with at least min_workers."));
  table.push_back(Duration(
      "job.pause_timeout", [](Settings& s) -> absl::Duration& { return Core(s).pause_timeout; },
      "none", absl::Milliseconds(100), kLongest,
      "How long workers wait in a job that has too few of them before they receive an error. The "
      "round stays open.",
      true));
  table.push_back(Duration(
      "job.idle_timeout", [](Settings& s) -> absl::Duration& { return Core(s).idle_job_timeout; },
      "10m", absl::Seconds(1), kLongest,
      "A job that has had no connection for this time is forgotten."));
  table.push_back(Duration(
      "job.idle_lane_timeout",
      [](Settings& s) -> absl::Duration& { return Core(s).idle_lane_timeout; }, "10m",
      absl::Seconds(1), kLongest,
      "A call lane that has not been used for this time releases its memory."));
  table.push_back(Duration(
      "recovery.window", [](Settings& s) -> absl::Duration& { return Core(s).recovery_window; },
      "8s", absl::Milliseconds(100), kLongest,
      "How long a restarted aggregator waits for the workers of a job to return before it decides "
      "with those that have."));
  table.push_back(Choice(
      "recovery.policy", +[](Settings& s) -> RecoveryPolicy& { return Core(s).recovery_policy; },
      {"majority", "any"}, "majority",
      "The workers that are enough for recovery when the window ends. majority: a majority of the "
      "last members; any: all that have returned. With any, two aggregators can both continue, "
      "each with a part of the workers."));
  table.push_back(Duration(
      "drain.grace", [](Settings& s) -> absl::Duration& { return Core(s).drain_grace; }, "30s",
      absl::ZeroDuration(), kLongest,
      "The time that open rounds have to end after SIGTERM, here or with what they have on a "
      "shard. "
      "On Kubernetes, terminationGracePeriodSeconds must be longer."));
  table.push_back(Path(
      "state.file", [](Settings& s) -> std::string& { return s.state_path; },
      "A file to which the members of each job are written before they are announced. A restarted "
      "aggregator reads from it which workers to wait for. none: it asks the workers."));
}

void AddStandby(std::vector<Option>& table) {
  TextType type;
  type.form = TextType::Form::kAuthority;
  type.at = [](Settings& s) -> std::string& { return s.standby.authority; };
  type.may_be_none = true;
  table.push_back(
      {"standby.authority", type, "none",
       "What decides which of several aggregators leads; the others refuse workers until they take "
       "over. All of them need the same value. file:DIRECTORY: a directory of the machine on which "
       "all of them run, such as file:/run/basin/leader. kubernetes:NAMESPACE/LEASE: an object of "
       "Kubernetes of the kind Lease, for aggregators in pods; without NAMESPACE/, in their own. "
       "etcd:HOST:PORT,HOST:PORT/KEY: a key of an etcd (version 3), with the addresses of its "
       "members, "
       "such as etcd:etcd-0:2379,etcd-1:2379/basin/leader. "
       "none: this aggregator is the only one. Workers need the addresses of all, with commas "
       "between (BASIN_ADDRESS)."});
  table.push_back(Duration(
      "standby.lease", [](Settings& s) -> absl::Duration& { return s.standby.lease; }, "3s",
      absl::Milliseconds(200), absl::Minutes(10),
      "A leader that cannot renew its lead for about this time stops deciding, and a standby takes "
      "over after it. A leader whose process ends on the same machine is replaced at once."));
  table.push_back(Where(
      "standby.address", [](Settings& s) -> std::string& { return s.standby.address; }, "none",
      true,
      "The address at which workers reach this aggregator, for the texts of the others. none: that "
      "of grpc.listen."));
  type = TextType();
  type.form = TextType::Form::kLabel;
  type.at = [](Settings& s) -> std::string& { return s.standby.deployment; };
  type.may_be_none = true;
  table.push_back({"standby.deployment", type, "none",
                   "The name of this group of aggregators, the same for all of them. Those of "
                   "another deployment that were given the same standby.authority by mistake are "
                   "told so and do not take the lead. none: nobody is told."});
  table.push_back(Path(
      "standby.etcd_ca", [](Settings& s) -> std::string& { return s.standby.etcd_tls.ca; },
      "PEM file with the certificate authority of etcd. With it, etcd is reached with TLS. It and "
      "the next two are read for each connection."));
  table.push_back(Path(
      "standby.etcd_cert", [](Settings& s) -> std::string& { return s.standby.etcd_tls.cert; },
      "PEM file with a certificate for an etcd that requires one of its clients. Its common name "
      "is "
      "the user of etcd, unless there is a standby.etcd_user_file."));
  table.push_back(Path(
      "standby.etcd_key", [](Settings& s) -> std::string& { return s.standby.etcd_tls.key; },
      "PEM file with the private key of standby.etcd_cert, without a password."));
  table.push_back(Path(
      "standby.etcd_user_file",
      [](Settings& s) -> std::string& { return s.standby.etcd_user_path; },
      "File with NAME:PASSWORD of a user of etcd, who needs the permission readwrite for the key. "
      "It "
      "is read for each login."));
}

void AddShard(std::vector<Option>& table) {
  TextType type;
  type.may_be_none = true;
  type.form = TextType::Form::kAddresses;
  type.at = [](Settings& s) -> std::string& { return s.shard.coordinators; };
  table.push_back({"shard.coordinator", type, "none",
                   "The aggregator for which a shard holds bytes: the address of its grpc.listen, "
                   "or those of several aggregators of which one leads, with commas between. Also "
                   "--coordinator."});
  type.form = TextType::Form::kLabel;
  type.at = [](Settings& s) -> std::string& { return s.shard.name; };
  table.push_back({"shard.name", type, "none",
                   "The name of a shard. No two shards of an aggregator may have the same. none: "
                   "the name of the host. Also --name."});
  table.push_back(Where(
      "shard.advertise", [](Settings& s) -> std::string& { return s.shard.advertise; }, "none",
      true,
      "The address at which workers reach a shard. none: that of grpc.listen, with the name of the "
      "host if it listens on all addresses. Also --advertise."));
  table.push_back(Path(
      "shard.ca", [](Settings& s) -> std::string& { return s.shard.tls.ca; },
      "PEM file with the authority of the aggregator's certificate. With it, a shard connects with "
      "TLS. It is read for each connection, as are the next three."));
  table.push_back(Path(
      "shard.cert", [](Settings& s) -> std::string& { return s.shard.tls.cert; },
      "PEM file with a certificate of a shard, for an aggregator with tls.client_ca."));
  table.push_back(Path(
      "shard.key", [](Settings& s) -> std::string& { return s.shard.tls.key; },
      "PEM file with the private key of shard.cert, without a password."));
  table.push_back(Path(
      "shard.token_file", [](Settings& s) -> std::string& { return s.shard.token_file; },
      "File with the token of a shard, for an aggregator with auth.file; it grants the role shard "
      "for the jobs *. The shard needs an auth.file of its own, with the grants of the workers."));
}

void AddShards(std::vector<Option>& table) {
  table.push_back(Bytes(
      "shards.least_share", +[](Settings& s) -> uint64_t& { return Core(s).least_share; }, "1MiB",
      {1, kTiB},
      "A lane with fewer bytes for each process that holds a part stays on one of them, because "
      "more messages would cost more than the shared link gains."));
  table.push_back(Duration(
      "shards.grace", [](Settings& s) -> absl::Duration& { return Core(s).shard_grace; }, "10s",
      absl::Milliseconds(100), kLongest,
      "How long a worker may not reach a shard until its job goes on without the shard."));
  table.push_back(Choice(
      "shards.coordinator_share", +[](Settings& s) -> bool& { return Core(s).coordinator_share; },
      {"false", "true"}, "true",
      "Whether the aggregator itself holds a part of the gradients while there are shards. With "
      "false, its link has control messages and broadcast values only."));
}

void AddBounds(std::vector<Option>& table) {
  table.push_back(Bytes(
      "memory.budget", +[](Settings& s) -> uint64_t& { return Core(s).memory_bytes; }, "auto",
      {64 * kMiB, 1024 * kTiB},
      "Memory for gradients that wait, results in flight, and their bookkeeping. gRPC may use as "
      "much again. auto: 40 % of the memory of the control group or the machine. Jobs do without a "
      "shard that has less than half of the aggregator's, or less than their lanes reserve there.",
      AutomaticBudget));
  table.push_back(Bytes(
      "memory.frame", +[](Settings& s) -> uint64_t& { return Core(s).frame_bytes; }, kAutomatic,
      {kChunkBytes, kMaxPayloadBytes, kChunkBytes},
      "The most payload of one message; workers send less at a time where their link is slow. A "
      "lane "
      "needs memory for at least one from each worker. auto: 3840KiB, and at most each of the two "
      "windows below and 1/256 of the budget.",
      AutomaticFrame));
  table.push_back(Bytes(
      "memory.window", +[](Settings& s) -> uint64_t& { return Core(s).window_bytes; }, "16MiB",
      {kChunkBytes, kTiB},
      "The bytes that a worker may send ahead of the others on one lane, at each shard, if there "
      "is "
      "room. At most "
      "grpc.window per data stream is in flight at a time, 8MiB for the usual two; more lets "
      "workers be out of step, but bytes that wait here have left the cache when they are "
      "needed."));
  table.push_back(Bytes(
      "memory.result_window", +[](Settings& s) -> uint64_t& { return Core(s).result_window_bytes; },
      "8MiB", {kChunkBytes, kTiB},
      "The bytes of results of one lane that some worker has not acknowledged yet. The default is "
      "what can be in flight to a worker (grpc.window per data stream, and a worker opens two). "
      "Raise both together where the rate times the round trip is larger. With shards, it is at "
      "least two frames for each of them and for the aggregator, if there is room."));
  table.push_back(Bytes(
      "memory.idle_buffers", +[](Settings& s) -> uint64_t& { return s.idle_buffer_bytes; },
      "256MiB", {0, kTiB}, "Memory of old results that is kept for the next ones."));
  table.push_back(Count(
      "limits.jobs", [](Settings& s) -> uint32_t& { return Core(s).max_jobs; }, "64", {1, 10000},
      "Jobs at the same time."));
  table.push_back(Count(
      "limits.team_jobs", [](Settings& s) -> uint32_t& { return Core(s).max_team_jobs; }, "0",
      {0, 10000},
      "Jobs of one team at the same time, which are those whose names have the same text before "
      "the first /, such as team-a/vision and team-a/text. 0: any number."));
  table.push_back(Count(
      "limits.workers", [](Settings& s) -> uint32_t& { return Core(s).max_workers; }, "10000",
      {1, kMaxWorkers}, "Workers of one job."));
  table.push_back(Count(
      "limits.address_sessions",
      [](Settings& s) -> uint32_t& { return Core(s).max_address_sessions; }, "4096", {0, 1000000},
      "Workers that are connected from one address, in all jobs together. Addresses of IPv6 count "
      "by their /64. Raise it where more workers are behind one address (NAT), or in one /64. 0: "
      "any number."));
  table.push_back(Bytes(
      "limits.job_memory", +[](Settings& s) -> uint64_t& { return Core(s).max_job_bytes; }, "0B",
      {0, 1024 * kTiB},
      "The part of memory.budget that one job may reserve. 0B: all of it that is free."));
  table.push_back(Count(
      "limits.job_rounds", [](Settings& s) -> uint32_t& { return Core(s).max_job_rounds; }, "0",
      {0, 100000},
      "Rounds of one job per second, calls included; a faster job waits. 0: any number."));
  table.push_back(Count(
      "limits.lanes", [](Settings& s) -> uint32_t& { return Core(s).max_lanes; }, "1024",
      {1, kMaxLanes},
      "Lanes of one job that are in use at once. An idle call gives its place to another one."));
  table.push_back(Count(
      "limits.lane_names", [](Settings& s) -> uint32_t& { return Core(s).max_lane_names; }, "2048",
      {1, kMaxLanes},
      "Lanes of one job, including those that have released their memory "
      "(job.idle_lane_timeout). When a job has more than half of them, its workers let go of the "
      "names of idle calls."));
  table.push_back(Count(
      "limits.tensors", [](Settings& s) -> uint32_t& { return Core(s).max_tensors; }, "65536",
      {1, kMaxTensors}, "Tensors of one lane."));
  table.push_back(Bytes(
      "limits.lane_bytes", +[](Settings& s) -> uint64_t& { return Core(s).max_lane_bytes; }, "1TiB",
      {kChunkBytes, 64 * kTiB}, "The size of one copy of the tensors of a lane."));
  table.push_back(Count(
      "limits.values", [](Settings& s) -> uint32_t& { return Core(s).max_values; }, "65536",
      {1, 1000000}, "Broadcast values of one job."));
  table.push_back(Count(
      "reduce.threads", [](Settings& s) -> uint32_t& { return s.reduce_threads; }, "auto", {1, 256},
      "Threads that add up gradients. auto: half of the processors of the control group or the "
      "machine.",
      AutomaticThreads));
  table.push_back(Device(
      "reduce.device", [](Settings& s) -> std::string& { return s.reduce_device; },
      "The device that adds up gradients. cuda: all GPUs; cuda:0: the first one; auto: measures "
      "both at the start and takes the faster, which is the CPU on most machines. A GPU takes up "
      "to a quarter of memory.budget as pinned memory. The results have the same bits."));
  table.push_back(Duration(
      "health.stall", [](Settings& s) -> absl::Duration& { return Core(s).stall_threshold; },
      "500ms", kShortest, absl::Minutes(1),
      "If the aggregator wakes this much later than it intended, it was stopped; it then extends "
      "every deadline by the time that it missed."));
  table.push_back(Duration(
      "health.live_within", [](Settings& s) -> absl::Duration& { return s.live_within; }, "10s",
      absl::Milliseconds(100), absl::Hours(1),
      "/livez fails when an event has waited longer than this for the event loop."));
  table.push_back(Choice(
      "log.level", +[](Settings& s) -> LogLevel& { return s.log_level; },
      {"debug", "info", "warning", "error"}, "info",
      "The lowest level that is written. debug: every round; info: every change of jobs, workers "
      "and members."));
}

}  // namespace

std::vector<Option> OptionTable() {
  std::vector<Option> table;
  AddAddresses(table);
  AddTls(table);
  AddLocal(table);
  AddAuth(table);
  AddWaits(table);
  AddStandby(table);
  AddShard(table);
  AddShards(table);
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
