// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Asks an aggregator's HTTP port for a page: a probe that needs no other program in the container.
//
// Thread contract: blocks, for `timeout` or a little more. Failure: UNAVAILABLE if nothing listens
// there, DEADLINE_EXCEEDED without an answer.

#ifndef BASIN_AGGREGATOR_HTTP_HTTP_CLIENT_H_
#define BASIN_AGGREGATOR_HTTP_HTTP_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/http/http_server.h"
#include "aggregator/text/address.h"

namespace basin::aggregator {

// An address that stands for all of this host's is asked as its loopback. With TLS, the certificate
// is not checked: a probe asks whether its own process answers.
absl::StatusOr<HttpPage> GetPage(const Address& address, bool tls, const std::string& path,
                                 absl::Duration timeout);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTP_CLIENT_H_
