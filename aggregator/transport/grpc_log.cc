// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// For gRPC before 1.65.

#include "aggregator/transport/grpc_log.h"

#include <cstdlib>

#include "grpc/support/log.h"

namespace basin::aggregator {

void SilenceGrpcLog() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr || std::getenv("GRPC_TRACE") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace basin::aggregator
