// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The options of a worker. Each may also be set by a variable of the environment, BASIN_ and the
// name in capitals. client/c/options.cc has their values, docs/client.md their meaning.

#ifndef BASIN_PROTOCOL_LIMITS_CLIENT_OPTIONS_H_
#define BASIN_PROTOCOL_LIMITS_CLIENT_OPTIONS_H_

#include <string_view>

namespace basin {

inline constexpr std::string_view kClientOptions[] = {
    "address",
    "job",
    "run_id",
    "worker_id",
    "max_workers",
    "min_workers",
    "start_workers",
    "ranks",
    "local_rank",
    "fresh",
    "streams",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "token_file",
    "local",
    "log_level",
    "pinned_bytes",
    "local_group",
    "nccl_library",
    "timeline",
    "timeline_every",
    "timeline_max_bytes",
    "software",
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_LIMITS_CLIENT_OPTIONS_H_
