// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/version.h"

#include "absl/strings/str_cat.h"
#include "aggregator/ctl/output.h"
#include "nlohmann/json.hpp"
#include "protocol/version.h"

namespace basin::aggregator {

absl::Status RunVersion(const Arguments& arguments) {
  if (arguments.format == Format::kTable) {
    Print(absl::StrCat("basinctl ", BASIN_VERSION, " (protocol ", kProtocolVersion,
                       ", arithmetic contract ", kContractVersion, ")\n"));
    return absl::OkStatus();
  }
  // The names of `basind version --json`.
  const nlohmann::ordered_json json = {
      {"version", BASIN_VERSION}, {"protocol", kProtocolVersion}, {"contract", kContractVersion}};
  Print(Structured(json.dump(), arguments.format));
  return absl::OkStatus();
}

}  // namespace basin::aggregator
