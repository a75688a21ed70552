// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Who may connect to the ports of a process, and by which certificates it is known: the files of
// auth.file, tls.* and http.tls_*, read at the start and again every second.
//
// A file that became wrong changes nothing: what was read before stays in force, and the log says
// why.
//
// Thread contract: Open, Watch and StopWatching from one thread, in this order; what the others
// return is safe from any thread. Ownership: outlives the servers that use it.
// Failure: Open returns why a file cannot be used.

#ifndef BASIN_AGGREGATOR_BASIND_PORT_GUARD_H_
#define BASIN_AGGREGATOR_BASIND_PORT_GUARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/basind/every_second.h"
#include "aggregator/config/settings.h"
#include "aggregator/telemetry/log.h"
#include "aggregator/tls/sessions.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

class PortGuard {
 public:
  // `end_revoked`: ends what the grants no longer allow. REQUIRES: all outlive the guard.
  PortGuard(const Settings& settings, Log& log, std::function<void()> end_revoked)
      : settings_(settings), log_(log), end_revoked_(std::move(end_revoked)) {}
  PortGuard(const PortGuard&) = delete;
  PortGuard& operator=(const PortGuard&) = delete;

  absl::Status Open();
  // Reads the files again every second, until StopWatching.
  void Watch();
  void StopWatching() { files_.reset(); }

  // Null without auth.file: every peer may do everything.
  Gatekeeper* gatekeeper() { return settings_.auth_path.empty() ? nullptr : &gatekeeper_; }
  const Gatekeeper& refusals() const { return gatekeeper_; }
  // For the ports of gRPC; null without tls.cert. It is asked after Open.
  PemSource grpc_certificates();
  // For the port of HTTP; null without http.tls_cert.
  const TlsSessions* http_tls() const { return http_tls_.get(); }
  // When the first one expires, in seconds of Unix time; 0: without TLS.
  const std::atomic<int64_t>& certificate_expiry() const { return certificate_expiry_; }

 private:
  // What is known of the certificates of some ports.
  struct Certificates {
    absl::Time expires = absl::InfiniteFuture();
    std::string problem;  // Already logged.
  };

  // A file may be read while it is being written, so a change counts when it is read twice.
  void ReadGrantsAgain();
  void Enforce(Grants grants);
  void CheckCertificates();
  // Logs what is wrong with them, once; what is good takes effect for new connections. While a file
  // cannot be read, what is known of them stays. `in_force`: null before the port serves.
  void CheckCertificatesOf(const ServerTls& tls, const std::string& prefix, TlsSessions* in_force,
                           Certificates& known);

  const Settings& settings_;
  Log& log_;
  const std::function<void()> end_revoked_;

  Gatekeeper gatekeeper_;
  std::atomic<int64_t> certificate_expiry_{0};
  std::unique_ptr<TlsSessions> tls_;       // For gRPC,
  std::unique_ptr<TlsSessions> http_tls_;  // and for HTTP. Constant after Open.

  // For one thread at a time: Open, then that of `files_`.
  std::string auth_text_;     // In force,
  std::string auth_read_;     // and read last.
  std::string auth_problem_;  // Already logged.
  Certificates certificates_;
  Certificates http_certificates_;
  std::unique_ptr<EverySecond> files_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_PORT_GUARD_H_
