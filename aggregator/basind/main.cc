// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basind: the aggregator as a program.

#include <unistd.h>

#include <string>
#include <vector>

#include "aggregator/basind/commands.h"
#include "runtime/standard_streams.h"

int main(int argc, char** argv) {
  basin::OpenMissingStreams();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.emplace_back(*variable);
  }
  return basin::aggregator::RunBasind(BASIN_VERSION, arguments, environment);
}
