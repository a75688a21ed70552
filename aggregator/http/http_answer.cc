// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_answer.h"

#include <event2/buffer.h>

#include "absl/status/status.h"

namespace basin::aggregator {

absl::StatusOr<HttpPage> AnswerIn(evhttp_request* request) {
  // An answer has a code; libevent also calls back with a request that failed.
  if (request == nullptr || evhttp_request_get_response_code(request) == 0) {
    return absl::UnavailableError("the connection failed");
  }
  HttpPage page;
  page.status = evhttp_request_get_response_code(request);
  evbuffer* const body = evhttp_request_get_input_buffer(request);
  page.body.resize(evbuffer_get_length(body));
  evbuffer_copyout(body, page.body.data(), page.body.size());
  return page;
}

}  // namespace basin::aggregator
