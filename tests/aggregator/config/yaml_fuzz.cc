// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Any bytes are a configuration file or are refused with a text, and a printed configuration can be
// read back.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/config/configuration.h"
#include "aggregator/config/describe.h"
#include "aggregator/config/table.h"
#include "aggregator/config/yaml.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

absl::StatusOr<Configuration> Read(const std::vector<Option>& table, std::string_view text) {
  Findings findings;
  ReadYaml(table, "fuzz.yaml", text, findings);
  for (const std::string& problem : findings.problems) Require(IsPrintable(problem));
  return Configure(table, findings, {uint64_t{1} << 30, 2});
}

void CheckFile(std::string_view text) {
  const std::vector<Option> table = OptionTable();
  const absl::StatusOr<Configuration> read = Read(table, text);
  if (!read.ok()) return;
  const std::string printed = PrintConfiguration(table, *read, true);
  const absl::StatusOr<Configuration> again = Read(table, printed);
  Require(again.ok() &&
          PrintConfiguration(table, *again, false) == PrintConfiguration(table, *read, false));
}

}  // namespace
}  // namespace basin::aggregator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  basin::aggregator::CheckFile({reinterpret_cast<const char*>(data), size});
  return 0;
}
