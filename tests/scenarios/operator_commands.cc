// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs of operators and launchers.

#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

void Evict(World& world, Arguments& arguments) {
  const std::string reason = arguments.Text("reason", "operator");
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  const std::string worker = arguments.NextWord();
  if (process != nullptr) process->Step(aggregator::EvictWorker{kJob, worker, reason});
}

void Exited(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  const std::string worker = arguments.NextWord();
  if (process != nullptr) process->Step(aggregator::WorkerExited{kJob, worker});
}

void Drain(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  const std::string worker = arguments.NextWord();
  if (process == nullptr) return;
  if (worker.empty()) {
    process->Step(aggregator::DrainService{});
  } else {
    process->Step(aggregator::DrainWorker{kJob, worker});
  }
}

void Suspend(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process != nullptr) process->Step(aggregator::SuspendJob{kJob});
}

void Resume(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process != nullptr) process->Step(aggregator::ResumeJob{kJob});
}

void Recover(World& world, Arguments& arguments) {
  AggregatorProcess* process = AggregatorNamed(world, arguments);
  if (process != nullptr) process->Step(aggregator::RecoverJob{kJob});
}

}  // namespace

std::vector<Command> OperatorCommands() {
  return {
      {"evict", "W [reason=R]", "Evicts a worker.", Evict},
      {"exited", "W", "The launcher reports that the process has ended.", Exited},
      {"drain", "[W] [name=N]", "Drains a worker, or the aggregator.", Drain},
      {"suspend", "", "Pauses the job.", Suspend},
      {"resume", "", "Lets a suspended job go on.", Resume},
      {"recover", "", "Leaves HALTED with the workers that are back.", Recover},
  };
}

}  // namespace basin::scenarios
