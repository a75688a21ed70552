// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verbs for broadcast: one worker announces a value, and others get it.

#include "tests/scenarios/commands.h"

namespace basin::scenarios {
namespace {

BlobKey ParseKey(Arguments& arguments, const TensorSpec& spec) {
  return BlobKey{arguments.Text("lane", kLane), spec.name, arguments.Number("version", 0)};
}

void Announce(World& world, Arguments& arguments) {
  WorkerProcess* worker = WorkerNamed(world, arguments, arguments.NextWord());
  const TensorSpec spec = ParseTensor(arguments, arguments.NextWord());
  const BlobKey key = ParseKey(arguments, spec);
  const uint64_t content = arguments.Number("value", 0);
  if (worker != nullptr) worker->Announce(key, spec, content);
}

void Get(World& world, Arguments& arguments) {
  WorkerProcess* worker = WorkerNamed(world, arguments, arguments.NextWord());
  const std::string text = arguments.NextWord();
  const TensorSpec spec = ParseTensor(arguments, text);
  client::GetBlob get;
  get.key = ParseKey(arguments, spec);
  if (text != spec.name) get.expected = spec;
  get.source = arguments.Option("root");
  get.deadline = world.now() + arguments.Duration("within", absl::InfiniteDuration());
  if (worker != nullptr) worker->Step(get);
}

}  // namespace

std::vector<Command> BlobCommands() {
  return {
      {"announce", "W TENSOR value=N [version=0] [lane=g]", "W can serve this value.", Announce},
      {"get", "W TENSOR [version=0] [root=W] [within=D] [lane=g]",
       "W asks for a value; with a shape, it must be that.", Get},
  };
}

}  // namespace basin::scenarios
