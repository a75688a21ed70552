// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/scenario.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/memory.h"
#include "tests/simulation/payload.h"
#include "tests/simulation/random.h"

namespace basin::simulation {
namespace {

std::vector<LaneModel> DrawLanes(Random& random, ReduceOp op) {
  std::vector<LaneModel> lanes(random.Chance(70) ? 1 : static_cast<size_t>(random.Between(2, 3)));
  const bool small = lanes.size() > 1;
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].name = absl::StrCat("lane", i);
    const int64_t tensors = random.Between(1, small ? 3 : 5);
    for (int64_t t = 0; t < tensors; ++t) {
      // Integers have no average.
      const bool wide = op == ReduceOp::kAverage || random.Chance(50);
      TensorSpec spec{absl::StrCat("t", t), wide ? DType::kF32 : DType::kU8, {}};
      const uint64_t chunks = static_cast<uint64_t>(random.Between(1, small ? 3 : 6));
      uint64_t bytes = (chunks - 1) * kChunkBytes +
                       static_cast<uint64_t>(random.Between(1, 4)) * (kChunkBytes / 4);
      if (random.Chance(2)) bytes = 0;
      spec.shape = {bytes / ElementSize(spec.dtype)};
      lanes[i].tensors.push_back(std::move(spec));
    }
  }
  return lanes;
}

RoundSpec DrawSpec(Random& random) {
  RoundSpec spec;
  spec.op = random.Chance(60) ? ReduceOp::kSum : ReduceOp::kAverage;
  if (spec.op == ReduceOp::kAverage && random.Chance(40)) {
    spec.denominator = Denominator::kPresent;
  }
  return spec;
}

// Most jobs have only gradient lanes; others have calls as well, or only calls, like a NumPy
// script. These draws do not change any other draw.
void DrawKinds(Random random, std::vector<LaneModel>& lanes) {
  if (!random.Chance(25)) return;
  const bool all = lanes.size() == 1 || random.Chance(50);
  for (size_t i = all ? 0 : 1; i < lanes.size(); ++i) lanes[i].kind = LaneKind::kCall;
}

// A job that trains, and makes calls before each step, under so many names that its workers let go
// of those that are idle.
void MakeNames(Random random, Scenario& scenario) {
  scenario.calls = static_cast<uint32_t>(random.Between(1, 3));
  scenario.rounds += static_cast<uint32_t>(random.Between(1, 4));
  scenario.lanes.resize(1);
  scenario.lanes[0].kind = LaneKind::kGradient;
  // So many lanes stay; all calls of a step are among them.
  const int64_t stay = scenario.calls + random.Between(1, 3);
  const int64_t names = stay + random.Between(0, 3);
  scenario.config.max_lane_names = static_cast<uint32_t>(2 * stay + random.Between(0, 1));
  if (random.Chance(50)) {
    const int64_t at_once = 1 + scenario.calls;
    scenario.config.max_lanes = static_cast<uint32_t>(random.Between(at_once, 1 + names));
  }
  for (int64_t i = 0; i < names; ++i) {
    LaneModel lane{absl::StrCat("call/", i), LaneKind::kCall, {}};
    const int64_t tensors = random.Between(1, 2);
    for (int64_t t = 0; t < tensors; ++t) {
      const auto chunks = static_cast<uint64_t>(random.Between(1, 2));
      lane.tensors.push_back(
          {absl::StrCat("t", t), DType::kF32, {chunks * kChunkBytes / ElementSize(DType::kF32)}});
    }
    scenario.lanes.push_back(std::move(lane));
  }
}

void DrawLimits(Random& random, Scenario& scenario) {
  aggregator::Config& config = scenario.config;
  config.frame_bytes = kChunkBytes * static_cast<uint64_t>(random.Between(1, 4));
  config.frame_tensors = scenario.seed % 4 == 0 ? 2 : 1024;
  const bool tight = random.Chance(40);
  const uint64_t some = static_cast<uint64_t>(random.Between(1, 12)) * kChunkBytes;
  config.window_bytes = tight ? config.frame_bytes : config.frame_bytes + some;
  config.result_window_bytes =
      random.Chance(40)
          ? config.frame_bytes
          : config.frame_bytes + static_cast<uint64_t>(random.Between(1, 8)) * kChunkBytes;
  // A lane takes at most half of what is free beyond its least, so every lane can begin.
  const uint64_t least = (scenario.settings.max_workers + 9) * config.frame_bytes *
                         (uint64_t{1} << scenario.lanes.size());
  uint64_t tracking = 0;
  for (const LaneModel& lane : scenario.lanes) {
    uint32_t chunks = 0;
    for (const TensorSpec& spec : lane.tensors) chunks += ChunkCount(*TensorBytes(spec));
    tracking += aggregator::TrackingBytes(scenario.settings.max_workers, chunks);
  }
  config.memory_bytes = least * static_cast<uint64_t>(random.Between(1, 4)) +
                        tracking * (uint64_t{1} << scenario.lanes.size());
}

