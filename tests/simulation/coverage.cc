// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/coverage.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/world/message_names.h"

namespace basin::simulation {
namespace {

template <size_t N>
void AddAll(std::array<uint64_t, N>& to, const std::array<uint64_t, N>& from) {
  for (size_t i = 0; i < N; ++i) to[i] += from[i];
}

using Counter = std::pair<std::string, uint64_t>;

constexpr const char* kTableNames[kTables] = {"job",          "worker",   "pause",  "round",
                                              "contribution", "presence", "staging"};

template <typename Row, size_t N>
void AddRows(const Row (&table)[N], Table which, const Coverage& coverage,
             std::vector<Counter>& counters) {
  const auto index = static_cast<uint32_t>(which);
  for (size_t row = 0; row < N; ++row) {
    counters.emplace_back(
        absl::StrCat("row ", row + 1, " of table ", kTableNames[index], ": ", table[row].when),
        coverage.rows[index][row]);
  }
}

std::vector<Counter> Counters(const Coverage& coverage) {
  std::vector<Counter> counters;
  for (uint32_t i = 0; i < kFaultKinds; ++i) {
    counters.emplace_back(absl::StrCat("fault ", FaultKindName(static_cast<FaultKind>(i))),
                          coverage.faults[i]);
  }
  for (uint32_t i = 0; i < kNoteKinds; ++i) {
    counters.emplace_back(
        absl::StrCat("note ", aggregator::NoteKindName(static_cast<aggregator::NoteKind>(i))),
        coverage.notes[i]);
  }
  for (uint32_t i = 0; i < kSights; ++i) {
    counters.emplace_back(SightName(static_cast<Sight>(i)), coverage.sights[i]);
  }
  for (size_t i = 0; i < coverage.to_aggregator.size(); ++i) {
    counters.emplace_back(absl::StrCat("message ", world::ToAggregatorName(i)),
                          coverage.to_aggregator[i]);
  }
  for (size_t i = 0; i < coverage.to_worker.size(); ++i) {
    counters.emplace_back(absl::StrCat("message ", world::ToWorkerName(i)), coverage.to_worker[i]);
  }
  AddRows(aggregator::kJobTransitions, Table::kJob, coverage, counters);
  AddRows(aggregator::kWorkerTransitions, Table::kWorker, coverage, counters);
  AddRows(aggregator::kPauseTransitions, Table::kPause, coverage, counters);
  AddRows(aggregator::kRoundTransitions, Table::kRound, coverage, counters);
  AddRows(aggregator::kContributionTransitions, Table::kContribution, coverage, counters);
  AddRows(aggregator::kPresenceTransitions, Table::kPresence, coverage, counters);
  AddRows(aggregator::kStagingTransitions, Table::kStaging, coverage, counters);
  return counters;
}

}  // namespace

const char* SightName(Sight sight) {
  static constexpr const char* kNames[] = {"recovery with everyone",
                                           "recovery with a majority",
                                           "recovery by decision",
                                           "recovery found nothing",
                                           "prepared again, COMMITTED",
                                           "prepared again, ABORTED",
                                           "aggregator died between verdicts",
                                           "result resent on another stream",
                                           "tensor pushed in pieces",
                                           "frame of several tensors",
                                           "chunk pushed again",
                                           "reduction ended after its attempt",
                                           "state loaded from a donor",
                                           "state loaded by broadcast",
                                           "state served at a boundary",
                                           "state lost with its donors",
                                           "contribution dropped by a later attempt",
                                           "outcome unknown",
                                           "round retried after ABORTED",
                                           "fork excused",
                                           "fork fenced",
                                           "process superseded",
                                           "operator ended a halt",
                                           "call refused",
                                           "joiner counted in an open call",
                                           "joiner left out of an open call",
                                           "call made without a joiner",
                                           "call postponed that a joiner began too late",
                                           "member of several ranks",
                                           "contribution for other workers, too",
                                           "results of another worker",
                                           "results requested after all",
                                           "same members with other ranks",
                                           "worker joined without its group",
                                           "samples committed",
                                           "no samples free now",
                                           "step of a global batch committed",
                                           "step of a global batch comes again",
                                           "epoch ended",
                                           "batch closed",
                                           "epoch broken off",
                                           "joiner caught up with rounds without its state",
                                           "worker lost whose machine was not heard",
                                           "worker refused after fruitless joins",
                                           "late worker left out of what it had begun",
                                           "late worker left out before its begin",
                                           "late worker left out again",
                                           "late worker counted again",
                                           "idle call made room for another",
                                           "different calls at the same place",
                                           "refused for its optimizer",
                                           "late contribution counted with the next",
                                           "late contribution lost with the next",
                                           "name let go",
                                           "name needed when a worker was asked to let it go",
                                           "question about a name void after another round",
                                           "call under a name that was let go before",
                                           "call begun anew when its name went",
                                           "shard got a frame",
                                           "shard got a frame of another one",
                                           "shard lost with parked chunks",
                                           "shard lost with results",
                                           "shard lost with what a lost worker had sent",
                                           "shard lost with results of a prepared value",
                                           "shard lost with a value that nobody staged",
                                           "shard released after its drain",
                                           "shard ended in its drain"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kSights);
  return kNames[static_cast<uint32_t>(sight)];
}

void TableRows::See(const aggregator::Job& job) {
  const auto add = [this](Table table, const RowsTaken& rows) {
    taken[static_cast<uint32_t>(table)].Add(rows);
  };
  add(Table::kJob, job.taken());
  add(Table::kWorker, job.workers.taken());
  add(Table::kPause, job.pause.taken());
  for (const aggregator::Lane& lane : job.lanes) {
    if (!lane.round.has_value()) continue;
    add(Table::kRound, lane.round->taken());
    for (const aggregator::RoundMember& member : lane.round->members()) {
      add(Table::kContribution, member.contribution.taken());
      add(Table::kPresence, member.presence.taken());
      add(Table::kStaging, member.staging.taken());
    }
  }
}

void TableRows::Add(const TableRows& other) {
  for (uint32_t i = 0; i < kTables; ++i) taken[i].Add(other.taken[i]);
}

const char* TableRows::Refused() const {
  for (uint32_t i = 0; i < kTables; ++i) {
    if (taken[i].refused()) return kTableNames[i];
  }
  return nullptr;
}

void Coverage::Saw(const TableRows& run) {
  for (uint32_t i = 0; i < kTables; ++i) {
    for (size_t row = 0; row < rows[i].size(); ++row) rows[i][row] += run.taken[i].Has(row);
  }
}

void Coverage::Add(const Coverage& other) {
  AddAll(notes, other.notes);
  AddAll(faults, other.faults);
  AddAll(sights, other.sights);
  AddAll(to_aggregator, other.to_aggregator);
  AddAll(to_worker, other.to_worker);
  for (uint32_t i = 0; i < kTables; ++i) AddAll(rows[i], other.rows[i]);
  runs += other.runs;
  steps += other.steps;
  verdicts += other.verdicts;
}

std::string Describe(const Coverage& coverage) {
  std::string text;
  for (const auto& [name, count] : Counters(coverage)) {
    absl::StrAppend(&text, absl::StrFormat("%12d  %s\n", count, name));
  }
  return text;
}

std::string Missing(const Coverage& coverage) {
  // These are out of reach, or rare. A lease is refused once in some thousand jobs. A job ends
  // after ten idle minutes. A lane that waits for memory would wait for the whole run. Members that
  // lost their donor before they had its state are released. A trainer calls at the wrong time once
  // in some ten thousand jobs. No fault changes the settings of a job. Connections have no
  // addresses.
  static constexpr const char* kOutOfReach[] = {
      "note lease_refused", "note job_ended", "note job_set", "note address_refused",
      "note lane_waits_for_memory", "state lost with its donors", "call refused",
      // The tests of these rows are in tests/aggregator/core/tables_test.cc: another run that ends
      // a halt or a recovery, an operator who ends one in which no worker remembers the run,
      // members that are left out or lost at rare moments, and messages that our clients never
      // send.
      "row 7 of table job:", "row 8 of table job:", "row 10 of table job:", "row 12 of table job:",
      "row 13 of table job:", "row 16 of table job:", "row 3 of table round:",
      "row 13 of table contribution:", "row 15 of table contribution:", "row 4 of table presence:",
      "row 3 of table staging:", "row 7 of table staging:"};
  // Only runs with shards have these.
  static constexpr const char* kOfShards[] = {"note shard_", "fault Shard", "shard ",
                                              "message Placement", "message ShardUnreachable"};
  const bool shards = coverage.notes[static_cast<uint32_t>(aggregator::NoteKind::kShardUp)] > 0;
  std::vector<std::string> missing;
  for (const auto& [name, count] : Counters(coverage)) {
    if (!shards &&
        std::any_of(std::begin(kOfShards), std::end(kOfShards),
                    [&name = name](const char* what) { return absl::StartsWith(name, what); })) {
      continue;
    }
    const bool out_of_reach =
        std::any_of(std::begin(kOutOfReach), std::end(kOutOfReach),
                    [&name = name](const char* what) { return absl::StartsWith(name, what); });
    if (count == 0 && !out_of_reach) missing.push_back(name);
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace basin::simulation
