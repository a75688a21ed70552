// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The first line of an HTTP request, which is all that a server of fixed pages needs of it.
//
// Thread contract: pure functions. Failure: none; an invalid request is refused with a status and a
// reason.

#ifndef BASIN_AGGREGATOR_HTTP_HTTP_REQUEST_H_
#define BASIN_AGGREGATOR_HTTP_HTTP_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace basin::aggregator {

// No path of ours is long, and no header of a probe is.
inline constexpr size_t kMostRequestBytes = 4096;

struct RequestSoFar {
  bool complete = false;  // True also when it is refused: no more of it is needed.
  int refusal = 0;        // 0, or the status of the answer.
  std::string why;
  std::string method;
  std::string path;  // Without the host, and without the part from '?' or '#' on.
};

// Parses the received bytes.
RequestSoFar ReadRequest(std::string_view bytes);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_HTTP_HTTP_REQUEST_H_
