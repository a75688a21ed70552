// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/item.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "protocol/overloaded.h"
#include "tests/world/narrate.h"

namespace basin::explore {

std::string Describe(const Item& item) {
  const auto of = [](const auto& frame) {
    return absl::StrCat(world::Narrate(frame), " (", DescribeMask(frame.chunks[0].mask), ")");
  };
  return std::visit(Overloaded{
                        [&](const PushFrame& frame) { return of(frame); },
                        [&](const ResultFrame& frame) { return of(frame); },
                        [](const ToAggregator& message) { return world::Narrate(message); },
                        [](const ToWorker& message) {
                          std::string text = world::Narrate(message);
                          const auto* welcome = std::get_if<Welcome>(&message);
                          if (welcome == nullptr) return text;
                          for (const LastVerdicts& last : welcome->verdicts) {
                            for (const VerdictRecord& record : last.verdicts) {
                              absl::StrAppend(&text, ", verdict of ", world::Narrate(record));
                            }
                          }
                          return text;
                        },
                    },
                    item);
}

std::string DescribeMask(uint64_t mask) {
  std::vector<std::string> names;
  for (uint32_t worker = 0; worker < 16; ++worker) {
    const uint64_t times = (mask >> (4 * worker)) & 15;
    if (times == 1) names.push_back(absl::StrCat("w", worker));
    if (times > 1) names.push_back(absl::StrCat(times, " x w", worker));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, "+");
}

}  // namespace basin::explore
