// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "aggregator/text/units.h"
#include "protocol/limits/limits.h"

namespace basin::aggregator {
namespace {

bool IsVersion4(const std::string& host) {
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool IsVersion6(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsName(const std::string& host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  });
}

// Only digits and dots: an address that has a mistake, not a name.
bool LooksLikeVersion4(const std::string& host) {
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
}

}  // namespace

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      "write host:port, for example 127.0.0.1:29600, 0.0.0.0:29600 or [::]:29600");
  const size_t colon = text.rfind(':');
  if (text.size() > kMaxEndpointBytes || colon == std::string_view::npos) return wrong;
  const absl::StatusOr<uint64_t> port = ParseCount(text.substr(colon + 1));
  if (!port.ok()) return wrong;
  if (*port > 65535) return absl::InvalidArgumentError("a port is at most 65535");

  std::string host(text.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!IsVersion6(host)) return wrong;
  } else if (LooksLikeVersion4(host) ? !IsVersion4(host) : !IsName(host)) {
    return wrong;
  }
  return Address{std::move(host), static_cast<uint16_t>(*port)};
}

bool IsLoopback(const Address& address) {
  return address.host == "localhost" || address.host == "::1" ||
         (IsVersion4(address.host) && address.host.rfind("127.", 0) == 0);
}

std::string ToString(const Address& address) {
  const bool version6 = address.host.find(':') != std::string::npos;
  return version6 ? absl::StrCat("[", address.host, "]:", address.port)
                  : absl::StrCat(address.host, ":", address.port);
}

}  // namespace basin::aggregator
