// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basin-explore: explores a small world from the command line; see kUsage.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/explore/search.h"

namespace {

constexpr char kUsage[] = R"(basin-explore: every state that a small job can get into

Runs the cores of the aggregator and of the client in every order of messages and faults that the
bounds allow, and checks every state: one version of a round, bytes and records that agree,
generations that never go back, no job that is stuck. Prints how many states there are and how deep
they lie, and for a violation the shortest way there and how to replay it.

  --workers N       workers (3)                 --crashes N    crashes of the aggregator (1)
  --min N           min_workers (2)             --deaths N     of workers (0)
  --rounds N        rounds (1)                  --restarts N   of workers, without memory (0)
  --fine-trainer    begin and commit are        --evictions N  of workers that live (0)
                    steps of their own          --cuts N       of a worker's connections (0)
  --jobs N          with as many workers each   --stream-cuts N  of a worker's data stream (0)
                    and one aggregator (1)      --faults N     at most so many of these in all (99)
  --delays N        one order with at most so many surprises, instead of all orders
  --max-states N    stop there (100000000)      --seconds N    stop then
  --memory N        stop at so many MiB (6144)  --progress     a line per depth
  --calls           rounds are calls, as in a script without gradients
  --node            worker w0 stands for two trainers in every odd round
  --carries         worker w0 contributes for w1, too, which withdraws without results
  --late            rounds go on without those who are late, once half have contributed
  --shards N        processes that hold bytes beside the aggregator, up to 2 (0)
  --chunks N        of the tensor (1)           --shard-losses N  with all that they hold (0)
  --no-share        the aggregator holds none   --shard-drains N  of shards (0)
                    while there are shards      --shard-joins N   of shards (0)
                                                --shard-cuts N    between a worker and one (0)
  --replay STEPS    take these steps, as a      --no-reduction also take steps late that commute
                    violation prints them                      with all others

  --without RULE    turn a rule of the aggregator off; it should then find a violation:
      two-phases         tell a verdict when it is reduced, without STAGED
      second-prepare     adopt a staged value and tell its verdict at once
      memory             count processes without memory towards recovery
      majority           recover with whoever says hello first
      live-frames        drop frames of survivors that were on their way when somebody was lost
      state-first        ask who has joined to stage before it has the state
      resending          forget what a lost data stream had not delivered
      its-session        send that to whoever comes first
      settling           take a closed session for lost before it has lingered
      ack-once           count an acknowledgement for the next session, too
      late-stage         tell a verdict before those who were late have STAGED
      push-again         do not ask again for what a lost shard held
      supply-lost        do not ask members for prepared results that it held
      next-attempt       wait for what it held of a worker that is lost, too

Exit status: 0 no violation, 1 a violation, 2 wrong usage, 3 cut without a violation.

Examples:
  basin-explore --workers 2 --rounds 2 --evictions 1
  basin-explore --workers 3 --deaths 1 --without two-phases
  basin-explore --workers 3 --min 1 --crashes 2 --evictions 1 --delays 5
)";

bool TurnOff(const std::string& name, basin::aggregator::Rules& rules) {
  for (const basin::explore::RuleSwitch& rule : basin::explore::kRuleSwitches) {
    if (name != rule.name) continue;
    rules.*rule.rule = rule.off;
    return true;
  }
  return false;
}

int WrongUsage(const std::string& what) {
  std::fprintf(stderr, "basin-explore: %s; see --help.\n", what.c_str());
  return 2;
}

int ReplayAndPrint(const basin::explore::Bounds& bounds, const std::string& steps) {
  std::vector<std::string> trail;
  const std::string wrong = basin::explore::Replay(bounds, steps, trail);
  for (const std::string& line : trail) std::printf("%s\n", line.c_str());
  std::printf("%s\n", wrong.empty() ? "No violation." : wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  basin::explore::Bounds bounds;
  basin::explore::Limits limits;
  std::string replay;
  const std::map<std::string, std::function<void(uint32_t)>> numbers = {
      {"--workers", [&](uint32_t n) { bounds.workers = n; }},
      {"--min", [&](uint32_t n) { bounds.min_workers = n; }},
      {"--rounds", [&](uint32_t n) { bounds.rounds = n; }},
      {"--delays", [&](uint32_t n) { bounds.delays = n; }},
      {"--crashes", [&](uint32_t n) { bounds.crashes = n; }},
      {"--deaths", [&](uint32_t n) { bounds.deaths = n; }},
      {"--restarts", [&](uint32_t n) { bounds.restarts = n; }},
      {"--evictions", [&](uint32_t n) { bounds.evictions = n; }},
      {"--cuts", [&](uint32_t n) { bounds.cuts = n; }},
      {"--stream-cuts", [&](uint32_t n) { bounds.stream_cuts = n; }},
      {"--shards", [&](uint32_t n) { bounds.shards = n; }},
      {"--chunks", [&](uint32_t n) { bounds.chunks = n; }},
      {"--shard-losses", [&](uint32_t n) { bounds.shard_losses = n; }},
      {"--shard-drains", [&](uint32_t n) { bounds.shard_drains = n; }},
      {"--shard-cuts", [&](uint32_t n) { bounds.shard_cuts = n; }},
      {"--shard-joins", [&](uint32_t n) { bounds.shard_joins = n; }},
      {"--jobs", [&](uint32_t n) { bounds.jobs = n; }},
      {"--faults", [&](uint32_t n) { bounds.faults = n; }},
      {"--max-states", [&](uint32_t n) { limits.states = n; }},
      {"--seconds", [&](uint32_t n) { limits.seconds = n; }},
      {"--memory", [&](uint32_t n) { limits.memory_mib = n; }},
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (option == "--replay") {
      if (++i == argc) return WrongUsage("--replay needs steps");
      replay = argv[i];
    } else if (option == "--progress") {
      limits.progress = true;
    } else if (option == "--calls") {
      bounds.kind = basin::LaneKind::kCall;
    } else if (option == "--node") {
      bounds.node = basin::explore::Node::kShrinks;
    } else if (option == "--carries") {
      bounds.node = basin::explore::Node::kRepresents;
    } else if (option == "--late") {
      bounds.late = true;
    } else if (option == "--no-share") {
      bounds.coordinator_share = false;
    } else if (option == "--no-reduction") {
      bounds.reduce = false;
    } else if (option == "--fine-trainer") {
      bounds.whole_trainer = false;
    } else if (option == "--without") {
      if (++i == argc || !TurnOff(argv[i], bounds.rules))
        return WrongUsage("there is no such rule");
    } else if (const auto number = numbers.find(option); number != numbers.end()) {
      uint32_t value = 0;
      if (++i == argc || !absl::SimpleAtoi(argv[i], &value)) {
        return WrongUsage(option + " needs a number");
      }
      number->second(value);
    } else {
      return WrongUsage("unknown option " + option);
    }
  }
  if (bounds.workers < 1 || bounds.workers > basin::explore::kMaxWorkers || bounds.jobs < 1 ||
      bounds.jobs > basin::explore::kMaxWorkers / bounds.workers) {
    return WrongUsage("--workers or --jobs is out of range");
  }
  if (bounds.shards > basin::explore::kMaxShards || bounds.chunks < 1) {
    return WrongUsage("--shards or --chunks is out of range");
  }
  if (!replay.empty()) return ReplayAndPrint(bounds, replay);
  const basin::explore::SearchResult result = basin::explore::Search(bounds, limits);
  basin::explore::Print(bounds, result);
  if (!result.violation.empty()) return 1;
  return result.cut.empty() ? 0 : 3;
}
