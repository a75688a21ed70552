// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where something listens: "127.0.0.1:29600", "[::1]:29600", "localhost:0".
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT with a sentence that shows how to write it.

#ifndef BASIN_AGGREGATOR_TEXT_ADDRESS_H_
#define BASIN_AGGREGATOR_TEXT_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace basin::aggregator {

struct Address {
  std::string host;  // Without brackets.
  uint16_t port = 0;
};

absl::StatusOr<Address> ParseAddress(std::string_view text);

// Whether only processes of the same machine can reach it. A name other than localhost may be
// anything.
bool IsLoopback(const Address& address);

// "host:port", with brackets around an address of IPv6.
std::string ToString(const Address& address);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_ADDRESS_H_
