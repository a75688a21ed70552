// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the TLS files of a server, because gRPC itself would report nothing about them.
// `prefix` begins the names of the options, "tls." or "http.tls_".
//
// Thread contract: reads files; safe from any thread.

#ifndef BASIN_AGGREGATOR_TLS_FILES_H_
#define BASIN_AGGREGATOR_TLS_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

struct TlsCheck {
  // INVALID_ARGUMENT names the option, the file, the mistake, and what to do: a file that cannot be
  // read or is no PEM, a key that does not fit, a certificate that is not valid at `now` or not
  // meant for a server, or no CA of the clients that is valid.
  absl::Status status;
  // When the server's certificate, or the first of its chain, or the last CA of the clients
  // expires; in the past if that has happened. InfiniteFuture when TLS is off, or if a file of
  // certificates cannot be read.
  absl::Time expires = absl::InfiniteFuture();
  // Sentences about CAs of the clients that are not valid beside others that are.
  std::vector<std::string> warnings;
};

TlsCheck CheckServerTls(const ServerTls& tls, const std::string& prefix, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TLS_FILES_H_
