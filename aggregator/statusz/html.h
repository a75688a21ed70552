// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes HTML. Markup can only be a literal of this program; everything else is text, which is
// escaped. So a name that a peer chose cannot become markup.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_STATUSZ_HTML_H_
#define BASIN_AGGREGATOR_STATUSZ_HTML_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace basin::aggregator {

// `text` as it may stand between tags and within a quoted attribute. Characters that cannot be
// shown on one line, among them changes of direction, become '?'; a very long text is cut.
std::string EscapedForHtml(std::string_view text);

class Html {
 public:
  // Markup.
  template <size_t kSize>
  Html& Tag(const char (&literal)[kSize]) {
    body_.append(literal, kSize - 1);
    return *this;
  }
  // Anything else.
  Html& Text(std::string_view text) {
    body_ += EscapedForHtml(text);
    return *this;
  }
  // The content of another Html.
  Html& Add(const Html& part) {
    body_ += part.body_;
    return *this;
  }

  std::string Take() { return std::move(body_); }

 private:
  std::string body_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_HTML_H_
