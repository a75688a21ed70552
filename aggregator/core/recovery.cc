// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/recovery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::aggregator {
namespace {

const LaneHistory* FindLane(const Hello& hello, const std::string& name) {
  for (const LaneHistory& lane : hello.lanes) {
    if (lane.name == name) return &lane;
  }
  return nullptr;
}

// The chain that a lane had before its newest verdict, as the newest holder remembers it.
std::optional<uint64_t> ChainBefore(const LaneHistory& newest) {
  const size_t count = newest.verdicts.size();
  if (count >= 2) return newest.verdicts[count - 2].chain;
  if (count == 1 && newest.verdicts[0].round == 1) return 0;
  return std::nullopt;
}

enum class Standing { kCurrent, kBehind, kConflict };

// Where a worker stands against the newest history of a lane. One verdict behind is current when
// it has staged that very value: the verdict is told to it again.
Standing Compare(const LaneHistory* mine, const LaneHistory& newest) {
  if (mine == nullptr) return newest.last_verdict == 0 ? Standing::kCurrent : Standing::kBehind;
  if (mine->last_verdict == newest.last_verdict) {
    return mine->chain == newest.chain ? Standing::kCurrent : Standing::kConflict;
  }
  if (mine->last_verdict + 1 != newest.last_verdict || newest.verdicts.empty()) {
    return Standing::kBehind;
  }
  const std::optional<uint64_t> before = ChainBefore(newest);
  if (before.has_value() && *before != mine->chain) return Standing::kConflict;
  const bool staged = mine->staged.has_value() && mine->staged->round == newest.last_verdict &&
                      mine->staged->value_ballot == newest.verdicts.back().value_ballot;
  return staged ? Standing::kCurrent : Standing::kBehind;
}

// The history the job goes on with: the longest; of two that differ at the same length, the one
// that more workers hold, then the lowest worker id.
const LaneHistory* NewestHistory(const std::map<WorkerId, Hello>& hellos, const std::string& name) {
  const LaneHistory* newest = nullptr;
  size_t newest_votes = 0;
  for (const auto& [id, hello] : hellos) {
    const LaneHistory* lane = FindLane(hello, name);
    if (lane == nullptr || !HasHistory(hello)) continue;
    size_t votes = 0;
    for (const auto& [other_id, other] : hellos) {
      const LaneHistory* theirs = FindLane(other, name);
      votes += theirs != nullptr && theirs->last_verdict == lane->last_verdict &&
               theirs->chain == lane->chain;
    }
    if (newest == nullptr || lane->last_verdict > newest->last_verdict ||
        (lane->last_verdict == newest->last_verdict && votes > newest_votes)) {
      newest = lane;
      newest_votes = votes;
    }
  }
  return newest;
}

// Fills in lanes, members and conflicts from everybody who remembers.
void Reconstruct(const std::map<WorkerId, Hello>& hellos, const std::vector<WorkerId>& list,
                 RecoveryDecision& decision) {
  std::map<std::string, RecoveredLane> lanes;
  std::set<WorkerId> behind;
  std::set<WorkerId> conflicts;
  for (const auto& [id, hello] : hellos) {
    if (!HasHistory(hello)) continue;
    for (const LaneHistory& lane : hello.lanes) lanes[lane.name].name = lane.name;
  }
  for (auto& [name, lane] : lanes) {
    const LaneHistory& newest = *NewestHistory(hellos, name);
    lane.kind = newest.kind;
    lane.lane = newest.lane;
    lane.last_verdict = newest.last_verdict;
    lane.chain = newest.chain;
    lane.verdicts = newest.verdicts;
    for (const auto& [id, hello] : hellos) {
      if (!HasHistory(hello)) continue;
      const LaneHistory* mine = FindLane(hello, name);
      if (mine != nullptr && mine->layout.size() > lane.layout.size()) lane.layout = mine->layout;
      switch (Compare(mine, newest)) {
        case Standing::kCurrent:
          break;
        case Standing::kBehind:
          behind.insert(id);
          break;
        case Standing::kConflict:
          conflicts.insert(id);
          break;
      }
    }
  }
  std::set<WorkerId> listed(list.begin(), list.end());
  const auto current = [&](const WorkerId& id) {
    const auto it = hellos.find(id);
    return it != hellos.end() && HasHistory(it->second) && behind.count(id) == 0 &&
           conflicts.count(id) == 0;
  };
  for (const WorkerId& id : list) {
    if (current(id)) decision.members.push_back(id);
  }
  decision.conflicts.assign(conflicts.begin(), conflicts.end());

  for (auto& [name, lane] : lanes) {
    for (const WorkerId& id : decision.members) {
      const LaneHistory* mine = FindLane(hellos.at(id), name);
      if (mine == nullptr || !mine->staged.has_value()) continue;
      if (mine->staged->round != lane.last_verdict + 1) continue;
      if (!lane.adopted.has_value() || lane.adopted->ballot < mine->staged->ballot) {
        lane.adopted = mine->staged;
      }
    }
    for (const WorkerId& id : decision.members) {
      const LaneHistory* mine = FindLane(hellos.at(id), name);
      if (lane.adopted.has_value() && mine != nullptr && mine->staged.has_value() &&
          mine->staged->round == lane.adopted->round &&
          mine->staged->value_ballot == lane.adopted->value_ballot) {
        lane.holders.insert(id);
      }
    }
    decision.lanes.push_back(std::move(lane));
  }
  std::sort(decision.lanes.begin(), decision.lanes.end(),
            [](const RecoveredLane& a, const RecoveredLane& b) { return a.lane < b.lane; });
}

}  // namespace

