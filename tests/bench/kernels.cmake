# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

# It has its own main function, because Google Benchmark does not compare adjacent runs.
if(TARGET basin_kernels)
  basin_executable(kernels_bench SRCS kernels_bench.cc DEPS basin_kernels Threads::Threads)
  set_target_properties(kernels_bench PROPERTIES
    EXCLUDE_FROM_ALL ON RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/benchmarks")
  if(NOT TARGET benchmarks)
    add_custom_target(benchmarks)
  endif()
  add_dependencies(benchmarks kernels_bench)
endif()
