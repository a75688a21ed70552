// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The states of the aggregator that the search has seen, each named by a number in order of first
// sight. States with equal fingerprints count as the same.
//
// A state takes several thousand bytes, and there are millions. The store keeps only how each came
// about and what the search needs most often. The state itself is in a cache of fixed size. If it
// is not there, the store makes it again from the nearest cached ancestor. That is cheap, because a
// step takes microseconds, and exact, because a step depends only on state and input.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_EXPLORE_AGGREGATOR_STORE_H_
#define BASIN_TESTS_EXPLORE_AGGREGATOR_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "protocol/fingerprint.h"
#include "tests/explore/aggregator_process.h"

namespace basin::explore {

// How a state came about: by a step from another state, or (parent kBorn) by the start of a
// process.
struct AggregatorOrigin {
  static constexpr uint32_t kBorn = ~uint32_t{0};
  uint32_t parent = kBorn;
  uint32_t item = 0;  // kBorn: the term.
  uint8_t input = 0;
  uint8_t who = 0;  // kBorn: whether it has been up for long.
};

struct ShardSummary {
  bool known = false;  // The aggregator has it.
  bool alive = false;
  bool reducing = false;
  bool reports = false;
  bool draining = false;
};

// The search needs this of every state.
struct AggregatorSummary {
  // The process of each worker that the aggregator counts on; 0 if the worker is lost or unknown.
  std::array<Nonce, kMaxWorkers> known{};
  std::array<bool, kMaxWorkers> member{};
  Term term = 0;
  bool reducing = false;
  bool window_runs = false;
  bool grace_runs = false;
  bool start_timeout_runs = false;
  bool vacate_runs = false;
  bool shard_grace_runs = false;
  std::array<ShardSummary, kMaxShards> shards{};
};

class AggregatorStore {
 public:
  // These make what an origin describes: a new process, or a step.
  using Birth = std::function<AggregatorProcess(const AggregatorOrigin&)>;
  using Step = std::function<void(AggregatorProcess&, const AggregatorOrigin&)>;

  AggregatorStore(Birth birth, Step step, size_t cached);

  uint32_t Add(AggregatorProcess process, const AggregatorOrigin& origin);
  const AggregatorSummary& SummaryOf(uint32_t id) const { return entries_[id].summary; }
  // The reference is valid until the next Get or Add.
  const AggregatorProcess& Get(uint32_t id);

  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  uint64_t remade() const { return remade_; }

 private:
  struct Entry {
    AggregatorOrigin origin;
    AggregatorSummary summary;
  };
  using Cached = std::optional<std::pair<uint32_t, AggregatorProcess>>;

  // The place of a state, if it is cached. The latest cache_.size() states have different places.
  Cached& EntryOf(uint32_t id) { return cache_[id % cache_.size()]; }
  bool Has(uint32_t id) { return EntryOf(id).has_value() && EntryOf(id)->first == id; }

  const Birth birth_;
  const Step step_;
  absl::flat_hash_map<Fingerprint, uint32_t, FingerprintHash> ids_;
  std::vector<Entry> entries_;
  std::vector<Cached> cache_;
  uint64_t remade_ = 0;  // Steps that were taken again.
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_AGGREGATOR_STORE_H_