void DrawPolicies(Random& random, Scenario& scenario) {
  aggregator::Config& config = scenario.config;
  if (random.Chance(15)) config.loss_policy = aggregator::LossPolicy::kAbort;
  if (random.Chance(15)) {
    config.late_policy = aggregator::LatePolicy::kEvict;
    config.evict_late_after = absl::Seconds(random.Between(2, 8));
  }
  if (random.Chance(5)) config.recovery_policy = aggregator::RecoveryPolicy::kAny;
  if (random.Chance(30)) config.lease = absl::Seconds(random.Between(2, 4));
  if (random.Chance(20)) config.pause_timeout = absl::Seconds(random.Between(1, 5));
  config.start_timeout = absl::Seconds(30);
  config.state_file = random.Chance(35);
}

// Rounds go on without those who are late, and some are, now and then.
void LeaveOutLate(Random random, Scenario& scenario) {
  scenario.config.late_policy = aggregator::LatePolicy::kLeaveOut;
  scenario.config.evict_late_after = absl::InfiniteDuration();
  constexpr uint32_t kQuorums[] = {25, 50, 66, 80};
  scenario.config.quorum_percent = kQuorums[random.Below(4)];
  scenario.config.grace = absl::Milliseconds(random.Between(10, 200));
  scenario.late_percent = static_cast<uint32_t>(random.Between(5, 50));
  if (random.Chance(50)) scenario.config.late_policy = aggregator::LatePolicy::kCarry;
}

bool AreCalls(const std::vector<LaneModel>& lanes) {
  return std::all_of(lanes.begin(), lanes.end(),
                     [](const LaneModel& lane) { return lane.kind == LaneKind::kCall; });
}

// A loop of calls without memory survives lost processes and lost connections, and runs only with
// all of its workers. A script could not continue after other faults, because it would have to
// handle failed calls.
void MakeScripts(Scenario& scenario) {
  scenario.scripts = scenario.one_lane_at_a_time = true;
  scenario.checkpoints = scenario.broadcast = false;
  scenario.settings.min_workers = scenario.settings.max_workers = scenario.workers;
  scenario.config.loss_policy = aggregator::LossPolicy::kShrink;
  scenario.config.late_policy = aggregator::LatePolicy::kWait;
  scenario.config.pause_timeout = absl::InfiniteDuration();
  auto& faults = scenario.faults;
  faults.erase(std::remove_if(faults.begin(), faults.end(),
                              [](const Fault& fault) {
                                return fault.kind > FaultKind::kAggregatorStop ||
                                       fault.kind == FaultKind::kTwin ||
                                       fault.kind == FaultKind::kJoin;
                              }),
               faults.end());
}

// Faults that a trainer causes; the others strike a process or a connection.
bool IsTrainers(FaultKind kind) { return kind >= FaultKind::kWithdraw; }
bool IsTimed(FaultKind kind) {
  return kind == FaultKind::kJoin || kind == FaultKind::kTwin ||
         kind == FaultKind::kStateFileFails ||
         (kind >= FaultKind::kDrainWorker && kind <= FaultKind::kForceRecovery);
}

SimTime DrawDuration(Random& random, FaultKind kind) {
  // There are three ranges: below every timeout, around the grace of a closed connection, and
  // beyond a lease.
  const uint64_t regime = random.Below(10);
  if (kind == FaultKind::kWorkerRestart) return random.Between(10, 500) * kMillisecond;
  if (kind == FaultKind::kBusy) return random.Between(100, 7000) * kMillisecond;
  if (regime < 5) return random.Between(1, 150) * kMillisecond;
  if (regime < 8) return random.Between(150, 2000) * kMillisecond;
  return random.Between(2000, 9000) * kMillisecond;
}

