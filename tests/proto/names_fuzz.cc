// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The rules of names: an accepted name is harmless, and a refused one is quoted harmlessly.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Passing implies printable and bounded, failing a message that is both.
void CheckRule(absl::Status (*rule)(std::string_view), std::string_view text, size_t most) {
  const absl::Status status = rule(text);
  if (status.ok()) {
    Require(text.size() <= most && basin::IsPrintable(text));
  } else {
    const std::string message(status.message());
    Require(message.size() < 1000 && basin::IsPrintable(message));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckRule(basin::CheckJobName, text, basin::kMaxJobNameBytes);
  CheckRule(basin::CheckWorkerId, text, basin::kMaxWorkerIdBytes);
  CheckRule(basin::CheckRunId, text, basin::kMaxRunIdBytes);
  CheckRule(basin::CheckName, text, basin::kMaxNameBytes);

  const std::string shown = basin::PrintableText(text, basin::kMaxTextBytes);
  Require(shown.size() <= basin::kMaxTextBytes && basin::IsPrintable(shown));
  Require(basin::PrintableText(shown, basin::kMaxTextBytes) == shown);
  if (text.size() <= basin::kMaxTextBytes && basin::IsPrintable(text)) Require(shown == text);
  return 0;
}
