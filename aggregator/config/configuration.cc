// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/configuration.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/config/yaml.h"
#include "aggregator/text/address.h"
#include "aggregator/text/authority_name.h"
#include "aggregator/text/units.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

using Problems = std::vector<std::string>;

void CheckWaits(const Config& core, Problems& problems) {
  if (core.lease < 3 * core.heartbeat) {
    problems.push_back(absl::StrCat("worker.lease is ", ShowDuration(core.lease),
                                    ", less than three times worker.heartbeat (",
                                    ShowDuration(core.heartbeat),
                                    "): a worker would be lost after one late heartbeat; raise "
                                    "worker.lease or lower worker.heartbeat"));
  }
  if (core.closed_lease > core.lease) {
    problems.push_back(absl::StrCat("worker.closed_lease is ", ShowDuration(core.closed_lease),
                                    ", which is more than worker.lease (", ShowDuration(core.lease),
                                    "); lower it"));
  }
  const bool evicts = core.late_policy == LatePolicy::kEvict;
  const bool says_when = core.evict_late_after != absl::InfiniteDuration();
  if (evicts && !says_when) {
    problems.push_back(
        "round.late_policy is evict, but round.evict_late_after is none; set it to a duration, for "
        "example 60s");
  }
  if (!evicts && says_when) {
    problems.push_back(absl::StrCat("round.evict_late_after is ",
                                    ShowDuration(core.evict_late_after),
                                    ", but round.late_policy is ", NameOf(core.late_policy),
                                    "; set round.late_policy to evict"));
  }
}

void CheckMemory(const Config& core, Problems& problems) {
  const auto check_window = [&](const char* key, uint64_t bytes) {
    if (bytes >= core.frame_bytes) return;
    problems.push_back(absl::StrCat(
        key, " is ", ShowBytes(bytes), ", which is less than memory.frame (",
        ShowBytes(core.frame_bytes), "), so that not even one message would fit; raise it"));
  };
  check_window("memory.window", core.window_bytes);
  check_window("memory.result_window", core.result_window_bytes);
  if (core.max_lane_names < core.max_lanes) {
    problems.push_back(absl::StrCat("limits.lane_names is ", core.max_lane_names,
                                    ", which is less than limits.lanes (", core.max_lanes,
                                    "); raise it, because idle lanes keep their names"));
  }
}

void CheckExposure(const Settings& settings, const char* key, const std::string& text,
                   Problems& problems) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  if (!address.ok() || settings.insecure || IsLoopback(*address)) return;
  // A certificate alone does not distinguish an operator from a worker.
  const bool for_operators = std::string_view(key) == "admin.listen";
  const bool knows_peers =
      !settings.auth_path.empty() || (!for_operators && !settings.tls.client_ca.empty());
  if (settings.tls.on() && knows_peers) return;
  problems.push_back(absl::StrCat(
      key, " is ", text, ", which other machines can reach, and ",
      !settings.tls.on() ? "connections are not encrypted; set tls.cert and tls.key"
      : for_operators    ? "every peer may do everything; set auth.file"
                         : "every peer may connect; set auth.file or tls.client_ca",
      ", listen on 127.0.0.1, or set grpc.insecure to true if the network is trusted"));
}

// The files themselves are checked where they are read.
void CheckTls(const ServerTls& tls, const std::string& prefix, Problems& problems) {
  const std::string cert = prefix + "cert";
  const std::string key = prefix + "key";
  if (tls.cert.empty() != tls.key.empty()) {
    problems.push_back(
        absl::StrCat(tls.cert.empty() ? key : cert, " is ", tls.cert.empty() ? tls.key : tls.cert,
                     ", but ", tls.cert.empty() ? cert : key, " is none; set both, or neither"));
  }
  if (!tls.client_ca.empty() && tls.cert.empty()) {
    problems.push_back(absl::StrCat(prefix, "client_ca is ", tls.client_ca, ", but ", cert,
                                    " is none; set ", cert, " and ", key));
  }
}

void CheckAddresses(const Settings& settings, Problems& problems) {
  CheckExposure(settings, "grpc.listen", settings.grpc_address, problems);
  CheckExposure(settings, "admin.listen", settings.admin_address, problems);
  std::map<uint16_t, std::string> keys;
  const auto check_port = [&](const char* key, const std::string& text) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    if (!address.ok() || address->port == 0) return;
    const auto [other, is_new] = keys.emplace(address->port, key);
    if (is_new) return;
    problems.push_back(absl::StrCat(key, " and ", other->second, " both use port ", address->port,
                                    "; change one of them"));
  };
  check_port("grpc.listen", settings.grpc_address);
  check_port("http.listen", settings.http_address);
  check_port("admin.listen", settings.admin_address);
}

