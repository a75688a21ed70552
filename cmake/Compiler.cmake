# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
#
# The language level and the flags of the whole project. Warnings belong to the targets
# (Basin.cmake), so that flags never reach a user of an installed library.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Executables are position independent too; without this, CMake compiles but does not link them so.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

# All sources of a target are compiled in one piece, because most of the time of a compilation is
# spent on headers. The preset `debug` compiles each file alone.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
endif()
# gcc then takes each source for a header, and warns of a class whose member has a type in an
# anonymous namespace.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# CMake's default, -O3, costs a sixth more time than -O2. Only kernels gain from it, and ask for it.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(BASIN_CCACHE ccache)
mark_as_advanced(BASIN_CCACHE)
foreach(language CXX CUDA)
  if(BASIN_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER "${BASIN_CCACHE}")
  endif()
endforeach()

if(BASIN_SANITIZE)
  add_compile_options(-fsanitize=${BASIN_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BASIN_SANITIZE})
endif()

if(BASIN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "Basin: BASIN_FUZZ needs clang; use `cmake --preset asan`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(BASIN_COVERAGE)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "Basin: BASIN_COVERAGE needs clang; use `cmake --preset coverage`")
  endif()
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Hardened, with output that does not depend on the location of the tree.
  add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
                      "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
  add_link_options(LINKER:-z,relro LINKER:-z,now)
else()
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
