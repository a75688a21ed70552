// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basinctl: an operator's hand on an aggregator.

#include <cstdlib>
#include <string>
#include <vector>

#include "aggregator/ctl/commands.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const char* address = std::getenv("BASIN_ADMIN_ADDRESS");
  return basin::aggregator::RunBasinctl(arguments, address == nullptr ? "" : address);
}
