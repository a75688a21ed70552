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
  // Whether there is a chunk that everyone who takes part lacks.
  bool SomethingIsLost(const Roster& roster) const;

  void Want(uint32_t flat, Slot by);
  // The member has the chunk. Returns whether it wanted it.
  bool Got(uint32_t flat, Slot by);
  // The chunks that `supplier` has to be asked for. When another one was asked before, that is all
  // that are wanted: a chunk that comes twice is ignored by the client.
  std::vector<uint32_t> Ask(Slot supplier);
  // The chunk comes from its supplier, and is passed on to those who want it, who join `to`.
  void Relay(uint32_t flat, std::set<Slot>& to);

  // The member is lost and wants nothing any more.
  void Forget(Slot slot);
  // The member may not have received what it was asked for.
  void ForgetSupplier(Slot slot);
  void Clear();

  auto Fields() const { return std::tie(wanted_, supplier_); }

 private:
  struct Wanted {
    std::set<Slot> by;
    bool asked = false;    // The supplier was asked for it.
    bool relayed = false;  // To those who wanted it then.
    auto Fields() const { return std::tie(by, asked, relayed); }
  };

  std::map<uint32_t, Wanted> wanted_;  // By flat chunk.
  std::optional<Slot> supplier_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SUPPLIES_H_
