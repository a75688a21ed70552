# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# Decides whether the CUDA kernels are built, and reports it. Sets BASIN_HAVE_CUDA, the only
# variable that other CMake files use.

set(BASIN_HAVE_CUDA OFF)

# A client is built with CUDA only on request: few trainers have tensors on a device.
if(BASIN_CUDA STREQUAL "OFF" OR (BASIN_CLIENT_ONLY AND NOT BASIN_CUDA STREQUAL "ON"))
  message(STATUS "Basin: CUDA kernels off")
elseif(NOT EXISTS "${PROJECT_SOURCE_DIR}/kernels/cuda/CMakeLists.txt")
  if(BASIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "Basin: BASIN_CUDA=ON, but this version has no CUDA kernels")
  endif()
  message(STATUS "Basin: CUDA kernels off (this version has none)")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
    set(BASIN_HAVE_CUDA ON)
    if(BASIN_CUDA_RUNTIME STREQUAL "LOADED")
      set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    endif()
    message(STATUS "Basin: CUDA kernels on (${CMAKE_CUDA_COMPILER})")
  elseif(BASIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "Basin: BASIN_CUDA=ON, but no nvcc that works was found")
  else()
    message(STATUS "Basin: CUDA kernels off (no nvcc found)")
  endif()
endif()
