# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

if(TARGET basin_kernels_client)
  basin_benchmark(payload_bench SRCS payload_bench.cc DEPS basin_kernels_client)
endif()
