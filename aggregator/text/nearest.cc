// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/nearest.h"

#include <algorithm>

namespace basin::aggregator {
namespace {

// No option has a name of this length; a longer word is not a typing error.
constexpr size_t kLongestName = 128;

bool IsSeparator(char c) { return c == '.' || c == '-' || c == '_'; }

// Whether `name` is `known` without words or letters at one end.
bool IsPartOf(std::string_view name, std::string_view known) {
  if (name.size() < 3 || known.size() <= name.size()) return false;
  const size_t rest = known.size() - name.size();
  return known.substr(0, name.size()) == name ||
         (known.substr(rest) == name && IsSeparator(known[rest - 1]));
}

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string Nearest(std::string_view name, const std::vector<std::string>& known) {
  if (name.size() > kLongestName) return "";
  // A third of the characters may be wrong: more, and it is another word.
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return nearest;
  for (const std::string& candidate : known) {
    if (!IsPartOf(name, candidate)) continue;
    if (nearest.empty() || candidate.size() < nearest.size()) nearest = candidate;
  }
  return nearest;
}

}  // namespace basin::aggregator
