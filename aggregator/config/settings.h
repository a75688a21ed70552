// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything that an operator decides about one aggregator, parsed and checked, in the form in
// which its parts take it.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CONFIG_SETTINGS_H_
#define BASIN_AGGREGATOR_CONFIG_SETTINGS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/settings.h"

namespace basin::aggregator {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// The value of local_socket for a name that is chosen.
inline constexpr char kAutomatic[] = "auto";

// Several aggregators of which one leads.
struct StandbySettings {
  std::string authority;       // In the form of ParseAuthorityName. Empty: this one always leads.
  std::string address;         // Where workers reach this one. Empty: as it listens.
  std::string deployment;      // Whose aggregators stand by for each other. Empty: it has no name.
  ClientTls etcd_tls;          // For an authority in etcd.
  std::string etcd_user_path;  // A file with NAME:PASSWORD. Empty: it does not log in.
  absl::Duration lease = absl::Seconds(3);
};

// For `basind shard`: a process that holds bytes for an aggregator.
struct ShardSettings {
  std::string coordinators;  // host:port, or several with commas between. Empty: none.
  std::string name;          // A label. Empty: the name of the host.
  std::string advertise;     // Where workers reach it. Empty: as it listens.
  ClientTls tls;             // Towards the coordinator,
  std::string token_file;    // as is this. Empty: without a token.
};

struct Settings {
  // The term is no option: each process chooses its own.
  Config core;
  uint32_t reduce_threads = 1;
  std::string reduce_device = "cpu";                 // In the form of ParseReduceDevice.
  uint64_t idle_buffer_bytes = uint64_t{256} << 20;  // Kept for the next results.
  // The quota is no option either: it follows from memory.budget.
  GrpcServerSettings grpc;

  // host:port; port 0 lets the system choose. Empty: not served.
  std::string grpc_address;
  std::string admin_address;
  std::string http_address;
  bool insecure = false;     // May serve without encryption where others can reach it.
  std::string local_socket;  // auto, or a path. Empty: no memory is shared.
  ServerTls tls;             // For grpc_address and admin_address.
  ServerTls http_tls;        // For http_address.
  std::string auth_path;     // The file of grants. Empty: every peer may do everything.

  StandbySettings standby;
  ShardSettings shard;

  std::string state_path;  // Empty: nothing is written down.
  LogLevel log_level = LogLevel::kInfo;
  absl::Duration live_within;  // An event that waited longer means that the loop hangs.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_SETTINGS_H_
