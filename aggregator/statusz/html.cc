// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/html.h"

#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

std::string EscapedForHtml(std::string_view text) {
  std::string escaped;
  for (const char c : PrintableText(text, kMaxTextBytes)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace basin::aggregator
