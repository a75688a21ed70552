// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/recovery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/histories.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/names.h"
#include "aggregator/core/sample_ledger.h"
#include "protocol/counted.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

const LaneHistory* FindLane(const Hello& hello, const std::string& name) {
  for (const LaneHistory& lane : hello.lanes) {
    if (lane.name == name) return &lane;
  }
  return nullptr;
}

// Removes what is over of a lane. `members`: those of the list that remember the run.
void ForgetWhatIsOver(LaneMemories& memories, const std::set<WorkerId>& members) {
  const auto is_member = [&](const LaneMemories::Memory& memory) {
    return members.count(*memory.worker) > 0;
  };
  // The members have let go of a call that only others remember, who were lost before. Another call
  // may have its name since, and fewer rounds.
  std::set<LaneIndex> known;
  for (const LaneMemories::Memory& memory : memories) {
    if (is_member(memory)) known.insert(memory.history->lane);
  }
  if (!members.empty()) {
    memories.Remove([&](const LaneMemories::Memory& memory) {
      return memory.history->kind == LaneKind::kCall && !is_member(memory) &&
             known.count(memory.history->lane) == 0;
    });
  }
  // All workers have let go of a call if one of them has a later lane of its name.
  LaneIndex latest = 0;
  for (const LaneMemories::Memory& memory : memories) {
    if (HasHistory(*memory.hello)) latest = std::max(latest, memory.history->lane);
  }
  memories.Remove([&](const LaneMemories::Memory& memory) {
    return memory.history->let_go && memory.history->lane < latest;
  });
}

enum class Lineage { kCurrent, kBehind, kConflict };

// Returns the value of the newest verdict if this worker, one verdict behind, has staged it. The
// chain identifies the value even if the worker with the newest history, a joiner, received only
// the chain.
const StagedValue* StagedNewest(const LaneHistory& mine, const LaneHistory& newest) {
  if (mine.last_verdict + 1 != newest.last_verdict || !mine.staged.has_value()) return nullptr;
  const StagedValue& staged = *mine.staged;
  if (staged.round != newest.last_verdict) return nullptr;
  return ExtendChain(mine.chain, staged.round, staged.value) == newest.chain ? &staged : nullptr;
}

// Whether a call is in flight, which a worker without its lane may have to take part in.
bool IsStagedByAny(const LaneMemories& memories, const LaneHistory& newest) {
  return std::any_of(memories.begin(), memories.end(), [&](const LaneMemories::Memory& memory) {
    const std::optional<StagedValue>& staged = memory.history->staged;
    return staged.has_value() && staged->round > newest.last_verdict;
  });
}

// Whether a worker needs nothing of a lane that it does not have. It joins with the state of a
// donor, which has what came of the calls before; it names their lanes when it calls itself.
bool DoesWithout(const WorkerId& id, const Hello& hello, const LaneHistory& newest,
                 bool in_flight) {
  if (newest.last_verdict == 0) return true;
  if (newest.kind != LaneKind::kCall || in_flight) return false;
  // All that know the lane have let it go, and this worker has heard so already.
  if (newest.let_go) return true;
  if (newest.verdicts.empty()) return false;
  const VerdictRecord& last = newest.verdicts.back();
  // One that was counted may not know the verdict.
  return last.round == newest.last_verdict && !IsCounted(last.value, id, hello.incarnation);
}

// Compares a worker with the newest history of a lane that it has. A worker one verdict behind is
// current if it has staged the value of that verdict, because it then only needs the verdict again.
Lineage Compare(const LaneHistory& mine, const LaneHistory& newest) {
  if (mine.last_verdict == newest.last_verdict) {
    return mine.chain == newest.chain ? Lineage::kCurrent : Lineage::kConflict;
  }
  for (const VerdictRecord& record : newest.verdicts) {
    if (record.round == mine.last_verdict && record.chain != mine.chain) {
      return Lineage::kConflict;
    }
    if (record.round == mine.last_verdict + 1 &&
        record.chain != ExtendChain(mine.chain, record.round, record.value)) {
      return Lineage::kConflict;
    }
  }
  return StagedNewest(mine, newest) != nullptr ? Lineage::kCurrent : Lineage::kBehind;
}

