// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the contributors of a round agree to compute, and by what their sums are divided.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_AGREEMENT_H_
#define BASIN_AGGREGATOR_CORE_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "aggregator/core/roster.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Agreement {
 public:
  // Whether everyone has begun, and spec() is what they agree on.
  bool made() const { return made_; }
  const RoundSpec& spec() const { return spec_; }

  // Chooses the spec; `last` is that of the lane's last committed round. Returns the member whose
  // spec it is. REQUIRES: there are contributors, and all have begun.
  const RoundMember& Make(const Roster& roster, const std::optional<RoundSpec>& last);
  // The contributors are others, and have to be compared again.
  void Reopen() { made_ = false; }

  // How much the member counts in a weighted average.
  uint64_t WeightOf(const RoundMember& member) const;
  // By which the sums of tensors that nobody skips are divided.
  uint64_t Divisor(const Roster& roster) const;
  // That of a tensor which `skips` contributors skip; 0 if nobody pushed it. `divisor` is that of
  // the round.
  uint64_t DivisorOf(const Roster& roster, TensorIndex tensor, uint32_t skips,
                     uint64_t divisor) const;

  auto Fields() const { return std::tie(spec_, made_); }

 private:
  RoundSpec spec_;
  bool made_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_AGREEMENT_H_
