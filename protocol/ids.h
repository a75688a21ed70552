// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The numbers that name things. Each pair below is compared as a pair: the term first, so that no
// number of an older life of the aggregator is newer than one of this life.
//
// Thread contract: plain values.

#ifndef BASIN_PROTOCOL_IDS_H_
#define BASIN_PROTOCOL_IDS_H_

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "protocol/fields.h"

namespace basin {

using JobName = std::string;
using RunId = std::string;
using WorkerId = std::string;

// A life of the aggregator. At least the Unix time in seconds at its start, so that it increases
// without a state file.
using Term = uint64_t;

// The random number that one trainer process chooses at start and keeps until it exits.
using Nonce = uint64_t;

// Names one session; random, given in the welcome, and the key that data streams present.
using SessionToken = uint64_t;

// An ordered sequence of rounds inside a job; the index of its name, stable for a run.
using LaneIndex = uint32_t;

// The position of a tensor in its lane's layout; stable for a run.
using TensorIndex = uint32_t;

// Rounds of a lane are numbered 1, 2, 3, ...; 0 means none.
using RoundNumber = uint64_t;

// Version of the active membership. Never goes back.
struct Generation {
  Term term = 0;
  uint64_t counter = 0;
  auto Fields() const { return std::tie(term, counter); }
};

// A life of a worker. Unique in its job.
struct Incarnation {
  Term term = 0;
  uint64_t counter = 0;
  auto Fields() const { return std::tie(term, counter); }
};

// One attempt at a round. A round that is reduced again, or whose value is prepared again, gets a
// higher ballot.
struct Ballot {
  Term term = 0;
  uint64_t attempt = 0;
  auto Fields() const { return std::tie(term, attempt); }
};

inline bool operator<(const Generation& a, const Generation& b) { return a.Fields() < b.Fields(); }
inline bool operator<(const Incarnation& a, const Incarnation& b) {
  return a.Fields() < b.Fields();
}
inline bool operator<(const Ballot& a, const Ballot& b) { return a.Fields() < b.Fields(); }

inline std::string ToString(const Generation& g) { return absl::StrCat(g.term, ".", g.counter); }
inline std::string ToString(const Incarnation& i) { return absl::StrCat(i.term, ".", i.counter); }
inline std::string ToString(const Ballot& b) { return absl::StrCat(b.term, ".", b.attempt); }

}  // namespace basin

#endif  // BASIN_PROTOCOL_IDS_H_
