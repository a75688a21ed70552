// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/optimizer_numbers.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::aggregator {
namespace {

// A text names no more numbers of a worker than this, and no more bytes of them: with those of the
// other worker and all else it is shorter than a text can be.
constexpr size_t kMostNamed = 5;
constexpr size_t kMostNamedBytes = 600;

using Lines = std::vector<std::string>;

uint64_t BytesOf(const Lines& lines) {
  uint64_t bytes = 0;
  for (const std::string& line : lines) bytes += line.size() + sizeof(std::string);
  return bytes;
}

// "lr" of "lr=0.1 in all groups".
std::string KeyOf(const std::string& line) { return line.substr(0, line.find('=')); }

// What `mine` has that `theirs` has not, in their order.
Lines Only(const Lines& mine, const Lines& theirs) {
  const std::set<std::string> known(theirs.begin(), theirs.end());
  Lines only;
  for (const std::string& line : mine) {
    if (known.count(line) == 0) only.push_back(line);
  }
  return only;
}

// "lr=0.1 in all groups, no momentum and 2 more".
std::string Named(const Lines& mine, const Lines& theirs) {
  std::set<std::string> keys;
  for (const std::string& line : mine) keys.insert(KeyOf(line));
  Lines all = mine;
  for (const std::string& line : theirs) {
    if (keys.insert(KeyOf(line)).second) all.push_back(absl::StrCat("no ", KeyOf(line)));
  }
  size_t named = 0;
  size_t bytes = 0;
  while (named < all.size() && named < kMostNamed) {
    bytes += all[named].size();
    if (bytes > kMostNamedBytes) break;
    ++named;
  }
  const size_t more = all.size() - named;
  if (named == 0) return absl::StrCat(more, " other numbers");
  return absl::StrCat(absl::StrJoin(all.begin(), all.begin() + static_cast<ptrdiff_t>(named), ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace

void OptimizerNumbers::Note(const Begin& begin) {
  if (begin.optimizer == 0 || begin.optimizer_numbers.empty()) return;
  if (known_.count(begin.optimizer) > 0) return;
  const uint64_t bytes = BytesOf(begin.optimizer_numbers);
  if (bytes_ + bytes > kMostBytes) return;
  bytes_ += bytes;
  known_.emplace(begin.optimizer, begin.optimizer_numbers);
}

void OptimizerNumbers::EndRound(uint64_t hash) {
  if (hash == 0) return;
  const auto kept = known_.extract(hash);
  known_.clear();
  bytes_ = 0;
  if (kept.empty()) return;
  bytes_ = BytesOf(kept.mapped());
  known_.emplace(kept.key(), kept.mapped());
}

std::string OptimizerNumbers::Difference(const WorkerId& a, uint64_t hash_a, const WorkerId& b,
                                         uint64_t hash_b) const {
  const auto of_a = known_.find(hash_a);
  const auto of_b = known_.find(hash_b);
  if (of_a != known_.end() && of_b != known_.end()) {
    const auto only_a = Only(of_a->second, of_b->second);
    const auto only_b = Only(of_b->second, of_a->second);
    if (!only_a.empty() || !only_b.empty()) {
      return absl::StrCat("worker ", a, " has ", Named(only_a, only_b), ", and worker ", b, " has ",
                          Named(only_b, only_a));
    }
  }
  return absl::StrCat("worker ", a, " and worker ", b,
                      " differ in numbers that the aggregator was not sent, because they have too "
                      "many; compare their parameter groups");
}

}  // namespace basin::aggregator
