// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for rounds: what a trainer does between two optimizer steps.

#include "absl/strings/str_cat.h"
#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

ReduceOp ParseOp(Arguments& arguments) {
  const std::string text = arguments.Text("op", "AVERAGE");
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kWeightedAverage,
                            ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (text == ReduceOpName(op)) return op;
  }
  arguments.Fail(absl::StrCat("there is no op ", text));
  return ReduceOp::kUnspecified;
}

client::BeginRound ParseBegin(Arguments& arguments) {
  client::BeginRound begin;
  begin.spec.op = ParseOp(arguments);
  begin.spec.prescale = arguments.Real("prescale", 1);
  begin.spec.postscale = arguments.Real("postscale", 1);
  begin.spec.predivide = arguments.Real("predivide", 1);
  begin.spec.loss_scale = arguments.Real("loss-scale", 1);
  if (arguments.Flag("PRESENT")) begin.spec.denominator = Denominator::kPresent;
  begin.counts.samples = arguments.MaybeNumber("samples");
  if (begin.spec.op == ReduceOp::kWeightedAverage) begin.spec.weight_by = WeightBy::kSamples;
  return begin;
}

void Begin(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  client::BeginRound begin = ParseBegin(arguments);
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    begin.lane = worker->Handle(lane);
    worker->Step(begin);
  }
}

// Calls `act` for each worker and each tensor that the words name; for all tensors if they name
// none.
template <typename Act>
void ForTensors(World& world, Arguments& arguments, const std::string& lane, const Act& act) {
  std::vector<WorkerProcess*> workers;
  std::vector<std::string> tensors;
  for (const std::string& word : arguments.RestOfWords()) {
    if (WorkerProcess* worker = world.FindWorker(word)) {
      workers.push_back(worker);
    } else {
      tensors.push_back(word);
    }
  }
  if (workers.empty()) arguments.Fail("names no worker");
  for (WorkerProcess* worker : workers) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    for (const std::string& tensor : tensors.empty() ? worker->TensorsOf(lane) : tensors) {
      if (!worker->HasTensor(lane, tensor)) {
        return arguments.Fail(absl::StrCat(worker->name(), " has no tensor ", tensor));
      }
      act(*worker, tensor);
    }
  }
}

void Push(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  const bool lie = arguments.Flag("broken-memory");
  ForTensors(world, arguments, lane, [&](WorkerProcess& worker, const std::string& tensor) {
    worker.Push(lane, tensor, lie);
  });
}

void Skip(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  ForTensors(world, arguments, lane, [&](WorkerProcess& worker, const std::string& tensor) {
    worker.Step(client::SkipTensor{worker.Handle(lane), worker.Handle(lane, tensor)});
  });
}

void Commit(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    worker->Step(client::CommitRound{worker->Handle(lane)});
  }
}

void Withdraw(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  const std::string reason = arguments.Text("reason", "backward failed");
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    worker->Step(client::WithdrawRound{worker->Handle(lane), reason});
  }
}

void Wait(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  const absl::Duration within = arguments.Duration("within", absl::InfiniteDuration());
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    worker->Step(client::WaitRound{worker->Handle(lane), world.now() + within});
  }
}

void Backward(World& world, Arguments& arguments) {
  const std::string lane = arguments.Text("lane", kLane);
  client::BeginRound begin = ParseBegin(arguments);
  for (WorkerProcess* worker : WorkersNamed(world, arguments)) {
    if (!worker->HasLane(lane)) return arguments.Fail(absl::StrCat("has no lane ", lane));
    begin.lane = worker->Handle(lane);
    worker->Step(begin);
    for (const std::string& tensor : worker->TensorsOf(lane)) worker->Push(lane, tensor, false);
    worker->Step(client::CommitRound{worker->Handle(lane)});
  }
}

}  // namespace

std::vector<Command> RoundCommands() {
  return {
      {"begin",
       "W... [lane=g] [op=AVERAGE] [samples=N] [PRESENT] [prescale=X] [postscale=X] "
       "[predivide=X] [loss-scale=X]",
       "Begins the lane's next round.", Begin},
      {"push", "W... [TENSOR...] [lane=g] [broken-memory]",
       "Pushes tensors, by default all; broken-memory: the bytes are not what was meant.", Push},
      {"skip", "W... [TENSOR...] [lane=g]", "Skips tensors, by default all.", Skip},
      {"commit", "W... [lane=g]", "The contribution is complete.", Commit},
      {"backward", "W... [as begin]", "Begin, push all and commit: a whole backward pass.",
       Backward},
      {"withdraw", "W... [lane=g] [reason=R]", "The backward failed: not to be counted.", Withdraw},
      {"wait", "W... [lane=g] [within=D]", "Waits for the round, perhaps with a deadline.", Wait},
  };
}

}  // namespace basin::scenarios