Term HighestTerm(const Hello& hello) {
  Term term = std::max(hello.membership.generation.term, hello.incarnation.term);
  for (const LaneHistory& lane : hello.lanes) {
    if (lane.staged.has_value()) term = std::max(term, lane.staged->ballot.term);
    for (const VerdictRecord& record : lane.verdicts) term = std::max(term, record.ballot.term);
  }
  return term;
}

RecoveryDecision DecideRecovery(const std::map<WorkerId, Hello>& hellos,
                                const std::optional<SavedState>& saved, bool window_over,
                                bool forced, const Rules& rules) {
  RecoveryDecision decision;
  Membership newest;
  bool from_file = false;
  if (saved.has_value()) {
    newest = saved->membership;
    from_file = true;
  }
  uint32_t remembering = 0;
  for (const auto& [id, hello] : hellos) {
    if (!HasHistory(hello)) continue;
    ++remembering;
    if (newest.generation < hello.membership.generation) {
      newest = hello.membership;
      from_file = false;
    }
  }
  std::vector<WorkerId> missing;
  uint32_t counted = 0;
  bool all_answered = true;
  for (const WorkerId& id : newest.members) {
    const auto it = hellos.find(id);
    const bool answered = it != hellos.end();
    const bool remembers = answered && HasHistory(it->second);
    counted += remembers || (answered && rules.memoryless_counts);
    all_answered &= answered;
    if (!remembers) missing.push_back(id);
  }
  const bool everyone =
      !newest.members.empty() && (counted == newest.members.size() || (from_file && all_answered));
  const bool majority = window_over && 2 * counted > newest.members.size();
  const bool go = everyone || majority || forced || (rules.recover_with_first && remembering > 0);

  if (remembering == 0) {
    const bool known_lost = from_file && !newest.members.empty();
    if (forced || (known_lost && all_answered) || (window_over && !known_lost)) {
      decision.step = RecoveryStep::kFresh;
      decision.reason = "nobody remembers this run";
      return decision;
    }
  } else if (go) {
    decision.step = RecoveryStep::kRecover;
    decision.reason = everyone   ? "every member is back"
                      : majority ? "a majority of the members is back with its memory"
                                 : "told to go on with whoever is back";
    Reconstruct(hellos, newest.members, decision);
    return decision;
  }
  decision.reason =
      absl::StrCat(counted, " of ", newest.members.size(), " members of generation ",
                   ToString(newest.generation), " are back with their memory; missing: ",
                   missing.empty() ? "none" : absl::StrJoin(missing, ", "));
  decision.step = window_over ? RecoveryStep::kHalt : RecoveryStep::kWait;
  return decision;
}

}  // namespace basin::aggregator
