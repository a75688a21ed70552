// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for worker processes: how they start, join, stop, break and leave.

#include "absl/strings/str_cat.h"
#include "protocol/round.h"
#include "tests/scenarios/commands.h"
#include "tests/scenarios/oracle.h"

namespace basin::scenarios {
namespace {

client::Config ParseConfig(Arguments& arguments) {
  client::Config config;
  config.job = kJob;
  config.run = arguments.Text("run", "");
  config.fresh = arguments.Flag("fresh");
  config.settings.min_workers = static_cast<uint32_t>(arguments.Number("min", 0));
  config.settings.max_workers = static_cast<uint32_t>(arguments.Number("max", 0));
  config.settings.start_workers = static_cast<uint32_t>(arguments.Number("start", 0));
  config.streams = static_cast<uint32_t>(arguments.Number("streams", 2));
  config.follows_link = false;  // There is no link; frames are as large as they may be.
  return config;
}

// Gives each process its own nonce.
void GiveNonce(World& world, client::Config& config) {
  config.nonce = MixChain(0x2026, world.NextNonce());
  config.jitter_seed = config.nonce;
}

void StartWorker(World& world, Arguments& arguments) {
  const std::optional<std::string> id = arguments.Option("id");
  const std::string target = arguments.Text("target", "aggregator");
  client::Config config = ParseConfig(arguments);
  for (const std::string& name : arguments.RestOfWords()) {
    if (world.FindWorker(name) != nullptr || world.worker_names().size() >= kMaxWorkers) {
      arguments.Fail(absl::StrCat("cannot start a worker ", name));
      return;
    }
    config.worker = id.value_or(name);
    GiveNonce(world, config);
    world.StartWorker(name, config).target = target;
  }
}

void RestartWorker(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    client::Config config = worker->config();
    config.fresh = false;
    GiveNonce(world, config);
    const std::string name = worker->name();
    const std::string target = worker->target;
    world.KillWorker(*worker);
    world.StartWorker(name, config).target = target;
  }
}

void Kill(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) world.KillWorker(*worker);
}

void StopWorker(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) worker->stopped = true;
}

void ContWorker(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->stopped = false;
    worker->Step(client::Tick{});
  }
}

void Ready(World& world, Arguments& arguments) {
  const uint64_t step = arguments.Number("step", 0);
  const uint64_t state = arguments.Number("state", 0);
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->Step(client::DeclareReady{step, state});
  }
}

void Register(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  const LaneKind kind = arguments.Flag("call") ? LaneKind::kCall : LaneKind::kGradient;
  std::vector<WorkerProcess*> workers;
  std::vector<TensorSpec> tensors;
  for (const std::string& word : arguments.RestOfWords()) {
    WorkerProcess* worker = world.FindWorker(word);
    if (worker != nullptr) {
      workers.push_back(worker);
    } else {
      tensors.push_back(ParseTensor(arguments, word));
    }
  }
  if (workers.empty() || tensors.empty()) arguments.Fail("names no worker, or no tensor");
  for (WorkerProcess* worker : workers) worker->Step(client::RegisterTensors{lane, kind, tensors});
}

void Leave(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) worker->Step(client::LeaveJob{});
}

void Finish(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) worker->Step(client::Finish{});
}

void WillLeave(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) worker->Step(client::WillLeave{});
}

void Abandon(World& world, Arguments& arguments) {
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->Step(client::AbandonRounds{});
  }
}

void Busy(World& world, Arguments& arguments) {
  const std::string reason = arguments.Text("reason", "");
  const absl::Duration expected = arguments.Duration("for", absl::ZeroDuration());
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    worker->Step(client::SetBusy{reason, expected});
  }
}

}  // namespace

std::vector<Command> WorkerCommands() {
  return {
      {"worker start",
       "W... [id=W] [fresh] [run=R] [min=N] [max=N] [start=N] [streams=2] [target=aggregator]",
       "Starts processes without memory; `fresh`: the launcher vouches that the run is new.",
       StartWorker},
      {"worker kill", "W...", "kill -9; what it had not delivered is lost, and the kernel closes.",
       Kill},
      {"worker restart", "W...", "Kill, and start again without memory.", RestartWorker},
      {"worker stop", "W...", "SIGSTOP.", StopWorker},
      {"worker cont", "W...", "SIGCONT.", ContWorker},
      {"worker leave", "W...", "Leaves in good order.", Leave},
      {"worker finish", "W...", "Has run out of data.", Finish},
      {"worker will_leave", "W...", "Leaves at the end of its step.", WillLeave},
      {"worker abandon", "W...", "Gives up its rounds, and with them its incarnation.", Abandon},
      {"worker busy", "W... [reason=R] [for=D]", "Says why it is late, and for how long.", Busy},
      {"ready", "W... [step=N] [state=N]", "The model is built; declares the state it has.", Ready},
      {"register", "W... TENSOR... [lane=g] [call]",
       "Names tensors: a is one chunk, b:3 is three, c:f32[10,3] as it says.", Register},
  };
}

}  // namespace basin::scenarios
