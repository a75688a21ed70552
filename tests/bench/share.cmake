# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

if(TARGET GTest::gtest AND TARGET basin_aggregator_engine)
  basin_benchmark(share_bench
    SRCS share_bench.cc ../aggregator/engine/in_process.cc
    DEPS basin_aggregator_engine GTest::gtest)
endif()
