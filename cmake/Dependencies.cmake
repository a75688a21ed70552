# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# Finds every library that Basin links. A package without its own CMake configuration falls back to
# a find module: Debian's protobuf and xxHash have none.

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)

find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf MODULE REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)

find_package(xxHash CONFIG QUIET)
if(NOT xxHash_FOUND)
  find_package(xxHash MODULE REQUIRED)
endif()

if(NOT BASIN_CLIENT_ONLY)
  find_package(hwy CONFIG REQUIRED)
  find_package(libyaml MODULE REQUIRED)
  find_package(nlohmann_json CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(libevent MODULE REQUIRED)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
endif()

if(BASIN_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_package(benchmark CONFIG REQUIRED)
  # The environment of scripts/setup.sh, if there is one.
  if(NOT DEFINED Python3_EXECUTABLE AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python3")
    set(Python3_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python3")
  endif()
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
endif()
