// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/lives.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace basin::simulation {
namespace {

// The rounds of two lives of a name, as the end of a sentence.
std::string Places(RoundNumber round, RoundNumber other) {
  return absl::StrCat("round ", round, " of one life of its name and in round ", other,
                      " of another one");
}

}  // namespace

Lives::Lives(uint32_t models) : models_(models), latest_(models) {
  std::iota(models_.begin(), models_.end(), 0);
  std::iota(latest_.begin(), latest_.end(), 0);
}

Life Lives::Registered(uint32_t model, bool again) {
  const Life latest = latest_[model];
  // Otherwise a run was taken for new, or the workers that remembered the lane have lost it.
  if (!again && gone_.count(latest) == 0) return latest;
  latest_[model] = static_cast<Life>(models_.size());
  models_.push_back(model);
  return latest_[model];
}

void Lives::Recovered(Life life) {
  // A worker had not heard that the lane was gone.
  gone_.erase(life);
  latest_[models_[life]] = life;
}

std::optional<Life> Lives::At(uint32_t session, LaneIndex index) const {
  const auto found = told_.find({session, index});
  return found == told_.end() ? std::nullopt : std::optional<Life>(found->second);
}

std::string Lives::Counted(uint64_t key, const Count& count, bool may_fork) {
  const auto [found, fresh] = counted_.emplace(key, count);
  const Count& first = found->second;
  if (fresh || first.life == count.life || (may_fork && first.by != count.by)) return "";
  return absl::StrCat("is counted in ", Places(first.round, count.round));
}

std::string Lives::Settled(uint64_t key, Life life, RoundNumber round, bool may_fork) {
  if (!settled_.insert(key).second) return "got a second outcome";
  const auto counted = counted_.find(key);
  if (counted == counted_.end() || counted->second.life == life || may_fork) return "";
  return absl::StrCat("was counted, and its trainer got the outcome, in ",
                      Places(counted->second.round, round));
}

}  // namespace basin::simulation
