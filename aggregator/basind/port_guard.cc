// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/port_guard.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "aggregator/auth/file.h"
#include "aggregator/basind/process.h"
#include "aggregator/tls/files.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// More patterns than these are left out of a line of the log.
constexpr size_t kMostShown = 10;

// Time for an operator to replace a certificate.
constexpr absl::Duration kExpiresSoon = absl::Hours(24 * 7);

}  // namespace

absl::Status PortGuard::Open() {
  if (!settings_.auth_path.empty()) {
    absl::StatusOr<AuthFile> file = ReadAuthFile(settings_.auth_path);
    if (!file.ok()) return file.status();
    auth_text_ = std::move(file->text);
    Enforce(std::move(file->grants));
  }
  if (settings_.tls.on()) {
    absl::StatusOr<std::unique_ptr<TlsSessions>> tls = TlsSessions::Open(settings_.tls);
    if (!tls.ok()) return tls.status();
    tls_ = *std::move(tls);
  }
  if (settings_.http_tls.on() && !settings_.http_address.empty()) {
    absl::StatusOr<std::unique_ptr<TlsSessions>> tls = TlsSessions::Open(settings_.http_tls);
    if (!tls.ok()) return tls.status();
    http_tls_ = *std::move(tls);
  }
  CheckCertificates();
  return absl::OkStatus();
}

void PortGuard::Watch() {
  if (settings_.auth_path.empty() && !settings_.tls.on() && !settings_.http_tls.on()) return;
  files_ = std::make_unique<EverySecond>("basin-files", [this] {
    ReadGrantsAgain();
    CheckCertificates();
  });
}

PemSource PortGuard::grpc_certificates() {
  if (!settings_.tls.on()) return nullptr;
  return [this] { return tls_->InForce(); };
}

void PortGuard::ReadGrantsAgain() {
  if (settings_.auth_path.empty()) return;
  absl::StatusOr<AuthFile> file = ReadAuthFile(settings_.auth_path);
  const std::string problem = file.ok() ? "" : std::string(file.status().message());
  if (!problem.empty() && problem != auth_problem_) {
    Report(log_, LogLevel::kError, "auth_file_broken",
           absl::StrCat(problem, ". The grants that were read before stay in force."));
  }
  auth_problem_ = problem;
  if (!file.ok() || file->text == auth_text_) return;
  if (std::exchange(auth_read_, file->text) != file->text) return;
  auth_text_ = std::move(file->text);
  const size_t grants = file->grants.size();
  Enforce(std::move(file->grants));
  end_revoked_();
  Report(log_, LogLevel::kInfo, "auth_file_changed",
         absl::StrCat(settings_.auth_path, " now has ", CountOf(grants, "grant"), "."));
}

void PortGuard::Enforce(Grants grants) {
  const std::set<std::string> loose = grants.JobsOfManyTeams();
  gatekeeper_.Replace(std::move(grants));
  if (loose.empty() || settings_.core.max_team_jobs == 0) return;
  const auto shown =
      std::next(loose.begin(), static_cast<ptrdiff_t>(std::min(loose.size(), kMostShown)));
  Report(
      log_, LogLevel::kWarning, "grant_unbounded",
      absl::StrCat("limits.team_jobs does not bound the jobs of workers with ",
                   absl::StrJoin(loose.begin(), shown, ", "), shown == loose.end() ? "" : ", ...",
                   " in ", settings_.auth_path,
                   ", because a team is the text before the first / of a job's name. Grant names "
                   "such as team/*."));
}

void PortGuard::CheckCertificates() {
  CheckCertificatesOf(settings_.tls, "tls.", tls_.get(), certificates_);
  CheckCertificatesOf(settings_.http_tls, "http.tls_", http_tls_.get(), http_certificates_);
  const absl::Time first = std::min(certificates_.expires, http_certificates_.expires);
  if (first != absl::InfiniteFuture()) certificate_expiry_ = absl::ToUnixSeconds(first);
}

void PortGuard::CheckCertificatesOf(const ServerTls& tls, const std::string& prefix,
                                    TlsSessions* in_force, Certificates& known) {
  if (!tls.on()) return;
  const absl::Time now = absl::Now();
  const TlsCheck check = CheckServerTls(tls, prefix, now);
  if (check.expires != absl::InfiniteFuture()) known.expires = check.expires;
  std::string problem;
  if (!check.status.ok()) {
    problem = absl::StrCat(check.status.message(),
                           ". New connections get the earlier certificate until it is replaced.");
  } else if (check.expires - now < kExpiresSoon) {
    problem =
        absl::StrCat("A certificate in ", prefix, "cert or the last one in ", prefix,
                     "client_ca expires at ", absl::FormatTime(check.expires, absl::UTCTimeZone()),
                     ". Replace the file; basind reads it again by itself.");
  }
  for (const std::string& warning : check.warnings) {
    absl::StrAppend(&problem, problem.empty() ? "" : " ", warning, ".");
  }
  if (!problem.empty() && problem != known.problem) {
    Report(log_, check.status.ok() ? LogLevel::kWarning : LogLevel::kError, "certificate", problem);
  } else if (problem.empty() && !known.problem.empty()) {
    Report(log_, LogLevel::kInfo, "certificate", "The certificates are valid again.");
  }
  known.problem = problem;
  // What is wrong has been logged.
  if (in_force != nullptr && check.status.ok()) in_force->Refresh().IgnoreError();
}

}  // namespace basin::aggregator