Fault DrawFault(Random& random, const Scenario& scenario, FaultKind kind, SimTime span) {
  Fault fault;
  fault.kind = kind;
  fault.worker = static_cast<uint32_t>(random.Below(scenario.workers));
  fault.duration = DrawDuration(random, kind);
  fault.salt = random.Next();
  if (IsTrainers(kind)) {
    fault.trigger = Trigger::kStep;
    fault.at = random.Between(1, scenario.rounds);
  } else if (IsTimed(kind) || random.Chance(40)) {
    fault.trigger = Trigger::kTime;
    fault.at = random.Between(0, span);
  } else {
    fault.trigger = static_cast<Trigger>(random.Between(1, kTriggers - 2));
    const int64_t workers = scenario.workers;
    const auto lanes =
        static_cast<int64_t>(scenario.calls > 0 ? 1 + scenario.calls : scenario.lanes.size());
    const int64_t per_round = fault.trigger == Trigger::kReduce  ? 4
                              : fault.trigger == Trigger::kHello ? 1
                              : fault.trigger == Trigger::kPush || fault.trigger == Trigger::kResult
                                  ? 4 * workers
                                  : workers;
    const bool once = fault.trigger == Trigger::kHello || fault.trigger == Trigger::kWelcome;
    fault.at = random.Between(1, once ? 2 * workers : per_round * lanes * scenario.rounds);
  }
  return fault;
}

void DrawFaults(Random& random, Scenario& scenario) {
  // The approximate length of the run without faults.
  const uint32_t rounds = scenario.rounds * (1 + scenario.calls);
  const SimTime span = rounds * (2 * scenario.step + 20 * scenario.latency) + 200 * kMillisecond;
  scenario.heal_at = 2 * span;
  if (random.Chance(6)) return;  // Some runs have no faults.
  std::vector<FaultKind> kinds;
  for (uint32_t k = 0; k < kCommonFaultKinds; ++k) kinds.push_back(static_cast<FaultKind>(k));
  random.Shuffle(kinds);
  kinds.resize(static_cast<size_t>(random.Between(1, 6)));
  const int64_t count = random.Between(1, 6);
  for (int64_t i = 0; i < count; ++i) {
    scenario.faults.push_back(DrawFault(random, scenario, random.Pick(kinds), span));
    const Fault& fault = scenario.faults.back();
    const SimTime end = (fault.trigger == Trigger::kTime ? fault.at : span) + fault.duration;
    scenario.heal_at = std::max(scenario.heal_at, end + kSecond);
  }
}

// Some shards have more memory than the aggregator, some too little for all lanes.
void DrawShardMemory(Random random, Scenario& scenario) {
  const uint64_t whole = scenario.config.memory_bytes;
  for (uint32_t i = 0; i < kMostShards; ++i) {
    const uint64_t memory[] = {0, whole, 2 * whole, whole - whole / 4, whole / 2, whole / 3};
    scenario.shard_memory.push_back(memory[random.Below(std::size(memory))]);
  }
}

// Shards, and what befalls them.
void MakeShards(Random random, Scenario& scenario) {
  scenario.shards = static_cast<uint32_t>(random.Between(1, 4));
  scenario.old_clients = random.Chance(5);
  scenario.shards_start_at = random.Chance(50) ? 0 : random.Between(1, 500) * kMillisecond;
  scenario.config.least_share = random.Chance(80) ? 0 : kChunkBytes;
  scenario.config.shard_grace = absl::Milliseconds(random.Between(300, 4000));
  scenario.config.coordinator_share = random.Chance(75);
  scenario.rounds += static_cast<uint32_t>(random.Between(0, 4));
  if (random.Chance(6)) return;
  const SimTime span =
      scenario.rounds * (2 * scenario.step + 30 * scenario.latency) + 300 * kMillisecond;
  const int64_t count = random.Between(1, 6);
  for (int64_t i = 0; i < count; ++i) {
    Fault fault;
    const uint32_t kinds = kFaultKinds - kCommonFaultKinds;
    fault.kind = static_cast<FaultKind>(kCommonFaultKinds + random.Below(kinds));
    fault.worker = static_cast<uint32_t>(random.Below(scenario.workers));
    fault.duration = DrawDuration(random, fault.kind);
    fault.salt = random.Next();
    if (random.Chance(40)) {
      fault.at = random.Between(0, span);
    } else {
      constexpr Trigger kMoments[] = {Trigger::kBegin,    Trigger::kPush,   Trigger::kCommit,
                                      Trigger::kPrepared, Trigger::kStaged, Trigger::kVerdict};
      fault.trigger = kMoments[random.Below(std::size(kMoments))];
      const int64_t workers = scenario.workers;
      const int64_t each = fault.trigger == Trigger::kPush ? 4 * workers : workers;
      fault.at = random.Between(1, each * scenario.rounds);
    }
    const SimTime end = (fault.trigger == Trigger::kTime ? fault.at : span) + fault.duration;
    scenario.heal_at = std::max(scenario.heal_at, end + kSecond);
    scenario.faults.push_back(fault);
  }
}

