// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/peer.h"

namespace basin {

std::string AddressIn(const std::string& peer) {
  const size_t begin = peer.find(':') + 1;
  const size_t end = peer.rfind(':');
  if (end == std::string::npos || end < begin) return peer;
  const std::string address = peer.substr(begin, end - begin);
  // gRPC writes the brackets of an IPv6 address in this form.
  const size_t size = address.size();
  const bool in_brackets =
      size > 6 && address.compare(0, 3, "%5B") == 0 && address.compare(size - 3, 3, "%5D") == 0;
  return in_brackets ? address.substr(3, size - 6) : address;
}

}  // namespace basin
