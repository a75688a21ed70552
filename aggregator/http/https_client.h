// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Asks one server over HTTPS, again and again, on a connection that is kept between requests.
//
// The server must present a certificate for the host of its address, of an authority in a file. The
// file is read for each connection, so it can be replaced.
//
// Thread contract: one thread. A request blocks for `timeout` or a little more; a host that is no
// address is resolved first, which the timeout does not limit.
// Failure: DEADLINE_EXCEEDED without an answer in time, UNAVAILABLE with the reason otherwise. The
// server may have carried the request out then. An answer with any status is no failure.

#ifndef BASIN_AGGREGATOR_HTTP_HTTPS_CLIENT_H_
#define BASIN_AGGREGATOR_HTTP_HTTPS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/http/http_server.h"
#include "aggregator/text/address.h"

namespace basin::aggregator {

struct HttpsRequest {
  enum class Method : uint8_t { kGet, kPost, kPut };
  Method method = Method::kGet;
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

class HttpsClient {
 public:
  HttpsClient(Address server, std::string ca_path);
  ~HttpsClient();
  HttpsClient(const HttpsClient&) = delete;
  HttpsClient& operator=(const HttpsClient&) = delete;

  // A GET on a connection that the server has closed meanwhile is sent again on a new one.
  absl::StatusOr<HttpPage> Ask(const HttpsRequest& request, absl::Duration timeout);

 private:
  class Connection;

  absl::StatusOr<HttpPage> AskOnce(const HttpsRequest& request, absl::Time until);

  // Constant after construction.
  const Address server_;
  const std::string ca_path_;

  std::unique_ptr<Connection> connection_;  // Null: the next request opens one.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTPS_CLIENT_H_
