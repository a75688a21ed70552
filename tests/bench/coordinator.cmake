# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

if(TARGET basin_aggregator_engine AND TARGET basin_shard_wire)
  basin_benchmark(coordinator_bench
    SRCS coordinator_bench.cc
    DEPS basin_aggregator_engine basin_kernels basin_shard_wire absl::strings)
endif()
