// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for the status of the aggregator, and for what a scenario expects of the whole world.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/round_waits.h"
#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

void PrintWorker(World& world, const aggregator::Job& job, const aggregator::Worker& worker) {
  const std::vector<WorkerId>& members = job.membership().members;
  std::string text = absl::StrCat("  ", worker.id, " ", aggregator::WorkerStateName(worker.state));
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank] == worker.id) absl::StrAppend(&text, " rank ", rank);
  }
  absl::StrAppend(&text, " incarnation ", ToString(worker.incarnation));
  if (worker.state != aggregator::WorkerState::kLost && !worker.connected()) {
    absl::StrAppend(&text, ", disconnected");
  }
  if (worker.draining) absl::StrAppend(&text, ", draining");
  if (!worker.busy.empty()) absl::StrAppend(&text, ", busy: ", worker.busy);
  world.Print(Detail::kNothing, text);
}

void PrintLane(World& world, const aggregator::Lane& lane) {
  std::string text = absl::StrCat("  lane ", lane.name, ": ");
  if (!lane.Open()) {
    absl::StrAppend(&text, "round ", lane.next, " is not open");
  } else {
    const aggregator::Round& round = *lane.round;
    const bool prepared = round.phase() == RoundPhase::kPrepared;
    absl::StrAppend(&text, "round ", round.number, prepared ? " PREPARED" : " COLLECT",
                    round.pull_mode() ? " (pull mode)" : "", ", ballot ", ToString(round.ballot));
    const std::string waits = aggregator::WaitsFor(round, lane.layout);
    absl::StrAppend(&text, ", ", waits.empty() ? "waits for nobody" : "waits for ", waits,
                    ", parked ", round.parked_bytes() / 1024, " KiB, results ",
                    round.held.bytes() / 1024, " KiB");
  }
  world.Print(Detail::kNothing, text);
}

void Status(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process == nullptr) return;
  const aggregator::Job* job = process->core().FindJob(kJob);
  if (job == nullptr) {
    world.Print(Detail::kNothing, "no job");
    return;
  }
  const bool running = job->state() == aggregator::JobState::kRunning;
  std::string text = absl::StrCat("job ", job->name, " ");
  absl::StrAppend(&text,
                  running && job->suspended() ? "SUSPENDED"
                  : running && job->Paused()  ? "PAUSED"
                  : job->over()               ? "FINISHED"
                                              : aggregator::JobStateName(job->state()),
                  " generation ", Describe(job->membership()), " at ", world.Clock());
  if (!job->reason.empty()) absl::StrAppend(&text, ": ", job->reason);
  world.Print(Detail::kNothing, text);
  for (const auto& [id, slot] : job->workers.by_id()) {
    PrintWorker(world, *job, job->workers[slot]);
  }
  for (const aggregator::Lane& lane : job->lanes) PrintLane(world, lane);
}

void ExpectFork(World& world, Arguments&) { world.forks_expected = true; }

}  // namespace

std::vector<Command> StatusCommands() {
  return {
      {"status", "[name=N]", "Members, generation, rounds, who is waited for, bytes.", Status},
      {"expect-fork", "", "Two versions of one round are what this scenario is about.", ExpectFork},
  };
}

}  // namespace basin::scenarios
