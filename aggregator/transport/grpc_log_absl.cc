// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// For gRPC from 1.65 on, which logs through Abseil.

#include <cstdlib>

#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "aggregator/transport/grpc_log.h"

namespace basin::aggregator {

void SilenceGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr || std::getenv("GRPC_TRACE") != nullptr) return;
  // Abseil heeds the threshold once it is initialised, which may happen once.
  static const bool initialized = [] {
    absl::InitializeLog();
    return true;
  }();
  static_cast<void>(initialized);
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
}

}  // namespace basin::aggregator
