# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

basin_test(kernels_checksum_test SRCS checksum_test.cc DEPS basin_kernels_client LABELS tsan)

basin_test(kernels_copy_test SRCS copy_test.cc DEPS basin_kernels_client LABELS tsan)

basin_test(kernels_norm_test SRCS norm_test.cc DEPS basin_kernels_client)

# The loops that processors without AVX2 run.
basin_test(kernels_norm_baseline_test
  SRCS norm_test.cc "${PROJECT_SOURCE_DIR}/kernels/norm.cc"
  DEPS basin_kernels_client)
target_compile_definitions(kernels_norm_baseline_test PRIVATE BASIN_CAST_BASELINE)

set(golden "--golden=${PROJECT_SOURCE_DIR}/tests/golden")
basin_test(kernels_cast_test SRCS cast_test.cc DEPS basin_kernels_client NO_GTEST_MAIN
  ARGS ${golden} "--gtest_filter=-*EveryF32*")

# The loops that processors without AVX2 run.
basin_test(kernels_cast_baseline_test
  SRCS cast_test.cc "${PROJECT_SOURCE_DIR}/kernels/cast.cc"
  DEPS basin_kernels_contract NO_GTEST_MAIN
  ARGS ${golden} "--gtest_filter=-*EveryF32*")
target_compile_definitions(kernels_cast_baseline_test PRIVATE BASIN_CAST_BASELINE)
set_source_files_properties("${PROJECT_SOURCE_DIR}/kernels/cast.cc"
  "${PROJECT_SOURCE_DIR}/kernels/norm.cc" PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-trapping-math")

add_test(NAME kernels_cast_every_f32_test
  COMMAND kernels_cast_test ${golden} "--gtest_filter=*EveryF32*")
set_tests_properties(kernels_cast_every_f32_test PROPERTIES
  LABELS "kernels;long;nightly" TIMEOUT 600)