const char* Ordinal(SimTime n) {
  if (n % 100 / 10 == 1) return "th";
  return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

}  // namespace

const char* FaultKindName(FaultKind kind) {
  static constexpr const char* kNames[] = {"CutStream",
                                           "CutSession",
                                           "CutAll",
                                           "HalfOpen",
                                           "HalfOpenStream",
                                           "Partition",
                                           "OneWay",
                                           "WorkerCrash",
                                           "WorkerRestart",
                                           "WorkerStop",
                                           "Twin",
                                           "Join",
                                           "ExitReported",
                                           "AggregatorCrash",
                                           "AggregatorStop",
                                           "TwoAggregators",
                                           "StateFileFails",
                                           "Evict",
                                           "DrainWorker",
                                           "DrainService",
                                           "Suspend",
                                           "ForceRecovery",
                                           "Withdraw",
                                           "Mismatch",
                                           "Corrupt",
                                           "Busy",
                                           "Deadline",
                                           "Abandon",
                                           "Leave",
                                           "Finish",
                                           "ShardCrash",
                                           "ShardStop",
                                           "ShardLinkCut",
                                           "ShardLinkStalled",
                                           "ShardUnreachable",
                                           "ShardCut",
                                           "ShardAdded",
                                           "ShardSlow",
                                           "ShardDrain"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kFaultKinds);
  return kNames[static_cast<uint32_t>(kind)];
}

const char* TriggerName(Trigger trigger) {
  static constexpr const char* kNames[] = {"time",     "Hello",  "Welcome", "Begin",
                                           "push",     "Commit", "Reduce",  "result frame",
                                           "Prepared", "Staged", "Verdict", "step"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kTriggers);
  return kNames[static_cast<uint32_t>(trigger)];
}

const char* PlantedBugName(PlantedBug bug) {
  static constexpr const char* kNames[] = {"none",
                                           "lose-ack",
                                           "wrong-result",
                                           "count-twice",
                                           "leave-out",
                                           "stale-bytes",
                                           "forget-to-free",
                                           "silent-eviction",
                                           "tell-early",
                                           "recover-with-first",
                                           "count-memoryless",
                                           "adopt-without-prepare",
                                           "stage-without-state",
                                           "forget-frame",
                                           "send-elsewhere",
                                           "acknowledge-twice",
                                           "settle-early",
                                           "keep-samples",
                                           "free-counted",
                                           "parts-of-steps",
                                           "late-unstaged",
                                           "different-calls",
                                           "count-late",
                                           "forget-deferred",
                                           "defer-counted",
                                           "drop-deferred",
                                           "keep-lost-chunks",
                                           "shard-stale-bytes"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kPlantedBugs);
  return kNames[static_cast<uint32_t>(bug)];
}

std::string Describe(const Fault& fault) {
  std::string text = FaultKindName(fault.kind);
  const bool aggregator =
      (fault.kind >= FaultKind::kAggregatorCrash && fault.kind <= FaultKind::kStateFileFails) ||
      fault.kind == FaultKind::kDrainService || fault.kind == FaultKind::kSuspend ||
      fault.kind == FaultKind::kForceRecovery || fault.kind == FaultKind::kJoin ||
      (fault.kind > FaultKind::kFinish && fault.kind != FaultKind::kShardUnreachable &&
       fault.kind != FaultKind::kShardCut);
  if (!aggregator) absl::StrAppend(&text, " of w", fault.worker);
  if (fault.trigger == Trigger::kTime) {
    absl::StrAppend(&text, absl::StrFormat(" at %.6f s", static_cast<double>(fault.at) / kSecond));
  } else {
    absl::StrAppend(&text, " at the ", fault.at, Ordinal(fault.at), " ",
                    TriggerName(fault.trigger));
  }
  return absl::StrCat(
      text, absl::StrFormat(", for %.3f s", static_cast<double>(fault.duration) / kSecond));
}

