// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/optimizer_numbers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/footprint.h"

namespace basin::aggregator {
namespace {

// A text names no more numbers of a worker than this, and no more bytes of them: with those of the
// other worker and all else it is shorter than a text can be.
constexpr size_t kMostNumbersNamed = 5;
constexpr size_t kMostNumberBytes = 600;

using NumberLines = std::vector<std::string>;

uint64_t NumberBytes(const NumberLines& lines) {
  return Footprint::Of(lines) + Footprint::OfEntry<uint64_t, NumberLines>();
}

// "lr" of "lr=0.1 in all groups".
std::string KeyOfLine(const std::string& line) { return line.substr(0, line.find('=')); }

// What `mine` has that `theirs` has not, in their order.
NumberLines LinesOnlyIn(const NumberLines& mine, const NumberLines& theirs) {
  const std::set<std::string> known(theirs.begin(), theirs.end());
  NumberLines only;
  for (const std::string& line : mine) {
    if (known.count(line) == 0) only.push_back(line);
  }
  return only;
}

// What only `mine` has: "lr=0.1 in all groups, no momentum and 2 more".
std::string DescribeLines(const NumberLines& mine, const NumberLines& theirs) {
  std::set<std::string> keys;
  for (const std::string& line : mine) keys.insert(KeyOfLine(line));
  NumberLines all = LinesOnlyIn(mine, theirs);
  for (const std::string& line : LinesOnlyIn(theirs, mine)) {
    if (keys.insert(KeyOfLine(line)).second) all.push_back(absl::StrCat("no ", KeyOfLine(line)));
  }
  if (all.empty()) return "no such number";
  size_t named = 0;
  size_t bytes = 0;
  while (named < all.size() && named < kMostNumbersNamed) {
    bytes += all[named].size();
    if (bytes > kMostNumberBytes) break;
    ++named;
  }
  const size_t more = all.size() - named;
  if (named == 0) return absl::StrCat(more, " other numbers");
  return absl::StrCat(absl::StrJoin(all.begin(), all.begin() + static_cast<ptrdiff_t>(named), ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace

void OptimizerNumbers::Note(const Begin& begin, uint64_t room, MemoryBudget& memory) {
  if (begin.optimizer == 0 || begin.optimizer_numbers.empty()) return;
  if (known_.count(begin.optimizer) > 0) return;
  const uint64_t bytes = NumberBytes(begin.optimizer_numbers);
  if (bytes > std::min(kMostBytes - bytes_, room)) return;
  bytes_ += bytes;
  memory.reserved += bytes;
  known_.emplace(begin.optimizer, begin.optimizer_numbers);
}

void OptimizerNumbers::EndRound(uint64_t hash, MemoryBudget& memory) {
  if (hash == 0) return;
  auto kept = known_.extract(hash);
  Clear(memory);
  if (kept.empty()) return;
  bytes_ = NumberBytes(kept.mapped());
  memory.reserved += bytes_;
  known_.insert(std::move(kept));
}

void OptimizerNumbers::Clear(MemoryBudget& memory) {
  known_.clear();
  memory.reserved -= bytes_;
  bytes_ = 0;
}

std::string OptimizerNumbers::Difference(const WorkerId& a, uint64_t hash_a, const WorkerId& b,
                                         uint64_t hash_b) const {
  const auto of_a = known_.find(hash_a);
  const auto of_b = known_.find(hash_b);
  if (of_a != known_.end() && of_b != known_.end() && of_a->second != of_b->second) {
    return absl::StrCat("worker ", a, " has ", DescribeLines(of_a->second, of_b->second),
                        ", and worker ", b, " has ", DescribeLines(of_b->second, of_a->second));
  }
  return absl::StrCat(
      "worker ", a, " and worker ", b,
      " differ in numbers that the aggregator was not sent or could not keep; compare "
      "their parameter groups");
}

}  // namespace basin::aggregator
