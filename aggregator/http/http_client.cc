// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_client.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/http/http_answer.h"
#include "aggregator/http/libevent.h"
#include "aggregator/tls/sessions.h"

namespace basin::aggregator {
namespace {

// A page of ours is a few kilobytes; metrics of a large job, some hundred.
constexpr ev_ssize_t kMostBytes = ev_ssize_t{16} << 20;

std::string HostToAsk(const std::string& host) {
  if (host == "0.0.0.0" || host == "localhost") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

// How a request ended; nothing while it goes on.
using Outcome = std::optional<absl::StatusOr<HttpPage>>;

void TakeAnswer(evhttp_request* request, void* of) {
  Outcome& outcome = *static_cast<Outcome*>(of);
  if (!outcome.has_value()) outcome = AnswerIn(request);
}

// The stream of a connection that does not exist yet; null if there is no memory for it.
bufferevent* StreamOf(event_base* base, bool tls) {
  if (!tls) return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  TlsSessionPtr session = BeginUnverifiedClient();
  if (session == nullptr) return nullptr;
  bufferevent* const stream = bufferevent_openssl_socket_new(
      base, -1, session.get(), BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
  if (stream == nullptr) return nullptr;
  (void)session.release();  // To the stream.
  bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
  return stream;
}

}  // namespace

absl::StatusOr<HttpPage> GetPage(const Address& address, bool tls, const std::string& path,
                                 absl::Duration timeout) {
  const Address asked = {HostToAsk(address.host), address.port};
  const absl::Status no_memory = absl::ResourceExhaustedError("There is no memory for a request.");
  const BasePtr base(event_base_new());
  if (base == nullptr) return no_memory;
  bufferevent* const stream = StreamOf(base.get(), tls);
  if (stream == nullptr) return no_memory;
  Outcome outcome;
  // Owns the stream.
  const HttpConnectionPtr connection(evhttp_connection_base_bufferevent_new(
      base.get(), nullptr, stream, asked.host.c_str(), asked.port));
  evhttp_request* const request = evhttp_request_new(TakeAnswer, &outcome);
  if (connection == nullptr || request == nullptr) return no_memory;
  evhttp_connection_set_max_body_size(connection.get(), kMostBytes);
  evhttp_connection_set_retries(connection.get(), 0);
  evkeyvalq* const headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Host", ToString(asked).c_str());
  evhttp_add_header(headers, "Connection", "close");
  // Owns the request.
  if (evhttp_make_request(connection.get(), request, EVHTTP_REQ_GET, path.c_str()) != 0) {
    return no_memory;
  }
  const timeval patience = absl::ToTimeval(timeout);
  event_base_loopexit(base.get(), &patience);
  while (!outcome.has_value()) {
    event_base_loop(base.get(), EVLOOP_ONCE);
    if (event_base_got_exit(base.get())) break;
  }
  if (!outcome.has_value()) {
    // What still comes must find no outcome that has gone.
    outcome = absl::DeadlineExceededError(absl::StrCat(
        "No answer from ", ToString(asked), path, " within ", absl::FormatDuration(timeout), "."));
  } else if (absl::IsUnavailable(outcome->status())) {
    outcome = absl::UnavailableError(
        absl::StrCat("Nothing answers on ", ToString(asked), tls ? " with TLS." : "."));
  }
  return *std::move(outcome);
}

}  // namespace basin::aggregator