// The history with which the job goes on: the longest, then the one that most workers hold, then
// the one with the most verdict records, then that of the lowest worker id.
const LaneHistory* NewestHistory(const LaneMemories& memories) {
  std::map<std::pair<RoundNumber, uint64_t>, size_t> votes;  // By last verdict and chain.
  for (const auto& [id, hello, history] : memories) {
    ++votes[{history->last_verdict, history->chain}];
  }
  const auto rank = [&](const LaneHistory& history) {
    return std::make_tuple(history.last_verdict, votes.at({history.last_verdict, history.chain}),
                           history.verdicts.size());
  };
  const LaneHistory* newest = nullptr;
  for (const auto& [id, hello, history] : memories) {
    if (!HasHistory(*hello)) continue;
    if (newest == nullptr || rank(*newest) < rank(*history)) newest = history;
  }
  return newest;
}

// Sorts the lanes by index. Aggregators that did not know of each other may have given one index to
// two lanes. One of these then gets an index beyond all others; workers find their lanes by name.
void SortByIndex(std::vector<RecoveredLane>& lanes) {
  const auto by_index = [](const RecoveredLane& a, const RecoveredLane& b) {
    return a.lane < b.lane;
  };
  std::stable_sort(lanes.begin(), lanes.end(), by_index);
  LaneIndex beyond = lanes.empty() ? 0 : lanes.back().lane + 1;
  std::set<LaneIndex> taken;
  for (RecoveredLane& lane : lanes) {
    if (!taken.insert(lane.lane).second) lane.lane = beyond++;
  }
  std::stable_sort(lanes.begin(), lanes.end(), by_index);
}

// The highest ballot at which this worker has staged the next round of any of the `lanes`.
Ballot StagedLast(const Hello& hello, const std::map<std::string, RecoveredLane>& lanes) {
  Ballot last;
  for (const LaneHistory& history : hello.lanes) {
    const auto lane = lanes.find(history.name);
    if (!history.staged.has_value() || lane == lanes.end()) continue;
    if (history.staged->round != lane->second.last_verdict + 1) continue;
    last = std::max(last, history.staged->ballot);
  }
  return last;
}

// The layout of a lane comes from the hello with the highest rank: from the worker that staged the
// lane's `round` last, then from the one that staged last in any lane (`staged_last`), then from
// the one with the longest layout. Staging comes first, because a worker with another layout joins
// anew, and what it staged is not adopted.
using LayoutRank = std::tuple<Ballot, Ballot, size_t>;

LayoutRank RankOf(const LaneHistory& history, RoundNumber round, const Ballot& staged_last) {
  const bool staged = history.staged.has_value() && history.staged->round == round;
  return {staged ? history.staged->ballot : Ballot{}, staged_last, history.layout.size()};
}

// Returns whether one of two layouts continues the other, so that their tensors have the same
// indexes.
bool Agree(const std::vector<TensorSpec>& a, const std::vector<TensorSpec>& b) {
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return std::equal(a.begin(), end, b.begin());
}

// Returns whether this worker staged the orphan's value or received its verdict.
bool CanExplain(const Hello& hello, const Orphan& orphan) {
  const LaneHistory* lane = FindLane(hello, orphan.lane);
  if (!HasHistory(hello) || lane == nullptr) return false;
  if (lane->last_verdict == orphan.round) return lane->chain == orphan.chain;
  return lane->last_verdict + 1 == orphan.round && lane->staged.has_value() &&
         lane->staged->round == orphan.round &&
         ExtendChain(lane->chain, orphan.round, lane->staged->value) == orphan.chain;
}