// An authority in etcd and how it is reached.
void CheckEtcd(const StandbySettings& standby, Problems& problems) {
  const ClientTls& tls = standby.etcd_tls;
  const absl::StatusOr<AuthorityName> name = ParseAuthorityName(standby.authority);
  const bool is_etcd = name.ok() && name->kind == AuthorityName::Kind::kEtcd;
  const std::pair<const char*, const std::string&> files[] = {
      {"standby.etcd_ca", tls.ca},
      {"standby.etcd_cert", tls.cert},
      {"standby.etcd_key", tls.key},
      {"standby.etcd_user_file", standby.etcd_user_path}};
  for (const auto& [key, path] : files) {
    if (path.empty() || is_etcd) continue;
    problems.push_back(absl::StrCat(key, " is ", path, ", but standby.authority is ",
                                    standby.authority.empty() ? "none" : standby.authority,
                                    "; set it to an etcd, or ", key, " to none"));
  }
  if (!is_etcd) return;
  if (tls.cert.empty() != tls.key.empty()) {
    problems.push_back(
        "only one of standby.etcd_cert and standby.etcd_key is set; set both or neither");
  }
  if (!tls.cert.empty() && !tls.on()) {
    problems.push_back(
        "standby.etcd_cert is set, but standby.etcd_ca is not, so etcd is reached without TLS; set "
        "standby.etcd_ca to the authority of etcd's certificates");
  }
  if (standby.etcd_user_path.empty() || tls.on()) return;
  for (const std::string& endpoint : name->endpoints) {
    if (IsLoopback(*ParseAddress(endpoint))) continue;
    problems.push_back(
        absl::StrCat("standby.etcd_user_file is set, but standby.etcd_ca is not, so the password "
                     "would be sent to ",
                     endpoint, " without encryption; set standby.etcd_ca"));
    return;
  }
}

void CheckStandby(const Settings& settings, Problems& problems) {
  CheckEtcd(settings.standby, problems);
  if (settings.standby.authority.empty() || settings.state_path.empty()) return;
  problems.push_back(absl::StrCat(
      "state.file is ", settings.state_path, ", but standby.authority is ",
      settings.standby.authority,
      ": the file would be outdated after another aggregator has led, and a new leader asks the "
      "workers anyway; set state.file to none"));
}

// An automatic memory.frame fits the windows, and lets the budget serve some hundred workers.
void FitFrame(const std::vector<Given>& chosen, Config& core) {
  for (const Given& value : chosen) {
    if (value.key != "memory.frame" || value.text != kAutomatic) continue;
    const uint64_t most =
        std::min({core.window_bytes, core.result_window_bytes, core.memory_bytes / 256});
    core.frame_bytes = std::min(core.frame_bytes, most / kChunkBytes * kChunkBytes);
  }
}

// Checks that need several options.
void CheckTogether(const Settings& settings, Problems& problems) {
  CheckWaits(settings.core, problems);
  CheckMemory(settings.core, problems);
  CheckAddresses(settings, problems);
  CheckStandby(settings, problems);
  CheckTls(settings.tls, "tls.", problems);
  CheckTls(settings.http_tls, "http.tls_", problems);
}

// The one that counts, for each key; defaults where nothing was given.
std::vector<Given> Choose(const std::vector<Option>& table, const std::vector<Given>& given) {
  std::map<std::string, const Given*> best;
  for (const Given& value : given) {
    const Given*& chosen = best[value.key];
    if (chosen == nullptr || chosen->source < value.source) chosen = &value;
  }
  std::vector<Given> chosen;
  chosen.reserve(table.size());
  for (const Option& option : table) {
    const auto found = best.find(option.key);
    chosen.push_back(found == best.end() ? Given{option.key, option.fallback, Source::kDefault, ""}
                                         : *found->second);
  }
  return chosen;
}

}  // namespace

absl::StatusOr<Configuration> Configure(const std::vector<Option>& table, const Findings& findings,
                                        const Machine& machine) {
  Problems problems = findings.problems;
  Configuration configuration;
  configuration.chosen = Choose(table, findings.given);
  for (size_t i = 0; i < table.size(); ++i) {
    const Given& value = configuration.chosen[i];
    const absl::Status put = Put(table[i], value.text, machine, configuration.settings);
    if (put.ok()) continue;
    problems.push_back(absl::StrCat(value.origin, ": ", value.key, " is ",
                                    QuoteForError(value.text), ": ", put.message()));
  }
  FitFrame(configuration.chosen, configuration.settings.core);
  // If a value is missing, further errors would mislead.
  if (problems.empty()) CheckTogether(configuration.settings, problems);
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));

  Settings& settings = configuration.settings;
  settings.core.state_file = !settings.state_path.empty();
  return configuration;
}

void LoadFile(const std::vector<Option>& table, const std::string& path, Findings& findings) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    // One byte more than is allowed shows that it is too long.
    text.resize(kMaxFileBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file && !file.eof()) {
    findings.problems.push_back(
        absl::StrCat("--config: ", QuoteForError(path), " cannot be read: ", std::strerror(errno)));
    return;
  }
  ReadYaml(table, path, text, findings);
}

}  // namespace basin::aggregator
