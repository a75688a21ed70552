// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A small HTTP server for probes, scrapers and people: a few fixed paths, read only, no state of
// peers.
//
// One thread holds all connections and waits for none of them: a silent connection costs a
// descriptor for a second, and when there are too many, from one address or in total, the oldest of
// the address that has most of them is closed, unless it waits for its answer. So a probe, which
// sends its request as soon as it is connected, is answered at once, regardless of silent
// connections. With the thread pool of a general HTTP server, as many silent connections as threads
// would block all requests.
//
// libevent reads and writes, with TLS or without it. With TLS, a handshake must end within a second
// too. When the sessions verify clients, pages are only for clients with a certificate; probes are
// for all, because a kubelet has none.
//
// Thread contract: Start and the destructor from one thread. Probes and `report` are called from
// the thread that holds the connections, so they must not block; pages, which may, from another,
// one at a time. Failure: UNAVAILABLE when the address cannot be listened on.

#ifndef BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_
#define BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "aggregator/text/address.h"
#include "aggregator/tls/sessions.h"
#include "runtime/grpc/listener.h"

namespace basin::aggregator {

struct HttpPage {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// Since the start.
struct HttpCounters {
  std::atomic<uint64_t> accept_failures{0};  // No file descriptor was left for a connection.
  std::atomic<uint64_t> tls_failures{0};     // Connections whose handshake failed.
  std::atomic<uint64_t> uncertified{0};      // Requests that lacked a client certificate.
};

// REQUIRES: what the pointers name outlives the server.
struct HttpOptions {
  Address address;  // With port 0 the system chooses one.
  HttpCounters* counters = nullptr;
  const TlsSessions* tls = nullptr;  // Null: without TLS.
  // Why a connection from this address was refused, as a sentence.
  std::function<void(const std::string& address, const std::string& what)> report = nullptr;
};

class HttpServer {
 public:
  // By path ("/metrics").
  using Pages = std::map<std::string, std::function<HttpPage()>>;

  // REQUIRES: counters are given.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpOptions options, Pages probes,
                                                           Pages pages = {});
  // Waits for the page that is being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the real port.
  const Address& address() const { return address_; }

 private:
  class Loop;

  HttpServer() = default;

  Address address_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_
