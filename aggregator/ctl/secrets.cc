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
#include "runtime/text_file.h"

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

// Appends a line to a file of grants, or begins one. Refuses a file that basind would refuse.
absl::Status AppendGrant(const std::string& path, const std::string& line) {
  const int file = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--grants is ", path, ", which cannot be written: ", std::strerror(errno)));
  }
  const auto closed = [file](absl::Status status) {
    close(file);
    return status;
  };
  const absl::StatusOr<std::string> before = ReadTextFile(path);
  if (!before.ok()) return closed(before.status());
  const std::string added =
      absl::StrCat(before->empty() || before->back() == '\n' ? "" : "\n", line);
  if (const auto grants = Grants::Parse(*before + added); !grants.ok()) {
    return closed(absl::FailedPreconditionError(absl::StrCat(
        "--grants is ", path, ": ", grants.status().message(), "; nothing was added to it")));
  }
  // In one piece: basind and others see all of it or nothing.
  if (write(file, added.data(), added.size()) != static_cast<ssize_t>(added.size())) {
    return closed(absl::FailedPreconditionError(
        absl::StrCat("--grants is ", path, ", which cannot be written: ", std::strerror(errno))));
  }
  return closed(absl::OkStatus());
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
  const std::string line =
      absl::StrCat(arguments.role, " ", arguments.jobs, " ", ToString(HashOf(*token)),
                   arguments.name.empty() ? "" : " " + arguments.name, "\n");
  if (arguments.grants.empty()) {
    Print(*token + "\n");
    Complain(line);
    return absl::OkStatus();
  }
  // First, so that no token is printed that nothing is granted to.
  absl::Status appended = AppendGrant(arguments.grants, line);
  if (appended.ok()) Print(*token + "\n");
  return appended;
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
