// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// basinctl: an operator's hand on an aggregator.

#include <cstdlib>
#include <string>
#include <vector>

#include "aggregator/ctl/commands.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  basin::aggregator::Environment environment;
  environment.address = variable("BASIN_ADMIN_ADDRESS");
  environment.workers_address = variable("BASIN_ADDRESS");
  environment.tls = {variable("BASIN_TLS_CA"), variable("BASIN_TLS_CERT"),
                     variable("BASIN_TLS_KEY")};
  environment.token_file = variable("BASIN_TOKEN_FILE");
  environment.job = variable("BASIN_JOB");
  return basin::aggregator::RunBasinctl(arguments, environment);
}
