// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lives of lanes. That of a call begins when its name is registered, and ends when its workers
// have let it go; the next one by this name is another lane. For the checker the lives are numbers:
// the first life of each lane of the scenario has the place of the lane, and later ones follow.
//
// What must hold, as I9 of the checker: each life is one contract. A contribution is counted in one
// life, and its trainer gets the outcome of that one, once.
//
// An aggregator knows its lanes by index. A worker learns with a layout which index a name has in
// its session, and so in which life it is. After a recovery, a lane has the life in which the
// worker was from whose hello it comes.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_LIVES_H_
#define BASIN_TESTS_SIMULATION_LIVES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace basin::simulation {

// The lane of a scenario in one of its lives.
using Life = uint32_t;

class Lives {
 public:
  // `models`: the lanes of the scenario.
  explicit Lives(uint32_t models);

  // The place in the scenario of the lane that has this life.
  uint32_t ModelOf(Life life) const { return models_[life]; }
  // Whether the name had another life before.
  bool IsLater(Life life) const { return life >= latest_.size(); }
  Life Latest(uint32_t model) const { return latest_[model]; }

  // ---- what becomes of lanes at an aggregator
  // It has given the name to a lane that none of its workers knows. `again`: it has let the name go
  // itself before.
  Life Registered(uint32_t model, bool again);
  void LetGo(Life life) { gone_.insert(life); }
  // It has recovered this lane.
  void Recovered(Life life);

  // ---- what workers learn
  // A layout was sent in a session, which has the number of its connection.
  void LaidOut(uint32_t session, LaneIndex index, Life life) { told_[{session, index}] = life; }
  std::optional<Life> At(uint32_t session, LaneIndex index) const;

  // ---- what becomes of calls. `key`: that of the contribution. `may_fork`: the job may have two
  // histories, each with a life of its own.
  struct Count {
    Life life = 0;
    RoundNumber round = 0;
    std::pair<uint32_t, uint32_t> by;  // An aggregator, and how often it had begun to recover.
  };
  // A verdict counts the contribution. Returns what is wrong; empty for nothing.
  std::string Counted(uint64_t key, const Count& count, bool may_fork);
  // The trainer of the contribution gets the outcome of this round. Returns the same.
  std::string Settled(uint64_t key, Life life, RoundNumber round, bool may_fork);

 private:
  std::vector<uint32_t> models_;  // By life.
  std::vector<Life> latest_;      // By model.
  std::set<Life> gone_;
  std::map<std::pair<uint32_t, LaneIndex>, Life> told_;
  std::map<uint64_t, Count> counted_;  // By key; where it was counted first.
  std::set<uint64_t> settled_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_LIVES_H_
