// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/kubernetes/fake_api_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using Json = nlohmann::json;

constexpr char kFirstToken[] = "first-token";

std::string MethodOf(evhttp_request* request) {
  switch (evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET:
      return "GET";
    case EVHTTP_REQ_POST:
      return "POST";
    case EVHTTP_REQ_PUT:
      return "PUT";
    default:
      return "other";
  }
}

std::string BodyOf(evhttp_request* request) {
  evbuffer* const input = evhttp_request_get_input_buffer(request);
  std::string body(evbuffer_get_length(input), '\0');
  evbuffer_copyout(input, body.data(), body.size());
  return body;
}

Json StatusOf(int code, const std::string& message) {
  return {{"kind", "Status"}, {"code", code}, {"message", message}};
}

bufferevent* StreamOf(evhttp_request* request) {
  return evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
}

void Reply(evhttp_request* request, int code, const std::string& body) {
  // As a real one: its head and its body are sent apart.
  const int on = 1;
  setsockopt(bufferevent_getfd(StreamOf(request)), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  evbuffer_add(evhttp_request_get_output_buffer(request), body.data(), body.size());
  evhttp_send_reply(request, code, "", nullptr);
}

// Ends the connection, so that libevent notices it and frees the request.
void HangUp(evhttp_request* request) { shutdown(bufferevent_getfd(StreamOf(request)), SHUT_RDWR); }

}  // namespace

FakeApiServer::FakeApiServer(std::vector<std::string> names)
    : wake_(eventfd(0, EFD_CLOEXEC)), base_(event_base_new()) {
  // Writing to a connection that the other end has closed must not end the test.
  signal(SIGPIPE, SIG_IGN);
  CertificateRequest request = Valid();
  request.names = std::move(names);
  absl::StatusOr<std::unique_ptr<TlsSessions>> tls =
      TlsSessions::Open(pki_.Server("server", request));
  EXPECT_TRUE(tls.ok()) << tls.status();
  tls_ = *std::move(tls);
  pki_.Write("namespace", "training");
  ReplaceToken(kFirstToken);
  http_.reset(evhttp_new(base_.get()));
  evhttp_set_bevcb(
      http_.get(),
      [](event_base* base, void* self) {
        auto* const server = static_cast<FakeApiServer*>(self);
        {
          MutexLock lock(server->mutex_);
          ++server->connections_;
        }
        return bufferevent_openssl_socket_new(base, -1, server->tls_->Begin().release(),
                                              BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
      },
      this);
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT);
  evhttp_set_gencb(
      http_.get(),
      [](evhttp_request* request, void* self) {
        static_cast<FakeApiServer*>(self)->Serve(request);
      },
      this);
  evhttp_bound_socket* const bound = evhttp_bind_socket_with_handle(http_.get(), "127.0.0.1", 0);
  EXPECT_NE(bound, nullptr);
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  EXPECT_EQ(0, getsockname(evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&address),
                           &size));
  port_ = ntohs(address.sin_port);
  woken_.reset(event_new(
      base_.get(), wake_, EV_READ,
      [](evutil_socket_t, short, void* base) {
        event_base_loopbreak(static_cast<event_base*>(base));
      },
      base_.get()));
  event_add(woken_.get(), nullptr);
  thread_ = std::thread([this] { event_base_dispatch(base_.get()); });
}

FakeApiServer::~FakeApiServer() {
  eventfd_write(wake_, 1);
  thread_.join();
  http_.reset();
  woken_.reset();
  event_base_loop(base_.get(), EVLOOP_NONBLOCK);
  base_.reset();
  close(wake_);
}

void FakeApiServer::ReplaceToken(const std::string& token) {
  MutexLock lock(mutex_);
  token_ = token;
  // As the kubelet writes it: by renaming. An editor would end it with a line.
  pki_.Write("token", token + "\n");
}

void FakeApiServer::Decide(std::function<ApiFate()> fate) {
  MutexLock lock(mutex_);
  fate_ = std::move(fate);
}

void FakeApiServer::DecideNext(ApiFate fate) {
  MutexLock lock(mutex_);
  next_.push_back(fate);
}

std::string FakeApiServer::PathOf(const std::string& space, const std::string& name) {
  return absl::StrCat("/apis/coordination.k8s.io/v1/namespaces/", space, "/leases/", name);
}

