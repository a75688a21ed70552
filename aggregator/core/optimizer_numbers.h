// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers of the optimizers in a lane, by their hash. All begins have the hash, which is
// compared; a worker sends the numbers only while the lane may not know them. They are for people:
// the words of an error say what differs. So those for which there is no memory are left out.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_OPTIMIZER_NUMBERS_H_
#define BASIN_AGGREGATOR_CORE_OPTIMIZER_NUMBERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/core/memory.h"
#include "protocol/fields.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// Makes values of this namespace comparable wherever they are nested, see protocol/fields.h.
using basin::operator==;
using basin::operator!=;

class OptimizerNumbers {
 public:
  // The most that is remembered in a round whose workers all differ: sixteen of the longest texts,
  // or some hundred of usual ones.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 10;

  // What is remembered is charged to `memory`, of which `room` bytes may be taken.
  void Note(const Begin& begin, uint64_t room, MemoryBudget& memory);
  // The round that has ended counted those with this hash, which need not send their numbers again;
  // 0: it compared none. The others send theirs.
  void EndRound(uint64_t hash, MemoryBudget& memory);
  void Clear(MemoryBudget& memory);

  // Why two workers with these hashes differ: "worker a has lr=0.1, and worker b has lr=0.2".
  std::string Difference(const WorkerId& a, uint64_t hash_a, const WorkerId& b,
                         uint64_t hash_b) const;

  // Charged for what is remembered.
  uint64_t bytes() const { return bytes_; }

  auto Fields() const { return std::tie(known_, bytes_); }

 private:
  std::map<uint64_t, std::vector<std::string>> known_;
  uint64_t bytes_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_OPTIMIZER_NUMBERS_H_
