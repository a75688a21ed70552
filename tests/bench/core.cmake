# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

basin_benchmark(core_bench SRCS core_bench.cc DEPS basin_aggregator_core absl::str_format)
