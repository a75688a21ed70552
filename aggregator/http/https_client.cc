// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/https_client.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/http/http_answer.h"
#include "aggregator/http/libevent.h"
#include "aggregator/tls/sessions.h"
#include "runtime/clock.h"

namespace basin::aggregator {
namespace {

// An object of an API has a few kilobytes.
constexpr ev_ssize_t kMostAnswerBytes = ev_ssize_t{1} << 20;

evhttp_cmd_type CommandOf(HttpsRequest::Method method) {
  switch (method) {
    case HttpsRequest::Method::kPost:
      return EVHTTP_REQ_POST;
    case HttpsRequest::Method::kPut:
      return EVHTTP_REQ_PUT;
    case HttpsRequest::Method::kGet:
      break;
  }
  return EVHTTP_REQ_GET;
}

absl::Status NoMemoryToAsk() {
  return absl::UnavailableError("there is no memory for the request");
}

}  // namespace

// One connection, and the loop that serves it.
class HttpsClient::Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Address& server,
                                                          const std::string& ca_path) {
    absl::StatusOr<TlsSessionPtr> session = BeginClient(ca_path, server.host);
    if (!session.ok()) return absl::UnavailableError(session.status().message());
    std::unique_ptr<Connection> connection(new Connection(server, *std::move(session)));
    if (connection->http_ == nullptr) return NoMemoryToAsk();
    return connection;
  }
  ~Connection() {
    timer_.reset();
    http_.reset();
    // Whatever libevent has put off.
    if (base_ != nullptr) event_base_loop(base_.get(), EVLOOP_NONBLOCK);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Whether the server has closed it.
  bool Closed() {
    event_base_loop(base_.get(), EVLOOP_NONBLOCK);
    return closed_;
  }

  absl::StatusOr<HttpPage> Ask(const HttpsRequest& request, absl::Duration timeout) {
    answer_.reset();
    late_ = false;
    // Owned by the connection from the call of evhttp_make_request on.
    evhttp_request* const asked = evhttp_request_new(
        [](evhttp_request* done, void* connection) {
          static_cast<Connection*>(connection)->answer_ = AnswerIn(done);
        },
        this);
    if (asked == nullptr) return NoMemoryToAsk();
    evkeyvalq* const headers = evhttp_request_get_output_headers(asked);
    evhttp_add_header(headers, "Host", host_.c_str());
    for (const auto& [name, value] : request.headers) {
      evhttp_add_header(headers, name.c_str(), value.c_str());
    }
    evbuffer_add(evhttp_request_get_output_buffer(asked), request.body.data(), request.body.size());
    const timeval patience = absl::ToTimeval(timeout);
    event_add(timer_.get(), &patience);
    if (evhttp_make_request(http_.get(), asked, CommandOf(request.method), request.path.c_str()) !=
        0) {
      return NoMemoryToAsk();
    }
    // Its head and its body are sent apart, and the second one would wait for an acknowledgement.
    const int on = 1;
    setsockopt(bufferevent_getfd(evhttp_connection_get_bufferevent(http_.get())), IPPROTO_TCP,
               TCP_NODELAY, &on, sizeof(on));
    while (!answer_.has_value() && !late_) event_base_loop(base_.get(), EVLOOP_ONCE);
    event_del(timer_.get());
    if (!answer_.has_value()) {
      return absl::DeadlineExceededError(
          absl::StrCat("no answer came within ", absl::FormatDuration(timeout)));
    }
    if (answer_->ok()) return *std::move(answer_);
    const std::string why = WhyNotVerified(session_.get());
    return absl::UnavailableError(why.empty()
                                      ? "it cannot be reached, or closed the connection"
                                      : absl::StrCat("its certificate is not accepted: ", why));
  }

 private:
  Connection(const Address& server, TlsSessionPtr session)
      : host_(ToString(server)), session_(std::move(session)), base_(event_base_new()) {
    if (base_ == nullptr) return;
    timer_.reset(event_new(
        base_.get(), -1, 0,
        [](evutil_socket_t, short, void* late) { *static_cast<bool*>(late) = true; }, &late_));
    StreamPtr stream(bufferevent_openssl_socket_new(
        base_.get(), -1, session_.get(), BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE));
    if (stream != nullptr) SSL_up_ref(session_.get());  // The stream has the other reference.
    if (timer_ == nullptr || stream == nullptr) return;
    // Servers often close without a word of TLS.
    bufferevent_openssl_set_allow_dirty_shutdown(stream.get(), 1);
    http_.reset(evhttp_connection_base_bufferevent_new(base_.get(), nullptr, stream.get(),
                                                       server.host.c_str(), server.port));
    if (http_ == nullptr) return;
    (void)stream.release();  // To the connection.
    evhttp_connection_set_max_body_size(http_.get(), kMostAnswerBytes);
    evhttp_connection_set_retries(http_.get(), 0);
    evhttp_connection_set_closecb(
        http_.get(), [](evhttp_connection*, void* closed) { *static_cast<bool*>(closed) = true; },
        &closed_);
  }

  const std::string host_;
  // Callbacks write these.
  bool closed_ = false;
  bool late_ = false;
  std::optional<absl::StatusOr<HttpPage>> answer_;

  TlsSessionPtr session_;
  BasePtr base_;
  TimerPtr timer_;
  HttpConnectionPtr http_;
};

HttpsClient::HttpsClient(Address server, std::string ca_path)
    : server_(std::move(server)), ca_path_(std::move(ca_path)) {}

HttpsClient::~HttpsClient() = default;

absl::StatusOr<HttpPage> HttpsClient::Ask(const HttpsRequest& request, absl::Duration timeout) {
  const absl::Time until = MonotonicClock().Now() + timeout;
  if (connection_ != nullptr && connection_->Closed()) connection_.reset();
  const bool kept = connection_ != nullptr;
  absl::StatusOr<HttpPage> answer = AskOnce(request, until);
  const bool repeats = kept && request.method == HttpsRequest::Method::kGet;
  if (repeats && absl::IsUnavailable(answer.status())) answer = AskOnce(request, until);
  return answer;
}

absl::StatusOr<HttpPage> HttpsClient::AskOnce(const HttpsRequest& request, absl::Time until) {
  if (connection_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Connection>> opened = Connection::Open(server_, ca_path_);
    if (!opened.ok()) return opened.status();
    connection_ = *std::move(opened);
  }
  const absl::Duration left = std::max(until - MonotonicClock().Now(), absl::ZeroDuration());
  absl::StatusOr<HttpPage> answer = connection_->Ask(request, left);
  if (!answer.ok()) connection_.reset();
  return answer;
}

}  // namespace basin::aggregator