// Fills in lanes, members and conflicts from all workers that remember the run.
void Reconstruct(const std::map<WorkerId, Hello>& hellos, const Membership& newest_members,
                 const RecoveryFacts& facts, RecoveryDecision& decision) {
  const Generation& generation = newest_members.generation;
  std::vector<WorkerId> list = newest_members.members;
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < list.size(); ++i) ranks.push_back(newest_members.members.RanksOf(i));
  std::set<WorkerId> listed(list.begin(), list.end());
  for (const Orphan& orphan : facts.orphans) {
    for (const auto& [id, hello] : hellos) {
      if (list.size() >= facts.max_workers || listed.count(id) > 0) continue;
      if (!CanExplain(hello, orphan)) continue;
      list.push_back(id);
      ranks.push_back(hello.ranks);
      listed.insert(id);
    }
  }
  std::set<WorkerId> remembering;
  for (const WorkerId& id : list) {
    const auto it = hellos.find(id);
    if (it != hellos.end() && HasHistory(it->second)) remembering.insert(id);
  }
  std::map<std::string, RecoveredLane> lanes;
  std::set<WorkerId> behind;
  std::set<WorkerId> conflicts;
  Histories histories = HistoriesOf(hellos);
  for (auto& [name, memories] : histories) {
    ForgetWhatIsOver(memories, remembering);
    const LaneHistory* const found = NewestHistory(memories);
    if (found == nullptr) continue;  // It is over.
    const LaneHistory& newest = *found;
    RecoveredLane& lane = lanes[newest.name];
    lane.name = newest.name;
    lane.kind = newest.kind;
    lane.lane = newest.lane;
    lane.last_verdict = newest.last_verdict;
    lane.chain = newest.chain;
    lane.verdicts = newest.verdicts;
    lane.committed = newest.committed;
    const bool in_flight = IsStagedByAny(memories, newest);
    for (const auto& [id, hello] : hellos) {
      if (!HasHistory(hello)) continue;
      const LaneHistory* mine = memories.Of(id);
      if (lane.verdicts.empty() && mine != nullptr) {
        if (const StagedValue* staged = StagedNewest(*mine, newest)) {
          lane.verdicts = mine->verdicts;
          if (lane.verdicts.size() == kRememberedVerdicts)
            lane.verdicts.erase(lane.verdicts.begin());
          lane.verdicts.push_back(
              {staged->round, staged->ballot, staged->value_ballot, staged->value,
               Membership{generation, MemberList::WithRanks(list, ranks)}, newest.chain});
        }
      }
      if (mine == nullptr) {
        if (!DoesWithout(id, hello, newest, in_flight)) behind.insert(id);
        continue;
      }
      switch (Compare(*mine, newest)) {
        case Lineage::kCurrent:
          if (mine->last_verdict == newest.last_verdict && mine->committed != newest.committed) {
            conflicts.insert(id);
          }
          break;
        case Lineage::kBehind:
          behind.insert(id);
          break;
        case Lineage::kConflict:
          conflicts.insert(id);
          break;
      }
    }
  }
  const auto current = [&](const WorkerId& id) {
    const auto it = hellos.find(id);
    return it != hellos.end() && HasHistory(it->second) && behind.count(id) == 0 &&
           conflicts.count(id) == 0;
  };
  std::map<WorkerId, Ballot> staged_last;
  for (const WorkerId& id : list) {
    if (current(id)) staged_last[id] = StagedLast(hellos.at(id), lanes);
  }
  // Aggregators that did not know of each other may have laid a lane out differently. The adopted
  // value names tensors by index, so the job goes on with its layout; a worker that remembers
  // another layout joins anew.
  for (auto& [name, lane] : lanes) {
    const LaneMemories& memories = histories.at(name);
    const LaneHistory* base = nullptr;
    LayoutRank highest;
    for (const WorkerId& id : list) {
      const LaneHistory* mine = current(id) ? memories.Of(id) : nullptr;
      if (mine == nullptr) continue;
      const LayoutRank rank = RankOf(*mine, lane.last_verdict + 1, staged_last.at(id));
      if (base != nullptr && !(highest < rank)) continue;
      base = mine;
      highest = rank;
    }
    if (base == nullptr) base = NewestHistory(memories);
    if (base == nullptr) continue;  // No worker remembers it.
    lane.layout = base->layout;
    for (const WorkerId& id : list) {
      const LaneHistory* mine = current(id) ? memories.Of(id) : nullptr;
      if (mine == nullptr) continue;
      if (!Agree(mine->layout, lane.layout)) {
        behind.insert(id);
      } else if (mine->layout.size() > lane.layout.size()) {
        lane.layout = mine->layout;
      }
    }
  }
  for (const WorkerId& id : list) {
    if (current(id)) decision.members.push_back(id);
  }
  decision.conflicts.assign(conflicts.begin(), conflicts.end());

  for (auto& [name, lane] : lanes) {
    const LaneMemories& memories = histories.at(name);
    for (const WorkerId& id : decision.members) {
      const LaneHistory* mine = memories.Of(id);
      if (mine == nullptr || !mine->staged.has_value()) continue;
      if (mine->staged->round != lane.last_verdict + 1) continue;
      if (!lane.adopted.has_value() || lane.adopted->ballot < mine->staged->ballot) {
        lane.adopted = mine->staged;
      }
    }
    for (const WorkerId& id : decision.members) {
      const LaneHistory* mine = memories.Of(id);
      if (lane.adopted.has_value() && mine != nullptr && mine->staged.has_value() &&
          mine->staged->round == lane.adopted->round &&
          mine->staged->value_ballot == lane.adopted->value_ballot) {
        lane.holders.insert(id);
      }
    }
    decision.lanes.push_back(std::move(lane));
  }
  SortByIndex(decision.lanes);
}

}  // namespace

