// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

// Far more than the probes of a kubelet and its scrapers need: a peer that connects and says
// nothing holds one until its timeout, and a probe that finds none in time ends a healthy
// aggregator.
constexpr char kThreads[] = "32";

// For a request to arrive, and for a peer that reads nothing of the answer.
constexpr char kTimeoutMilliseconds[] = "1000";

// Connections that wait for a thread; beyond it the kernel's own queue fills and refuses.
constexpr char kWaitingConnections[] = "20";

// How soon we see that it has stopped.
constexpr std::chrono::milliseconds kKnockEvery{20};

// No path of ours is long.
constexpr char kRequestBytes[] = "4096";

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// civetweb sees that it is to stop when somebody connects, or else after two seconds.
void Knock(const Address& address) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return;
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(address.port);
  if (inet_pton(AF_INET, address.host.c_str(), &where.sin_addr) != 1) {
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  // Whether it succeeds does not matter: the attempt wakes the other end.
  static_cast<void>(connect(descriptor, reinterpret_cast<const sockaddr*>(&where), sizeof(where)));
  close(descriptor);
}

void Send(mg_connection* connection, const HttpPage& page, bool with_body) {
  // Nothing here is a document of its own, whatever a browser may think.
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", page.status, " ", ReasonOf(page.status), "\r\nContent-Type: ", page.type,
      "\r\nContent-Length: ", page.body.size(), "\r\nCache-Control: no-store\r\n",
      page.status == 405 ? "Allow: GET, HEAD\r\n" : "",
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  const std::string text = with_body ? head + page.body : head;
  mg_write(connection, text.data(), text.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Address& address, Pages pages) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(pages)));
  // civetweb listens on addresses, not on names.
  Address numeric = address;
  if (numeric.host == "localhost") numeric.host = "127.0.0.1";
  if (numeric.host.find(':') != std::string::npos && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return absl::UnavailableError(
        absl::StrCat("http.listen: cannot listen on ", ToString(address),
                     ": the HTTP library (civetweb) was built without IPv6. Listen on 0.0.0.0, or "
                     "use a build with IPv6."));
  }
  const std::string listen = ToString(numeric);
  const char* options[] = {"listening_ports",
                           listen.c_str(),
                           "num_threads",
                           kThreads,
                           "request_timeout_ms",
                           kTimeoutMilliseconds,
                           "max_request_size",
                           kRequestBytes,
                           "connection_queue",
                           kWaitingConnections,
                           "enable_keep_alive",
                           "no",
                           nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = &OnRequest;
  // What civetweb says goes nowhere: it would be on stderr, unescaped.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  mg_init_library(MG_FEATURES_DEFAULT);
  server->context_ = mg_start(&callbacks, server.get(), options);
  mg_server_port port = {};
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &port) != 1) {
    return absl::UnavailableError(
        absl::StrCat("http.listen: cannot listen on ", ToString(address),
                     ". Check that the address is one of this host's and that nobody else has the "
                     "port, or choose another with --http-listen."));
  }
  server->address_ = {address.host, static_cast<uint16_t>(port.port)};
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) Stop();
  mg_exit_library();
}

void HttpServer::Stop() {
  Mutex mutex;
  Condition changed;
  bool stopped = false;
  std::thread stopping([&] {
    mg_stop(context_);
    MutexLock lock(mutex);
    stopped = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    while (!stopped) {
      Knock(address_);
      changed.WaitUntil(mutex, std::chrono::steady_clock::now() + kKnockEvery);
    }
  }
  stopping.join();
}

int HttpServer::OnRequest(mg_connection* connection) {
  const auto* server = static_cast<const HttpServer*>(mg_get_user_data(mg_get_context(connection)));
  return server->Answer(connection);
}

// Not 0: the request is dealt with; civetweb must not look for a file.
int HttpServer::Answer(mg_connection* connection) const {
  const mg_request_info* request = mg_get_request_info(connection);
  const std::string_view method = request->request_method;
  if (method != "GET" && method != "HEAD") {
    Send(connection, {405, "text/plain; charset=utf-8", "Only GET and HEAD.\n"}, true);
    return 405;
  }
  const auto page = pages_.find(request->local_uri == nullptr ? "" : request->local_uri);
  if (page == pages_.end()) {
    std::string paths = "There is:";
    for (const auto& [path, answer] : pages_) absl::StrAppend(&paths, " ", path);
    Send(connection, {404, "text/plain; charset=utf-8", paths + "\n"}, method == "GET");
    return 404;
  }
  const HttpPage answer = page->second();
  Send(connection, answer, method == "GET");
  return answer.status;
}

}  // namespace basin::aggregator
