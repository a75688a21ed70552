// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the TLS files of a server, because gRPC itself would report nothing about them.
// `prefix` begins the names of the options, "tls." or "http.tls_".
//
// Thread contract: reads files; safe from any thread.

#ifndef BASIN_AGGREGATOR_TLS_FILES_H_
#define BASIN_AGGREGATOR_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

// When the first of the certificates expires: of tls.cert and its chain, and of every CA in
// tls.client_ca, or the same of another prefix. InfiniteFuture when TLS is off.
//
// Failure: INVALID_ARGUMENT names the option, the file, the mistake, and what to do: a file that
// cannot be read or is no PEM, a key that does not fit, a certificate that is not valid at `now`
// or not meant for a server.
absl::StatusOr<absl::Time> CheckServerTls(const ServerTls& tls, const std::string& prefix,
                                          absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TLS_FILES_H_
