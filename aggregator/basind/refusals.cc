// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/refusals.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {

void Refusals::OfPeer(const std::string& address, const std::string& kind,
                      const std::string& what) {
  OnceAMinute(absl::StrCat(SourceOf(address), " ", kind), "peer_refused",
              absl::StrCat("From ", address, ": ", what));
}

void Refusals::OnceAMinute(const std::string& source, const char* event, std::string reason) {
  const std::optional<uint64_t> suppressed = passed_.Pass(source, absl::Now());
  if (!suppressed.has_value()) return;
  LogLine line;
  line.level = LogLevel::kWarning;
  line.event = event;
  line.reason = std::move(reason);
  line.suppressed = *suppressed;
  log_.Write(line);
}

}  // namespace basin::aggregator
