# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

basin_benchmark(timeline_bench
  SRCS timeline_bench.cc
  DEPS basin_client_runner basin_runtime)
