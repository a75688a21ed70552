# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

if(TARGET GTest::gtest AND TARGET basin_aggregator_engine AND TARGET basin_wire)
  basin_benchmark(flood_bench
    SRCS flood_bench.cc ../aggregator/engine/in_process.cc
    DEPS basin_aggregator_engine basin_wire GTest::gtest)
endif()

# Each flood for two seconds, with the bounds that SECURITY.md states.
if(TARGET basind AND TARGET basin_c)
  set(floods --build "${PROJECT_BINARY_DIR}" --seconds 2 --check)
  basin_python_test(bench_floods_test SCRIPT floods/floods.py
    ARGS ${floods} LABELS nightly TIMEOUT 600)
  basin_python_test(bench_floods_tls_test SCRIPT floods/floods.py
    ARGS ${floods} --tls LABELS nightly TIMEOUT 600)
  basin_python_test(bench_floods_worker_test SCRIPT floods/floods.py
    ARGS ${floods} --worker LABELS nightly TIMEOUT 600)
  basin_python_test(bench_floods_admin_test SCRIPT floods/floods.py
    ARGS ${floods} --port admin LABELS nightly TIMEOUT 600)
  # They measure pauses.
  set_tests_properties(bench_floods_test bench_floods_tls_test bench_floods_worker_test
    bench_floods_admin_test
    PROPERTIES RUN_SERIAL ON)
endif()