std::string Describe(const Orphan& orphan) {
  return absl::StrCat("round ", orphan.round, " of lane ", orphan.lane,
                      " may have a verdict, but its result was lost with ",
                      absl::StrJoin(orphan.holders, ", "));
}

uint64_t LedgerNeed(const RecoveredLane& lane, const Histories& histories) {
  uint64_t holders = 0;
  uint64_t ranges = lane.committed.ranges.size();
  if (const auto memories = histories.find(lane.name); memories != histories.end()) {
    for (const auto& [id, hello, history] : memories->second) {
      if (!history->leased.epoch.exists()) continue;
      ++holders;
      ranges += history->leased.ranges.size() + history->resumed.size();
    }
  }
  if (lane.adopted.has_value() && lane.adopted->value.samples.has_value()) {
    const RoundSamples& samples = *lane.adopted->value.samples;
    ++holders;
    ranges += samples.ranges.size() + samples.resumed.size();
  }
  if (holders == 0 && !lane.committed.epoch.exists()) return 0;
  // Each range ends others at two places, before it is committed and afterwards.
  return SampleLedger::NeedOf(holders, 4 * ranges + 2);
}

bool Explains(const RecoveryDecision& decision, const Orphan& orphan) {
  for (const RecoveredLane& lane : decision.lanes) {
    if (lane.name != orphan.lane) continue;
    if (lane.last_verdict > orphan.round) return true;  // A later one rests on it.
    if (lane.last_verdict == orphan.round) {
      const bool later = !lane.verdicts.empty() && orphan.ballot < lane.verdicts.back().ballot;
      return later || lane.chain == orphan.chain;
    }
    if (lane.last_verdict + 1 != orphan.round || !lane.adopted.has_value()) return false;
    return orphan.ballot < lane.adopted->ballot ||
           ExtendChain(lane.chain, orphan.round, lane.adopted->value) == orphan.chain;
  }
  return false;
}

Term HighestTerm(const Hello& hello) {
  Term term = std::max(hello.membership.generation.term, hello.incarnation.term);
  for (const LaneHistory& lane : hello.lanes) {
    if (lane.staged.has_value()) term = std::max(term, lane.staged->ballot.term);
    for (const VerdictRecord& record : lane.verdicts) {
      term = std::max({term, record.ballot.term, record.next.generation.term});
    }
  }
  return term;
}

namespace {

// Returns whether it is certain that nothing has happened in the run. No worker that sent a hello
// has received a verdict or staged a value, and every worker of the newest list sent one: as a
// member that remembers, or as the listed process itself, which never received the list and has
// begun nothing.
bool NothingHappened(const std::map<WorkerId, Hello>& hellos, const Membership& newest) {
  for (const auto& [id, hello] : hellos) {
    if (!HasHistory(hello)) continue;
    for (const LaneHistory& lane : hello.lanes) {
      if (lane.last_verdict > 0 || lane.staged.has_value()) return false;
    }
  }
  return std::all_of(newest.members.begin(), newest.members.end(), [&](const WorkerId& id) {
    const auto it = hellos.find(id);
    if (it == hellos.end()) return false;
    const Hello& hello = it->second;
    return HasHistory(hello) ||
           (hello.from_start && hello.incarnation.term == newest.generation.term);
  });
}

}  // namespace

