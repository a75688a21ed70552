// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A small HTTP server for probes and scrapers: a few fixed paths, read only, no state of peers. Who
// connects has a second to ask, so that those who do not are in nobody's way for longer.
//
// Thread contract: Start and the destructor from one thread. Pages are called from threads of the
// server, several at a time.
// Failure: UNAVAILABLE when the address cannot be listened on.

#ifndef BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_
#define BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "aggregator/config/address.h"

struct mg_context;
struct mg_connection;

namespace basin::aggregator {

struct HttpPage {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // By path ("/metrics"). Each must answer soon; there are few threads.
  using Pages = std::map<std::string, std::function<HttpPage()>>;

  // With port 0 the system chooses one.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Address& address, Pages pages);
  // Waits for pages that are being answered.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the real port.
  const Address& address() const { return address_; }

 private:
  explicit HttpServer(Pages pages) : pages_(std::move(pages)) {}
  void Stop();
  int Answer(mg_connection* connection) const;
  static int OnRequest(mg_connection* connection);

  const Pages pages_;
  Address address_;
  mg_context* context_ = nullptr;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTP_SERVER_H_
