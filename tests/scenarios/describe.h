// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Describes everything that travels in one readable line each.
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_SCENARIOS_DESCRIBE_H_
#define BASIN_TESTS_SCENARIOS_DESCRIBE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "protocol/messages.h"
#include "tests/scenarios/payload.h"

namespace basin::scenarios {

// Lanes and tensors by name, as far as layouts have named them. Indexes are stable for a run.
class Names {
 public:
  void Learn(const LaneLayout& layout);
  std::string Lane(LaneIndex lane) const;
  std::string Tensor(LaneIndex lane, TensorIndex tensor) const;
  uint32_t Tensors(LaneIndex lane) const;

 private:
  struct LaneNames {
    std::string name;
    std::vector<std::string> tensors;
  };
  std::map<LaneIndex, LaneNames> lanes_;
};

// Returns the name of a message's type, such as "Commit" or "Verdict".
std::string TypeOf(const ToAggregator& message);
std::string TypeOf(const ToWorker& message);
std::string TypeOf(const PushFrame& frame);

// Describes a message: "Commit lane=g round=1 tensors={a,b} chunks=3".
std::string Describe(const Names& names, const ToAggregator& message);
std::string Describe(const Names& names, const ToWorker& message);
std::string Describe(const Names& names, const PushFrame& frame);
std::string Describe(const Names& names, const ResultFrame& frame);
std::string Describe(const BlobFrame& frame);

std::string Describe(const Error& error);
std::string Describe(const Membership& membership);
std::string Describe(const RoundSpec& spec);
std::string Describe(const BlobKey& key);
std::string Describe(const Names& names, LaneIndex lane, const std::vector<ChunkRange>& ranges);
std::string Braces(const std::vector<std::string>& words);

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_DESCRIBE_H_
