// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_request.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace basin::aggregator {
namespace {

RequestSoFar Refused(int status, const char* why) {
  RequestSoFar request;
  request.complete = true;
  request.refusal = status;
  request.why = why;
  return request;
}

// "/path" of "/path?query", and of "http://host/path", as a proxy asks for it.
std::string PathOf(std::string_view target) {
  const size_t scheme = target.find("://");
  if (scheme != std::string_view::npos && !absl::StartsWith({target.data(), target.size()}, "/")) {
    const size_t path = target.find('/', scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  return std::string(target.substr(0, target.find_first_of("?#")));
}

}  // namespace

RequestSoFar ReadRequest(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (!absl::ascii_isupper(static_cast<unsigned char>(bytes.front()))) {
    return Refused(400, "This is not an HTTP request. The port speaks HTTP/1.1 without TLS.");
  }
  if (absl::StartsWith({bytes.data(), bytes.size()}, "PRI ")) {
    return Refused(400, "The port speaks HTTP/1.1, not HTTP/2.");
  }
  const bool ended = bytes.find("\r\n\r\n") != std::string_view::npos ||
                     bytes.find("\n\n") != std::string_view::npos;
  if (!ended) {
    if (bytes.size() < kMostRequestBytes) return {};
    return Refused(431, "A request may have at most 4096 bytes.");
  }
  std::string_view line = bytes.substr(0, bytes.find('\n'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) {
    return Refused(400, "This is not an HTTP/1.1 request.");
  }
  RequestSoFar request;
  request.complete = true;
  request.method = words[0];
  request.path = PathOf(words[1]);
  return request;
}

}  // namespace basin::aggregator