std::string Describe(const Scenario& scenario) {
  std::string text =
      absl::StrFormat("seed %d: %d workers (min %d, max %d), %d rounds, %d data streams, %s\n",
                      scenario.seed, scenario.workers, scenario.settings.min_workers,
                      scenario.settings.max_workers, scenario.rounds, scenario.streams,
                      scenario.scripts              ? "scripts"
                      : scenario.one_lane_at_a_time ? "lanes in turn"
                                                    : "lanes at once");
  for (const LaneModel& lane : scenario.lanes) {
    absl::StrAppend(&text, "  ", lane.name, lane.kind == LaneKind::kCall ? " (calls)" : "", ": ",
                    absl::StrJoin(lane.tensors, ", ",
                                  [](std::string* out, const TensorSpec& spec) {
                                    absl::StrAppend(out, spec.name, " ", DescribeSpec(spec));
                                  }),
                    "\n");
  }
  const aggregator::Config& config = scenario.config;
  absl::StrAppend(&text, "  ", ReduceOpName(scenario.spec.op), ", frame ",
                  config.frame_bytes / 1024, " KiB, window ", config.window_bytes / 1024,
                  " KiB, result window ", config.result_window_bytes / 1024, " KiB, memory ",
                  config.memory_bytes / 1024, " KiB\n");
  absl::StrAppend(
      &text, "  loss policy ",
      config.loss_policy == aggregator::LossPolicy::kShrink ? "shrink" : "abort",
      config.late_policy == aggregator::LatePolicy::kEvict ? ", late workers are evicted" : "",
      LeavesOut(config.late_policy)
          ? absl::StrCat(", late workers are left out of rounds with ", config.quorum_percent,
                         "% after ", absl::FormatDuration(config.grace))
          : "",
      config.late_policy == aggregator::LatePolicy::kCarry ? " and counted with the next" : "",
      config.recovery_policy == aggregator::RecoveryPolicy::kAny ? ", recovery with anyone" : "",
      config.state_file ? ", state file" : "", scenario.broadcast ? ", broadcast" : "",
      scenario.checkpoints ? ", checkpoints" : "",
      scenario.batches ? ", frames with their session" : "",
      scenario.most_ranks > 1 ? ", workers stand for several trainers" : "",
      scenario.groups ? ", workers join in pairs" : "",
      scenario.epoch_samples > 0 ? absl::StrCat(", epochs of ", scenario.epoch_samples, " samples")
                                 : "",
      scenario.global_batch > 0 ? absl::StrCat(" in steps of ", scenario.global_batch) : "",
      scenario.target_batch > 0 ? absl::StrCat(", batches of ", scenario.target_batch, " samples")
                                : "",
      scenario.rounds_ahead > 0 ? ", joiners catch up" : "",
      scenario.shards > 0 ? absl::StrCat(", ", scenario.shards, " shards with ",
                                         absl::StrJoin(scenario.shard_memory, ", ",
                                                       [](std::string* out, uint64_t memory) {
                                                         absl::StrAppend(out, memory / 1024);
                                                       }),
                                         " KiB")
                          : "",
      scenario.old_clients ? ", old clients" : "",
      scenario.calls > 0
          ? absl::StrCat(", ", scenario.calls, " calls before each step, of ",
                         config.max_lane_names, " names and ", config.max_lanes, " lanes at most")
          : "",
      "\n");
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    absl::StrAppend(&text, "  fault ", i, ": ", Describe(scenario.faults[i]), "\n");
  }
  if (scenario.bug != PlantedBug::kNone) {
    absl::StrAppend(&text, "  planted bug: ", PlantedBugName(scenario.bug), "\n");
  }
  return text;
}

