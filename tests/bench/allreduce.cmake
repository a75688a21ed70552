# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The processes that allreduce/allreduce.py runs. They are not benchmarks by themselves.
foreach(process socket_star grpc_star memory_star basin_worker)
  basin_executable(${process} SRCS allreduce/${process}.cc DEPS Threads::Threads)
  set_target_properties(${process} PROPERTIES
    EXCLUDE_FROM_ALL ON RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/allreduce")
endforeach()
target_link_libraries(grpc_star PRIVATE basin_runtime_grpc)
target_link_libraries(memory_star PRIVATE basin_kernels basin_kernels_client)
target_link_libraries(basin_worker PRIVATE basin_c)
add_custom_target(allreduce DEPENDS socket_star grpc_star memory_star basin_worker basind)
