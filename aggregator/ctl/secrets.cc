// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/secrets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/auth/grants.h"
#include "aggregator/ctl/output.h"
#include "aggregator/tls/mint.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// The longest name of a token.
constexpr size_t kMostNameBytes = 200;

// Only the owner may read it. Refuses to replace a file.
absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const std::string why = std::strerror(errno);
  if (file >= 0) close(file);
  if (written) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, " cannot be written: ", why));
}

// "DNS:a" or "IP:1.2.3.4", as OpenSSL has them.
absl::StatusOr<std::string> AlternativeName(const std::string& host) {
  in6_addr unused = {};
  if (inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
      inet_pton(AF_INET6, host.c_str(), &unused) == 1) {
    return "IP:" + host;
  }
  const bool is_name = !host.empty() && host.size() <= 253 &&
                       host.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyz"
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") == std::string::npos;
  if (is_name) return "DNS:" + host;
  return absl::InvalidArgumentError(
      absl::StrCat("--host is ", QuoteForError(host), ": it is neither a name nor an address"));
}

}  // namespace

absl::Status RunToken(const Arguments& arguments) {
  if (arguments.words[1] != "new") {
    return absl::InvalidArgumentError("write `basinctl token new --jobs=JOBS`");
  }
  if (arguments.jobs.empty()) {
    return absl::InvalidArgumentError("--jobs is missing; write the name of a job, or '*' for all");
  }
  if (const absl::StatusOr<CallerRole> role = ParseRole(arguments.role); !role.ok())
    return role.status();
  if (absl::Status jobs = CheckJobs(arguments.jobs); !jobs.ok()) return jobs;
  if (!IsPrintable(arguments.name) || arguments.name.size() > kMostNameBytes) {
    return absl::InvalidArgumentError("--name must be a short text of printable characters");
  }
  const absl::StatusOr<std::string> token = NewToken();
  if (!token.ok()) return token.status();
  Print(*token + "\n");
  Complain(absl::StrCat(arguments.role, " ", arguments.jobs, " ", ToString(HashOf(*token)),
                        arguments.name.empty() ? "" : " " + arguments.name, "\n"));
  return absl::OkStatus();
}

absl::Status RunDevCerts(const Arguments& arguments) {
  const std::string& folder = arguments.words[1];
  CertificateRequest request;
  request.names = {"DNS:localhost", "IP:127.0.0.1", "IP:::1"};
  for (const std::string& host : arguments.names) {
    absl::StatusOr<std::string> name = AlternativeName(host);
    if (!name.ok()) return name.status();
    request.names.push_back(*std::move(name));
  }
  // Clocks of machines differ.
  request.not_before = absl::Now() - absl::Hours(1);
  request.not_after = absl::Now() + arguments.lifetime;
  request.name = "Basin development CA";
  const absl::StatusOr<KeyPair> ca = MintCa(request);
  if (!ca.ok()) return ca.status();
  request.name = "basind";
  request.for_server = true;
  const absl::StatusOr<KeyPair> server = Mint(*ca, request);
  if (!server.ok()) return server.status();
  request.name = "client";
  request.names = {"DNS:client"};
  request.for_server = false;
  request.for_client = true;
  const absl::StatusOr<KeyPair> client = Mint(*ca, request);
  if (!client.ok()) return client.status();
  if (mkdir(folder.c_str(), 0700) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder ", folder, " cannot be made: ", std::strerror(errno), "; name a new folder"));
  }
  for (const auto& [name, text] : {std::pair{"/ca.crt", &ca->cert},
                                   {"/server.crt", &server->cert},
                                   {"/server.key", &server->key},
                                   {"/client.crt", &client->cert},
                                   {"/client.key", &client->key}}) {
    if (absl::Status written = WriteNewFile(folder + name, *text); !written.ok()) return written;
  }
  Print(absl::StrCat("aggregator: basind --tls-cert=", folder, "/server.crt --tls-key=", folder,
                     "/server.key\nworkers, basinctl: export BASIN_TLS_CA=", folder,
                     "/ca.crt\nWith --tls-client-ca=", folder,
                     "/ca.crt they also need: export BASIN_TLS_CERT=", folder,
                     "/client.crt BASIN_TLS_KEY=", folder, "/client.key\n"));
  return absl::OkStatus();
}

}  // namespace basin::aggregator
