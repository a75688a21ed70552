// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/peer.h"

namespace basin {

std::string AddressIn(const std::string& peer) {
  const size_t begin = peer.find(':') + 1;
  const size_t end = peer.rfind(':');
  return end == std::string::npos || end < begin ? peer : peer.substr(begin, end - begin);
}

}  // namespace basin