RecoveryDecision DecideRecovery(const std::map<WorkerId, Hello>& hellos, const RecoveryFacts& facts,
                                const Rules& rules) {
  const auto& [saved, led, orphans, max_workers, window_over, forced] = facts;
  RecoveryDecision decision;
  Membership newest;
  bool from_file = false;
  if (saved.has_value()) {
    newest = saved->membership;
    from_file = true;
  }
  if (led.has_value() && newest.generation < led->generation) {
    newest = *led;
    from_file = false;
  }
  uint32_t remembering = 0;
  bool state = false;                        // Whether a worker with memory has it.
  const Membership* newest_known = nullptr;  // The newest list of a worker with the state.
  for (const auto& [id, hello] : hellos) {
    if (!HasHistory(hello)) continue;
    ++remembering;
    state |= !hello.lacks_state;
    if (!hello.lacks_state &&
        (newest_known == nullptr || newest_known->generation < hello.membership.generation)) {
      newest_known = &hello.membership;
    }
    if (newest.generation < hello.membership.generation) {
      newest = hello.membership;
      from_file = false;
    }
  }
  std::vector<WorkerId> missing;
  uint32_t counted = 0;
  std::set<WorkerId> promising;
  bool all_answered = true;
  for (const WorkerId& id : newest.members) {
    const auto it = hellos.find(id);
    const bool answered = it != hellos.end();
    const bool remembers = answered && HasHistory(it->second);
    counted += remembers || (answered && rules.memoryless_counts);
    all_answered &= answered;
    if (remembers && !forced && !rules.hello_promises) promising.insert(id);
    if (!remembers) missing.push_back(id);
  }
  const bool everyone =
      !newest.members.empty() && (counted == newest.members.size() || (from_file && all_answered));
  // Members that only load the state cannot go on without a worker that has it.
  const bool majority = window_over && 2 * counted > newest.members.size() && state;
  const bool go = everyone || majority || forced || (rules.recover_with_first && remembering > 0);

  if (remembering == 0) {
    const bool known_lost = from_file && !newest.members.empty();
    if (forced || (known_lost && all_answered) || (window_over && !known_lost)) {
      decision.step = RecoveryStep::kFresh;
      decision.reason = "no worker remembers this run";
      return decision;
    }
  } else if (go) {
    decision.step = RecoveryStep::kRecover;
    decision.cause = everyone   ? NoteCause::kEveryMemberIsBack
                     : majority ? NoteCause::kMajorityIsBack
                                : NoteCause::kGoesOnWithoutMissing;
    decision.reason = everyone   ? "every member is back"
                      : majority ? "a majority of the members is back with its memory"
                                 : "the job continues without the missing workers";
    Reconstruct(hellos, newest, facts, decision);
    for (const WorkerId& id : decision.conflicts) promising.erase(id);
    decision.counted = std::move(promising);
    if (!decision.members.empty() || newest_known == nullptr) return decision;
    // Every worker of the list has lost its memory, but others still hold the state of an earlier
    // list. The job goes on from there rather than from nothing.
    RecoveryDecision earlier;
    earlier.step = decision.step;
    earlier.cause = decision.cause;
    earlier.reason =
        absl::StrCat(decision.reason, ", but without memory; other workers have an older state");
    earlier.counted = std::move(decision.counted);
    Reconstruct(hellos, *newest_known, facts, earlier);
    return earlier;
  }
  if (remembering > 0 && NothingHappened(hellos, newest)) {
    decision.step = RecoveryStep::kFresh;
    decision.reason = "all members are back, and none has a verdict";
    return decision;
  }
  decision.reason =
      newest.members.empty()
          ? "no worker that remembers the run has connected yet (BASIN_FRESH=true declares a run "
            "new)"
          : absl::StrCat(counted, " of ", CountOf(newest.members.size(), "member"),
                         " of generation ", ToString(newest.generation),
                         counted == 1 ? " is back with its memory; missing: "
                                      : " are back with their memory; missing: ",
                         missing.empty() ? "none" : NamesOf(missing, kNamedMissing));
  decision.step = window_over ? RecoveryStep::kHalt : RecoveryStep::kWait;
  return decision;
}

}  // namespace basin::aggregator
