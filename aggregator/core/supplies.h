// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The result chunks of a prepared value that members lack and the aggregator does not hold. A
// member that has staged the value supplies them.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_SUPPLIES_H_
#define BASIN_AGGREGATOR_CORE_SUPPLIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "aggregator/core/roster.h"
#include "aggregator/core/workers.h"

namespace basin::aggregator {

class Supplies {
 public:
  bool empty() const { return wanted_.empty(); }
  // Returns whether all members that take part lack the same chunk; or, once results were lost with
  // a shard, whether each of them lacks one, so that none can stage.
  bool SomethingIsLost(const Roster& roster) const;

  void Want(uint32_t flat, Slot by);
  // The member has the chunk. Returns whether it wanted it.
  bool Got(uint32_t flat, Slot by);
  // Returns the chunks to request from `supplier`: those that were not requested yet, or all if
  // another member was asked before. Clients ignore a chunk that arrives twice.
  std::vector<uint32_t> Ask(Slot supplier);
  // The supplier has sent the chunk. Adds the members that want it to `to`.
  void Relay(uint32_t flat, std::set<Slot>& to);

  // Results were lost with a shard, and what was passed on there may not have arrived.
  void LoseRelayed();
  bool after_loss() const { return after_loss_; }

  // The member is lost and needs nothing.
  void Forget(Slot slot);
  // The member may not have received the last request.
  void ForgetSupplier(Slot slot);
  void Clear();

  auto Fields() const { return std::tie(wanted_, supplier_, after_loss_); }

 private:
  struct Wanted {
    std::set<Slot> by;
    bool asked = false;    // The supplier was asked for it.
    bool relayed = false;  // It was sent to the members that wanted it then.
    auto Fields() const { return std::tie(by, asked, relayed); }
  };

  std::map<uint32_t, Wanted> wanted_;  // By flat chunk.
  std::optional<Slot> supplier_;
  bool after_loss_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SUPPLIES_H_