Scenario DrawScenario(uint64_t seed, bool leaves_out, bool many_names, bool shards) {
  Random random(Mix(seed, 0x5ce9a610));
  Scenario scenario;
  scenario.seed = seed;
  scenario.workers = static_cast<uint32_t>(random.Between(2, random.Chance(70) ? 3 : 5));
  scenario.rounds = static_cast<uint32_t>(random.Between(2, 6));
  scenario.spec = DrawSpec(random);
  scenario.lanes = DrawLanes(random, scenario.spec.op);
  DrawKinds(Random(Mix(seed, 0xca11)), scenario.lanes);
  Random names(Mix(seed, 0x4a3e5));
  if (names.Chance(12) || many_names) MakeNames(names, scenario);
  scenario.one_lane_at_a_time = random.Chance(40);
  scenario.skip_percent = random.Chance(50) ? static_cast<uint32_t>(random.Between(5, 60)) : 0;
  scenario.partial_models = random.Chance(20);
  scenario.broadcast = random.Chance(20);
  scenario.checkpoints = random.Chance(50);

  JobSettings& settings = scenario.settings;
  settings.max_workers = scenario.workers + static_cast<uint32_t>(random.Below(3));
  scenario.groups = seed % 5 == 3;
  // There is room for each pair, beside workers that are left of others.
  if (scenario.groups) settings.max_workers += 2 + settings.max_workers % 2;
  const uint64_t elastic = random.Below(10);
  settings.min_workers = elastic < 5   ? settings.max_workers / 2 + 1
                         : elastic < 7 ? scenario.workers
                                       : static_cast<uint32_t>(random.Between(1, scenario.workers));
  settings.min_workers = std::min(settings.min_workers, scenario.workers);
  settings.start_workers = scenario.workers;

  scenario.streams = static_cast<uint32_t>(random.Between(1, 3));
  scenario.latency = random.Between(20, 500);
  scenario.jitter = random.Chance(20) ? 10 * kMillisecond : random.Between(10, 1000);
  scenario.step = random.Between(1, 30) * kMillisecond;
  scenario.slow_reducer = random.Chance(30);
  DrawLimits(random, scenario);
  DrawPolicies(random, scenario);
  DrawFaults(random, scenario);
  scenario.batches = seed % 3 != 0;
  scenario.most_ranks = seed % 4 == 2 ? 4 : 1;
  if (scenario.groups) scenario.config.group_timeout = absl::Seconds(2);
  Random joins(Mix(seed, 0x4e574a27));
  if (joins.Chance(20)) {
    scenario.config.fruitless_joins = static_cast<uint32_t>(joins.Between(1, 2));
    scenario.config.join_pause = absl::Seconds(joins.Between(1, 3));
  }
  Random scripts(Mix(seed, 0x5c217));
  if (scenario.lanes.size() > 1 && AreCalls(scenario.lanes) && scripts.Chance(60)) {
    scenario.groups = false;  // They have no room to spare.
    MakeScripts(scenario);
  }
  Random samples(Mix(seed, 0x5a3b1e5));
  if (!scenario.scripts && samples.Chance(60)) {
    scenario.epoch_samples = static_cast<uint64_t>(samples.Between(4, 40));
    scenario.batch = static_cast<uint64_t>(samples.Between(1, 6));
    if (samples.Chance(25)) scenario.break_off_percent = 10;
    if (samples.Chance(40)) {
      scenario.global_batch = static_cast<uint64_t>(samples.Between(1, 12));
    }
  }
  // With several lanes, the trainers would begin them in different orders.
  if (scenario.lanes.size() == 1 && samples.Chance(30)) {
    scenario.target_batch = static_cast<uint64_t>(samples.Between(1, 40));
  }
  // Where rounds go on without a trainer, it would make the calls before a step after the others.
  Random late(Mix(seed, 0x1a7e));
  if (!scenario.scripts && scenario.calls == 0 && (late.Chance(20) || leaves_out))
    LeaveOutLate(late, scenario);
  Random places(Mix(seed, 0x91ace5));
  if (scenario.lanes.size() > 1 && AreCalls(scenario.lanes) && places.Chance(50)) {
    const auto most = static_cast<int64_t>(scenario.lanes.size()) - 1;
    scenario.config.max_lanes = static_cast<uint32_t>(places.Between(1, most));
  }
  // A joiner has no share of a step, and would close the batch of the others.
  Random ahead(Mix(seed, 0xa4ead));
  if (!scenario.scripts && scenario.global_batch == 0 && scenario.target_batch == 0 &&
      ahead.Chance(40)) {
    scenario.rounds_ahead = static_cast<uint32_t>(ahead.Between(1, 4));
  }
  if (shards) {
    MakeShards(Random(Mix(seed, 0x54a2d5)), scenario);
    DrawShardMemory(Random(Mix(seed, 0x3e304)), scenario);
  }
  return scenario;
}

}  // namespace basin::simulation
