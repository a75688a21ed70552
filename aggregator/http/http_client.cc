// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_client.h"

#include <civetweb.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// A page of ours is a few kilobytes; metrics of a large job, some hundred.
constexpr size_t kMostBytes = size_t{16} << 20;

struct Close {
  void operator()(mg_connection* connection) const { mg_close_connection(connection); }
};

std::string HostToAsk(const std::string& host) {
  if (host == "0.0.0.0" || host == "localhost") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

}  // namespace

absl::StatusOr<HttpPage> GetPage(const Address& address, const std::string& path,
                                 absl::Duration timeout) {
  const Address asked = {HostToAsk(address.host), address.port};
  char error[256] = {};
  const std::unique_ptr<mg_connection, Close> connection(
      mg_connect_client(asked.host.c_str(), asked.port, 0, error, sizeof(error)));
  if (connection == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("Nothing answers on ", ToString(asked), ": ", error));
  }
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", ToString(asked), "\r\n\r\n");
  mg_write(connection.get(), request.data(), request.size());
  if (mg_get_response(connection.get(), error, sizeof(error),
                      static_cast<int>(absl::ToInt64Milliseconds(timeout))) < 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("No answer from ", ToString(asked), path, ": ", error));
  }
  HttpPage page;
  page.status = mg_get_response_info(connection.get())->status_code;
  char piece[4096];
  int count = 0;
  while (page.body.size() < kMostBytes &&
         (count = mg_read(connection.get(), piece, sizeof(piece))) > 0) {
    page.body.append(piece, static_cast<size_t>(count));
  }
  return page;
}

}  // namespace basin::aggregator
