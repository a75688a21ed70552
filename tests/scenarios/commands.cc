// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/commands.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace basin::scenarios {

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  for (const auto& group :
       {AggregatorCommands(), WorkerCommands(), RoundCommands(), NetworkCommands(),
        OperatorCommands(), BlobCommands(), StatusCommands()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

std::string RunCommand(World& world, const std::string& line, std::string& error) {
  for (const Command& command : AllCommands()) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, command.verb)) continue;
    if (!rest.empty() && rest.front() != ' ') continue;
    Arguments arguments(std::string{rest});
    command.run(world, arguments);
    error = arguments.Finish();
    const std::string output = world.TakeOutput();
    return output.empty() ? "ok\n" : output;
  }
  error = "unknown command; --help lists them";
  return "";
}

WorkerProcess* WorkerNamed(World& world, Arguments& arguments, const std::string& name) {
  WorkerProcess* worker = world.FindWorker(name);
  if (worker == nullptr) arguments.Fail(absl::StrCat("there is no worker ", name));
  return worker;
}

std::vector<WorkerProcess*> WorkersNamed(World& world, Arguments& arguments) {
  std::vector<WorkerProcess*> workers;
  for (const std::string& name : arguments.RestOfWords()) {
    if (WorkerProcess* worker = WorkerNamed(world, arguments, name)) workers.push_back(worker);
  }
  if (workers.empty()) arguments.Fail("names no worker");
  return workers;
}

AggregatorProcess* AggregatorNamed(World& world, Arguments& arguments) {
  const std::string name = arguments.Text("name", "aggregator");
  AggregatorProcess* aggregator = world.FindAggregator(name);
  if (aggregator == nullptr) arguments.Fail(absl::StrCat("there is no aggregator ", name));
  return aggregator;
}

TensorSpec ParseTensor(Arguments& arguments, const std::string& text) {
  constexpr uint64_t kElements = kChunkBytes / 4;
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  TensorSpec spec{parts.first, DType::kF32, {kElements}};
  absl::string_view shape = parts.second;
  if (shape.empty()) return spec;
  uint64_t number = 0;
  if (absl::SimpleAtoi(shape, &number)) {
    spec.shape = {kElements * number};
    return spec;
  }
  if (!absl::ConsumePrefix(&shape, "f32[") || !absl::ConsumeSuffix(&shape, "]")) {
    arguments.Fail(absl::StrCat(text, " is not a tensor"));
    return spec;
  }
  spec.shape.clear();
  for (const absl::string_view size : absl::StrSplit(shape, ',')) {
    if (!absl::SimpleAtoi(size, &number)) arguments.Fail(absl::StrCat(text, " is not a tensor"));
    spec.shape.push_back(number);
  }
  return spec;
}

}  // namespace basin::scenarios
