// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for the aggregator's process, its settings and its disk.

#include "absl/strings/str_cat.h"
#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

aggregator::Config ParseConfig(World& world, Arguments& arguments) {
  aggregator::Config config;
  config.term = arguments.Number("term", 1);
  config.lease = arguments.Duration("lease", config.lease);
  config.recovery_window = arguments.Duration("recovery-window", config.recovery_window);
  config.pause_timeout = arguments.Duration("pause-timeout", config.pause_timeout);
  config.start_timeout = arguments.Duration("start-timeout", config.start_timeout);
  config.drain_grace = arguments.Duration("drain-grace", config.drain_grace);
  config.memory_bytes = arguments.Bytes("memory", config.memory_bytes);
  config.frame_bytes = arguments.Bytes("frame", config.frame_bytes);
  config.window_bytes = arguments.Bytes("window", config.window_bytes);
  config.result_window_bytes = arguments.Bytes("result-window", config.result_window_bytes);
  config.max_lane_names = static_cast<uint32_t>(arguments.Number("names", config.max_lane_names));
  const std::string loss = arguments.Text("loss", "shrink");
  if (loss != "shrink" && loss != "abort") arguments.Fail("loss is shrink or abort");
  if (loss == "abort") config.loss_policy = aggregator::LossPolicy::kAbort;
  config.evict_late_after = arguments.Duration("evict-late", config.evict_late_after);
  if (config.evict_late_after != absl::InfiniteDuration()) {
    config.late_policy = aggregator::LatePolicy::kEvict;
  }
  config.grace = arguments.Duration("leave-out-late", absl::InfiniteDuration());
  if (config.grace != absl::InfiniteDuration()) {
    config.late_policy = aggregator::LatePolicy::kLeaveOut;
  }
  const std::string recovery = arguments.Text("recovery", "majority");
  if (recovery != "majority" && recovery != "any") arguments.Fail("recovery is majority or any");
  if (recovery == "any") config.recovery_policy = aggregator::RecoveryPolicy::kAny;
  if (arguments.Flag("state-file")) {
    config.state_file = true;
    config.saved = world.disk;
  }
  return config;
}

void StartAggregator(World& world, Arguments& arguments) {
  const std::string name = arguments.Text("name", "aggregator");
  if (world.FindAggregator(name) != nullptr) {
    arguments.Fail(absl::StrCat(name, " is running already"));
    return;
  }
  world.StartAggregator(name, ParseConfig(world, arguments));
}

void Crash(World& world, Arguments& arguments) {
  if (AggregatorProcess* process = AggregatorNamed(world, arguments)) {
    world.CrashAggregator(*process);
  }
}

void RestartAggregator(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process == nullptr) return;
  const std::string name = process->name();
  world.CrashAggregator(*process);
  world.StartAggregator(name, ParseConfig(world, arguments));
}

void StopAggregator(World& world, Arguments& arguments) {
  if (AggregatorProcess* process = AggregatorNamed(world, arguments)) process->stopped = true;
}

// A continued process may look at its timers before it reads what has arrived meanwhile.
void ContAggregator(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process == nullptr) return;
  process->stopped = false;
  process->Step(aggregator::Tick{});
}

void Disk(World& world, Arguments& arguments) {
  const std::string state = arguments.NextWord();
  if (state != "full" && state != "ok") arguments.Fail("the disk is full or ok");
  world.disk_full = state == "full";
}

}  // namespace

std::vector<Command> AggregatorCommands() {
  return {
      {"aggregator start",
       "[name=N] [term=1] [state-file] [lease=5s] [recovery-window=8s] [start-timeout=5m] "
       "[pause-timeout=D] [drain-grace=30s] [memory=B] [frame=B] [window=B] [result-window=B] "
       "[names=N] [loss=shrink|abort] [evict-late=D] [leave-out-late=D] [recovery=majority|any]",
       "Starts an aggregator; with state-file it reads and writes the disk.", StartAggregator},
      {"aggregator crash", "[name=N]", "kill -9; what it had not delivered is lost.", Crash},
      {"aggregator restart", "as start", "Crash and start, with the settings given.",
       RestartAggregator},
      {"aggregator stop", "[name=N]", "SIGSTOP.", StopAggregator},
      {"aggregator cont", "[name=N]", "SIGCONT; its timers fire first.", ContAggregator},
      {"disk", "full|ok", "Whether the state file can be written.", Disk},
  };
}

}  // namespace basin::scenarios
