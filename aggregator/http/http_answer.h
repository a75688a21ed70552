// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the clients of this folder take from a request that libevent has carried out.
//
// Thread contract: a pure function. Failure: UNAVAILABLE if there is no answer.

#ifndef BASIN_AGGREGATOR_HTTP_HTTP_ANSWER_H_
#define BASIN_AGGREGATOR_HTTP_HTTP_ANSWER_H_

#include <event2/http.h>

#include "absl/status/statusor.h"
#include "aggregator/http/http_server.h"

namespace basin::aggregator {

// `request`: what libevent gives to the callback of a request; null if its connection failed.
absl::StatusOr<HttpPage> AnswerIn(evhttp_request* request);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTP_ANSWER_H_
