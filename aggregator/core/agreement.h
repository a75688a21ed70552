// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The spec that the contributors of a round agree on, and the divisors of their sums.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_AGREEMENT_H_
#define BASIN_AGGREGATOR_CORE_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "aggregator/core/roster.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Agreement {
 public:
  // Returns whether spec() has been chosen for the present contributors.
  bool made() const { return made_; }
  const RoundSpec& spec() const { return spec_; }

  // Chooses the spec of a contributor, and returns this contributor. `last` is the spec of the
  // lane's last committed round. REQUIRES: there are contributors, and all of them have begun.
  const RoundMember& Make(const Roster& roster, const std::optional<RoundSpec>& last);
  // Returns the contributor whose value the others must have: the first one with the value of most
  // of those that give one; nullptr if none does.
  using Compared = std::optional<uint64_t> (Contribution::*)() const;
  static const RoundMember* Reference(const Roster& roster, Compared value_of);
  // Returns two contributors that make different unnamed calls: the first one that makes the call
  // of most of them, and the first one that makes another; none if all make the same.
  static std::optional<std::pair<const RoundMember*, const RoundMember*>> DifferentCalls(
      const Roster& roster);
  // The hash of the optimizers of the contributors that give one; 0 if none does.
  uint64_t optimizer() const { return optimizer_; }
  void SetOptimizer(uint64_t hash) { optimizer_ = hash; }
  // The contributors have changed, so their specs must be compared again.
  void Reopen() { made_ = false; }

  // Returns how much the member counts: 1, except in a weighted average.
  uint64_t WeightOf(const RoundMember& member) const;
  // Returns the divisor of the tensors that no contributor skips.
  uint64_t Divisor(const Roster& roster) const;
  // Returns the divisor of a tensor that `skips` contributors skip; 0 if all of them do. `divisor`
  // is the result of Divisor().
  uint64_t DivisorOf(const Roster& roster, TensorIndex tensor, uint32_t skips,
                     uint64_t divisor) const;

  auto Fields() const { return std::tie(spec_, optimizer_, made_); }

 private:
  RoundSpec spec_;
  uint64_t optimizer_ = 0;
  bool made_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_AGREEMENT_H_
