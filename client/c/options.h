// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The options of a worker, from one table: values that were set, then the environment, then (for
// the worker's identity) the variables of the launcher, then a default.
//
// Thread contract: one thread at a time. Failure: INVALID_ARGUMENT names the option, the value, and
// the allowed values.

#ifndef BASIN_CLIENT_C_OPTIONS_H_
#define BASIN_CLIENT_C_OPTIONS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "accelerator/node/core/settings.h"
#include "client/c/include/basin/basin.h"
#include "client/core/config.h"
#include "client/core/launcher.h"
#include "runtime/grpc/credentials.h"

namespace basin::c {

// By basin_log_level.
inline constexpr std::array kLogLevels = {"debug", "info", "warning", "error"};

// For a worker whose trainer has set no log.
void LogToStderr(void* user, basin_log_level level, const char* message);

struct Log {
  basin_log write = nullptr;
  void* user = nullptr;
  basin_log_level least = BASIN_LOG_WARNING;

  void operator()(basin_log_level level, const std::string& message) const {
    if (write != nullptr && level >= least) write(user, level, message.c_str());
  }
};

// A trace of the worker's rounds.
struct TimelineSettings {
  std::string path;  // A file or a folder; empty: none.
  uint32_t every = 1;
  uint64_t max_bytes = 0;
};

// Whether and how the worker reduces with the other ranks of its node first.
struct GroupSettings {
  accelerator::node::LocalSettings local;
  std::string wish;           // The value of local_group.
  std::string nccl_library;   // A file; empty: it is searched for.
  std::string node;           // Which node of several on this machine; from the launcher.
  uint64_t pinned_bytes = 0;  // As below, for results that reach this rank over the group.
};

// The settings that result from the options.
struct Settings {
  std::string address;
  ClientTls tls;
  std::string token_file;
  bool local = true;          // Shares memory with an aggregator on this machine.
  uint64_t pinned_bytes = 0;  // The most pinned memory for tensors on a device.
  TimelineSettings timeline;
  GroupSettings group;
  std::string launcher_decision;  // Which of several launchers names this worker. Empty: all do.
  client::Config core;
};

}  // namespace basin::c

struct basin_options {
 public:
  explicit basin_options(bool read_environment);

  absl::Status Set(std::string_view key, std::string_view value);
  // Null if there is none.
  const char* Get(std::string_view key) const;
  void SetLog(basin_log write, void* user);

  absl::StatusOr<basin::c::Settings> Resolve() const;
  basin::c::Log log() const;

 private:
  std::string Text(std::string_view key) const;
  uint64_t Number(std::string_view key) const;
  uint32_t Count(std::string_view key) const { return static_cast<uint32_t>(Number(key)); }

  // By name; each has been checked. `set_` comes before the environment, this before the rest.
  std::map<std::string, std::string, std::less<>> set_;
  std::map<std::string, std::string, std::less<>> environment_;
  std::map<std::string, std::string, std::less<>> defaults_;
  std::map<std::string, std::string, std::less<>> bad_environment_;  // By name: what is wrong.
  absl::Status launched_;  // Why the variables of launchers do not say which worker this is.
  std::string launcher_decision_;
  basin::client::LaunchedPlace place_;
  basin::c::Log log_;
};

#endif  // BASIN_CLIENT_C_OPTIONS_H_