Json FakeApiServer::Lease(const std::string& space, const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = leases_.find(PathOf(space, name));
  return found == leases_.end() ? Json() : found->second;
}

void FakeApiServer::Put(const std::string& space, const std::string& name, Json lease) {
  MutexLock lock(mutex_);
  if (lease.is_null()) {
    leases_.erase(PathOf(space, name));
  } else {
    Store(PathOf(space, name), std::move(lease), 200);
  }
}

std::vector<std::string> FakeApiServer::Asked() const {
  MutexLock lock(mutex_);
  return asked_;
}

uint64_t FakeApiServer::connections() const {
  MutexLock lock(mutex_);
  return connections_;
}

void FakeApiServer::Serve(evhttp_request* request) {
  const std::string method = MethodOf(request);
  const std::string path = evhttp_request_get_uri(request);
  const std::string body = BodyOf(request);
  const char* const credential =
      evhttp_find_header(evhttp_request_get_input_headers(request), "Authorization");
  ApiFate fate = ApiFate::kWell;
  Answer answer;
  {
    MutexLock lock(mutex_);
    asked_.push_back(absl::StrCat(method, " ", path));
    if (!next_.empty()) {
      fate = next_.front();
      next_.pop_front();
    } else if (fate_ != nullptr) {
      fate = fate_();
    }
    if (credential == nullptr || credential != absl::StrCat("Bearer ", token_)) {
      answer = {401, StatusOf(401, "Unauthorized")};
    } else if (fate == ApiFate::kForbidden) {
      answer = {403, StatusOf(403, "leases.coordination.k8s.io is forbidden.")};
    } else if (fate == ApiFate::kBroken) {
      answer = {500, StatusOf(500, "etcdserver: request timed out")};
    } else if (fate != ApiFate::kSilent && fate != ApiFate::kHungUp) {
      answer = Do(method, path, body);
    }
  }
  switch (fate) {
    case ApiFate::kSilent:
      return;
    case ApiFate::kHungUp:
    case ApiFate::kAnswerLost:
      return HangUp(request);
    case ApiFate::kNonsense:
      return Reply(request, answer.code, "<html>");
    case ApiFate::kClosedAfterwards:
      evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
      return Reply(request, answer.code, answer.body.dump());
    case ApiFate::kWell:
    case ApiFate::kForbidden:
    case ApiFate::kBroken:
      return Reply(request, answer.code, answer.body.dump());
  }
}

FakeApiServer::Answer FakeApiServer::Do(const std::string& method, const std::string& path,
                                        const std::string& body) {
  const auto found = leases_.find(path);
  if (method == "GET") {
    if (found == leases_.end()) return {404, StatusOf(404, "leases not found")};
    return {200, found->second};
  }
  Json lease = Json::parse(body, nullptr, false);
  if (lease.is_discarded()) return {400, StatusOf(400, "it is no JSON")};
  if (method == "POST") {
    const std::string made = absl::StrCat(path, "/", lease["metadata"]["name"].get<std::string>());
    if (leases_.count(made) > 0) return {409, StatusOf(409, "leases already exists")};
    return Store(made, std::move(lease), 201);
  }
  if (found == leases_.end()) return {404, StatusOf(404, "leases not found")};
  const auto version = [](const Json& of) { return of["metadata"]["resourceVersion"]; };
  if (version(lease) != version(found->second)) {
    return {409, StatusOf(409, "the object has been modified")};
  }
  return Store(path, std::move(lease), 200);
}

FakeApiServer::Answer FakeApiServer::Store(const std::string& path, Json lease, int code) {
  const Json& spec = lease["spec"];
  // As the server validates it: both have 32 bits.
  for (const char* key : {"leaseDurationSeconds", "leaseTransitions"}) {
    if (!spec.contains(key)) continue;
    if (!spec[key].is_number_integer() || spec[key] < 0 || spec[key] > 0x7fffffff) {
      return {422, StatusOf(422, absl::StrCat("spec.", key, " is invalid"))};
    }
  }
  lease["metadata"]["resourceVersion"] = absl::StrCat(++versions_);
  leases_[path] = lease;
  return {code, lease};
}

}  // namespace basin::aggregator
